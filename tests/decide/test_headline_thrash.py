"""The cause of a thrash as it is told, and the advice that goes with it."""

from __future__ import annotations

import msgspec
import pytest
from headline_scenes import GIB, MIB, NOW, view

from moetuned.decide.headline_thrash import thrash_headline
from moetuned.schema.event import Event, EventName
from moetuned.schema.neighbour import Neighbour
from moetuned.schema.snapshot import BackendView, MemoryView
from moetuned.schema.verdict import MemoryState, Paging, Phase, Reason

ROOM = MemoryView("machine", 32 * GIB, 12 * GIB, 19 * GIB, 20 * GIB)
SHRANK = Reason("paging", "cache_lost_ratio", 0.4, 0.1, 8.0, "its page cache shrank")
SWAPS = Reason("paging", "own_swap_in_bytes_per_second", 3e7, 4e6, 8.0, "it swaps")
COSTLY = Reason("paging", "read_amplification", 9.0, 3.0, 8.0, "9 times the bytes")
LOWERED = Reason("memory", "headroom_bytes", 1.0, None, None, "its limit was lowered to 900 MiB")
FIREFOX = Neighbour("firefox", "grew", 6 * GIB, 600.0, 7, None, "firefox (pid 7) grew 6.0 GiB since 14:02")
RSYNC = Neighbour("rsync", "read", 42 * GIB, 300.0, 812, None, "rsync (pid 812) read 42.0 GiB in the last 5 min")


def thrashing(*reasons: Reason, phase: Phase = Phase.DECODE, memory: MemoryView = ROOM, **more: object) -> BackendView:
    signals = more.pop("signals", {"tokens_per_second": 0.9})
    fields = {"best_tokens_per_second": 6.1} | more
    return view("glm", phase, Paging.THRASHING, MemoryState.OK, *reasons, memory=memory, signals=signals, **fields)


def line(one: BackendView, *events: Event) -> str:
    return thrash_headline(one, events, NOW).line


def begun(*reasons: Reason) -> Event:
    return Event("1", EventName.THRASH_BEGIN, NOW, NOW, "glm", "it thrashes", reasons)


def test_the_whole_line() -> None:
    assert line(thrashing(SHRANK, neighbours=(FIREFOX,))) == (
        "glm: thrashing for 40 s: 0.9 tokens/s instead of 6.1, because it reads the same parts of its model from disk again and again; "
        "firefox (pid 7) grew 6.0 GiB since 14:02 and took the memory they were in. Close it, or see what else frees memory: "
        "moetunectl relief plan glm"
    )


@pytest.mark.parametrize(
    ("one", "cause", "advice"),
    [
        (thrashing(SHRANK, LOWERED), "its limit was lowered to 900 MiB, and they no longer fit", "Raise the limit again"),
        (thrashing(SHRANK, neighbours=(RSYNC,)), "rsync (pid 812) read 42.0 GiB", "Stop it, or let it wait"),
        (thrashing(SHRANK), "something took the memory they were in", "Close what you do not need"),
        (thrashing(signals={"cache_lost_ratio": 0.3}), "something took the memory they were in (30 % of the model)", "Close"),
        (thrashing(COSTLY, signals={"bytes_per_major_fault": 8.0 * MIB}), "fetches 8.0 MiB where 3.0 MiB would do", "tune readahead /models/glm.gguf"),
        (thrashing(COSTLY), "it fetches far more than it needs", "tune readahead"),
        (thrashing(COSTLY, memory=MemoryView("cgroup", 8 * GIB, 3 * GIB, 5 * GIB, 5 * GIB)), "each token needs 6.0 GiB of the model, and its memory limit (8.0 GiB) leaves room for 5.0 GiB", "moetunectl estimate /models/glm.gguf"),
        (thrashing(), "less of the model is in memory than when it ran well", "relief plan glm"),
        (thrashing(SWAPS), "parts of its memory are swapped out to disk", "relief plan glm"),
    ],
)  # fmt: skip
def test_causes(one: BackendView, cause: str, advice: str) -> None:
    told = thrash_headline(one, (), NOW)
    assert cause in told.text
    assert advice in told.advice


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("neighbour", "another program under the same memory limit takes"),
        ("outside", "another program takes"),
        ("prompt_cache", "its own memory grew"),
        ("leak", "its own memory grew"),
        ("unknown", "something took"),
    ],
)
def test_what_grows_is_blamed_where_nobody_was_seen(kind: str, words: str) -> None:
    assert words in line(thrashing(SHRANK, memory=msgspec.structs.replace(ROOM, growth_kind=kind)))


def test_who_was_named_when_it_began_stays_named() -> None:
    named = Reason("neighbours", "neighbour_grew_bytes", 6.0 * GIB, None, 600.0, FIREFOX.text)
    assert FIREFOX.text in line(thrashing(), begun(SHRANK, named))
    ended = Event("2", EventName.THRASH_END, NOW, NOW, "glm", "over")
    assert FIREFOX.text not in line(thrashing(), begun(SHRANK, named), ended), "that was another thrash"
    other = msgspec.structs.replace(begun(SHRANK, named), backend="other")
    assert FIREFOX.text not in line(thrashing(), other)


def test_a_program_that_grew_is_not_blamed_for_a_read_ahead() -> None:
    one = thrashing(COSTLY, signals={"bytes_per_major_fault": 8.0 * MIB}, neighbours=(FIREFOX,))
    assert "firefox" not in line(one)


@pytest.mark.parametrize(
    ("speed", "best", "phase", "words"),
    [
        (0.9, 6.1, Phase.DECODE, "0.9 tokens/s instead of 6.1, because"),
        (0.04, 6.1, Phase.DECODE, "0.04 tokens/s instead of 6.1"),
        (6.0, 6.1, Phase.DECODE, "only 6.0 tokens/s, because"),
        (0.9, None, Phase.DECODE, "only 0.9 tokens/s"),
        (None, 6.1, Phase.DECODE, "it hardly answers (it has done 6.1 tokens/s), because"),
        (None, None, Phase.PREFILL, "it hardly gets on with its prompt, because"),
        (0.0, None, Phase.UNKNOWN, "it hardly answers, because"),
    ],
)
def test_what_it_costs(speed: float | None, best: float | None, phase: Phase, words: str) -> None:
    assert words in line(thrashing(phase=phase, signals={"tokens_per_second": speed}, best_tokens_per_second=best))


def test_memory_that_runs_out_is_told_only_where_little_is_left() -> None:
    near = msgspec.structs.replace(thrashing(SHRANK).verdict, memory=MemoryState.NEAR_LIMIT, paging_since=None)
    little = MemoryView("machine", 32 * GIB, 31 * GIB, GIB, GIB)
    assert "Memory is nearly full, too (1.0 GiB left)" in line(
        msgspec.structs.replace(thrashing(SHRANK, memory=little), verdict=near)
    )
    assert "nearly full" not in line(msgspec.structs.replace(thrashing(SHRANK), verdict=near))
    assert line(msgspec.structs.replace(thrashing(), verdict=near)).startswith("glm: thrashing: ")
