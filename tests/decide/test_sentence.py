"""The verdict as a sentence a person understands."""

from __future__ import annotations

import itertools

import pytest

from moetuned.decide.prefill_text import prefill_progress
from moetuned.decide.sentence import sentence
from moetuned.schema.snapshot import MemoryView, PrefillView
from moetuned.schema.verdict import MemoryState, Paging, Phase, Reason, Verdict

GIB = 1 << 30
NOW = 1000.0
SIGNALS = {
    "process_read_bytes_per_second": 455e6,
    "tokens_per_second": 1.25,
    "resident_ratio": 0.38,
}
TIGHT = MemoryView(limit_bytes=8 * GIB, headroom_bytes=GIB // 4)


def say(
    phase: Phase, paging: Paging = Paging.UNKNOWN, memory: MemoryState = MemoryState.OK, view=TIGHT, signals=SIGNALS
):
    verdict = Verdict(
        "glm", NOW, phase=phase, paging=paging, memory=memory, paging_since=NOW - 12, memory_since=NOW - 3
    )
    return sentence(verdict, signals, view, NOW)


@pytest.mark.parametrize(
    ("phase", "paging", "expected"),
    [
        (Phase.ABSENT, Paging.UNKNOWN, "is not running"),
        (Phase.LOADING, Paging.COLD, "is loading its model, reads 455 MB/s"),
        (Phase.IDLE, Paging.STEADY, "is idle; the experts it uses are in memory, 1.2 tokens/s"),
        (
            Phase.DECODE,
            Paging.THRASHING,
            "is thrashing for 12 s: it reads the same bytes again and again, reads 455 MB/s, 1.2 tokens/s",
        ),
        (
            Phase.DECODE,
            Paging.STREAMING,
            "is answering and streams experts from disk at the expected cost, reads 455 MB/s, 1.2 tokens/s",
        ),
        (Phase.PREFILL, Paging.WARMING, "is reading a prompt and is warming up, reads 455 MB/s, 38 % of the model in memory"),
        (Phase.IDLE, Paging.UNKNOWN, "is idle; whether it thrashes cannot be told yet"),
    ],
)  # fmt: skip
def test_what_it_does(phase: Phase, paging: Paging, expected: str) -> None:
    assert say(phase, paging) == expected


def test_memory_comes_first() -> None:
    view = MemoryView(limit_bytes=8 * GIB, headroom_bytes=GIB // 4, seconds_to_limit=25.0)
    text = say(Phase.DECODE, Paging.STEADY, MemoryState.NEAR_LIMIT, view)
    assert text.startswith(
        "memory is close to its limit for 3.0 s (256 MiB of 8.0 GiB left, full in about 25 s); is answering"
    )
    assert "at its limit" in say(Phase.DECODE, Paging.STEADY, MemoryState.CRITICAL)


def test_why_it_is_away() -> None:
    absent = Verdict("glm", NOW, phase=Phase.ABSENT)
    assert sentence(absent, {}, MemoryView(), NOW, "is being restarted") == "is being restarted"
    idle = Verdict("glm", NOW, phase=Phase.IDLE, paging=Paging.STEADY)
    assert "restarted" not in sentence(idle, {}, MemoryView(), NOW, "is being restarted")


@pytest.mark.parametrize(
    ("phase", "paging", "memory"), list(itertools.product(Phase, Paging, MemoryState)), ids=lambda each: each.value
)
def test_nothing_known_is_still_a_sentence(phase: Phase, paging: Paging, memory: MemoryState) -> None:
    text = say(phase, paging, memory, MemoryView(), {})
    assert "None" not in text
    assert not text.endswith(".")
    assert text == text.strip()
    assert "\n" not in text


PROMPT = PrefillView(
    tokens_done=1024,
    tokens_total=3000,
    read_bytes=34 * GIB,
    total_bytes=50 * GIB,
    eta_seconds=40.0,
    eta_least_seconds=38.0,
    eta_most_seconds=42.0,
)


def say_prompt(prompt: PrefillView, paging: Paging = Paging.STREAMING) -> str:
    return sentence(Verdict("glm", NOW, phase=Phase.PREFILL, paging=paging), SIGNALS, TIGHT, NOW, prefill=prompt)


def test_a_long_prompt_says_how_far_it_is_and_that_it_is_not_hung() -> None:
    assert (
        say_prompt(PROMPT)
        == "is reading the prompt: 1024 of 3000 tokens, 34.0 GiB of about 50.0 GiB read, 40 s left; not hung"
    )
    assert say_prompt(PROMPT, Paging.THRASHING).startswith("is thrashing")
    assert say_prompt(PROMPT, Paging.THRASHING).endswith("; the prompt: " + prefill_progress(PROMPT))


def test_a_prompt_of_unknown_length_says_at_least() -> None:
    prompt = PrefillView(tokens_done=512, tokens_at_least=1024, read_bytes=8 * GIB, eta_least_seconds=70.0)
    assert (
        say_prompt(prompt)
        == "is reading the prompt: 512 tokens so far, 8.0 GiB read, at least 1 min 10 s left; not hung"
    )


@pytest.mark.parametrize("read", [4096, 2 << 20, 20 << 20])
@pytest.mark.parametrize("total", [None, 26 << 10, 3 << 20])
def test_a_prompt_that_hardly_reads_tells_its_tokens_only(read: int, total: int | None) -> None:
    prompt = PrefillView(
        tokens_done=512, tokens_total=1024, read_bytes=read, total_bytes=total, eta_seconds=20.0,
        eta_least_seconds=20.0, eta_most_seconds=20.0, seconds=40.0,
    )  # fmt: skip
    assert say_prompt(prompt) == "is reading the prompt: 512 of 1024 tokens, 20 s left; not hung"


def test_a_prompt_of_which_nothing_is_known_is_told_as_before() -> None:
    assert say_prompt(PrefillView(unknown="no tokens")) == say(Phase.PREFILL, Paging.STREAMING)


@pytest.mark.parametrize(
    ("signal", "text"),
    [
        ("hung", "hangs: for 1 min 5 s it has neither read nor computed nor given a token"),
        ("paused", "is paused: its process is stopped (SIGSTOP or a debugger)"),
    ],
)
@pytest.mark.parametrize("phase", [Phase.PREFILL, Phase.UNKNOWN])
def test_hung_and_paused_go_before_the_rest(signal: str, text: str, phase: Phase) -> None:
    reason = Reason("phase", signal, 65.0, 60.0, 65.0, "text")
    verdict = Verdict("glm", NOW, phase=phase, reasons=(reason,))
    assert sentence(verdict, SIGNALS, TIGHT, NOW, "is starting", PROMPT) == text


@pytest.mark.parametrize("paging", [Paging.STEADY, Paging.WARMING, Paging.STREAMING])
def test_one_that_waits_for_the_processor_says_so(paging: Paging) -> None:
    text = "slower than its own best 27.0 tokens/s; it waits for the processor, not for memory"
    reason = Reason(axis="paging", signal="cpu_ratio", value=0.3, limit=0.9, held_seconds=4.0, text=text)
    verdict = Verdict("glm", NOW, phase=Phase.DECODE, paging=paging, memory=MemoryState.OK, reasons=(reason,))
    said = sentence(verdict, SIGNALS, TIGHT, NOW)
    assert text in said
    assert "experts it uses are in memory" not in said
