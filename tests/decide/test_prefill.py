from __future__ import annotations

import msgspec
import pytest
from detector_scenes import signals_at
from hypothesis import given
from hypothesis import strategies as st

from moetuned.decide.facts import BackendFacts
from moetuned.decide.prefill import PrefillState, prefill_view, step_prefill, touched_bytes
from moetuned.decide.prefill_text import eta_text
from moetuned.schema.model import ModelLayout
from moetuned.schema.sample import BackendHttp, BackendSample, ProcessCounters, Slot
from moetuned.schema.snapshot import PrefillView
from moetuned.schema.verdict import Phase

GB = 10**9
LAYOUT = ModelLayout(16, 64, 4, 590_000, 2 * GB, 30_000_000, 113_000_000)
FACTS = BackendFacts(model_bytes=2 * GB, layout=LAYOUT, batch_tokens=512, micro_batch_tokens=128)

ONE_BATCH = msgspec.structs.replace(FACTS, batch_tokens=4096)


def at(
    seconds: float,
    processed: int | None,
    taken: int | None,
    read: int | None,
    state: PrefillState,
    facts: BackendFacts = FACTS,
    **changes: object,
) -> PrefillState:
    slot = Slot(0, processing=True, task_id=1, context_length=16384, prompt_tokens=taken)
    slot = msgspec.structs.replace(slot, prompt_tokens_processed=processed, decoded_tokens=0, **changes)
    sample = BackendSample("one", ProcessCounters(7, 1, read_bytes=read), http=BackendHttp("ok", (slot,)))
    return step_prefill(state, sample, signals_at(seconds, {"expert_resident_ratio": 0.4}), Phase.PREFILL, facts)


def view(state: PrefillState, facts: BackendFacts = FACTS) -> PrefillView:
    found = prefill_view(state, facts)
    assert found is not None
    return found


def one_batch(facts: BackendFacts, seconds: int, rate: int, taken: int = 400) -> PrefillView:
    state = PrefillState()
    for second in range(seconds + 1):
        state = at(second, 0, taken, second * rate, state, facts)
    return view(state, facts)


def test_without_a_prompt_there_is_nothing_to_say() -> None:
    assert prefill_view(PrefillState(), FACTS) is None


def test_in_its_only_batch_the_layout_says_what_it_reads() -> None:
    # 400 tokens are 3 micro-batches and a small one of 16 tokens; each touches all 2 GB of experts, of which 60 % are missing.
    seen = one_batch(FACTS, 10, GB // 10)
    assert (seen.tokens_done, seen.tokens_total) == (0, 400)
    passes = 3 + (1 - (1 - 4 / 64) ** 16) / (1 - (1 - 4 / 64) ** 128)
    assert seen.read_bytes == GB
    assert seen.total_bytes == pytest.approx(0.66 * passes * 2 * GB, rel=0.01)
    assert seen.eta_seconds == pytest.approx((0.66 * passes * 2 - 1) / 0.1, rel=0.01)
    assert seen.eta_least_seconds == pytest.approx((0.6 * passes * 2 - 1) / 0.1, rel=0.01)
    assert seen.eta_most_seconds == pytest.approx((0.84 * passes * 2 - 1) / 0.1, rel=0.01)
    assert eta_text(seen) == "34 s to 51 s left"


def test_it_falls_while_it_reads() -> None:
    etas = [one_batch(FACTS, seconds, GB // 10).eta_seconds for seconds in (5, 15, 30)]
    assert None not in etas
    assert sorted(etas, reverse=True) == etas


def test_a_batch_that_ended_says_what_a_token_costs() -> None:
    state = PrefillState()
    for second in range(21):
        state = at(second, 0, 512, second * GB // 10, state)
    for second in range(21, 31):
        state = at(second, 512, 800, second * GB // 10, state)
    seen = view(state)
    assert seen.tokens_total == 800, "the second batch is not full, so it is the last"
    # 512 tokens took 21 s; 288 are left, of which 9 s are done.
    assert seen.eta_seconds == pytest.approx(288 * 21 / 512 - 9, rel=0.05)
    assert eta_text(seen) == "3.0 s left"


def test_a_newer_server_does_not_tell_the_end_before_the_last_batch() -> None:
    state = PrefillState()
    for second in range(11):
        state = at(second, 0, 512, second * GB // 10, state)
    seen = view(state)
    assert (seen.tokens_total, seen.tokens_at_least, seen.tokens_at_most) == (None, 512, 16384)
    assert seen.eta_seconds is None
    assert seen.eta_least_seconds is not None
    assert eta_text(seen).startswith("at least ")


def test_an_older_server_tells_the_whole_prompt() -> None:
    state = PrefillState()
    for second in range(11):
        state = at(second, 0, 3000, second * GB // 10, state)
    assert view(state).tokens_total == 3000


def test_what_the_prompt_cache_had_is_not_read_again() -> None:
    state = at(0, 0, 1400, 0, PrefillState(), prompt_tokens_cached=1000)
    assert view(state).tokens_total == 400


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        (msgspec.structs.replace(FACTS, layout=None), "not known yet"),
        (msgspec.structs.replace(FACTS, micro_batch_tokens=None), "not known yet"),
    ],
)
def test_without_layout_or_micro_batch_only_a_batch_that_ended_tells(facts: BackendFacts, why: str) -> None:
    seen = one_batch(facts, 10, GB // 10)
    assert seen.eta_least_seconds is None
    assert why in (seen.unknown or "")
    assert eta_text(seen) == ""
    state = PrefillState()
    for second in range(10):
        state = at(second, 0, 512, second * GB // 10, state, facts)
    state = at(10, 512, 600, GB, state, facts)
    assert view(state, facts).eta_seconds is not None


def test_unknown_tokens_and_unknown_reads_forecast_nothing() -> None:
    assert "how many tokens" in (view(at(5, None, None, 5, at(0, None, None, 0, PrefillState()))).unknown or "")
    state = PrefillState()
    for second in range(5):
        state = at(second, 0, 400, None, state)
    seen = view(state)
    assert (seen.read_bytes, seen.eta_least_seconds) == (None, None)
    assert seen.unknown == "what it reads is unknown"


def test_a_model_in_memory_is_timed_by_its_batches() -> None:
    state = PrefillState()
    for second in range(10):
        state = at(second, 0, 512, 0, state)
    assert "hardly reads" in (view(state).unknown or "")
    state = at(10, 512, 700, 0, state)
    assert view(state).eta_seconds == pytest.approx(188 * 10 / 512, rel=0.05)


def test_what_a_prompt_cost_is_remembered_for_the_next_one() -> None:
    state = PrefillState()
    for second in range(11):
        state = at(second, 0, 512, second * GB // 10, state)
    state = at(11, 512, 600, 11 * GB // 10, state)
    silent = BackendSample("one", ProcessCounters(7, 1, read_bytes=0), http=BackendHttp("ok"))
    state = step_prefill(state, silent, signals_at(12, {}), Phase.DECODE, FACTS)
    assert state.tasks == ()
    assert state.pass_bytes == pytest.approx(1.1 * GB / 4)


def test_a_prompt_of_one_batch_is_remembered_once_it_is_answered() -> None:
    state = PrefillState()
    for second in range(11):
        state = at(second, 0, 512, second * GB // 10, state, ONE_BATCH)
    slot = Slot(0, processing=True, task_id=1, prompt_tokens=513, prompt_tokens_processed=512, decoded_tokens=1)
    answered = BackendSample("one", ProcessCounters(7, 1, read_bytes=11 * GB // 10), http=BackendHttp("ok", (slot,)))
    cancelled = msgspec.structs.replace(answered, http=BackendHttp("ok", (Slot(0, processing=False),)))
    assert step_prefill(state, cancelled, signals_at(11, {}), Phase.IDLE, ONE_BATCH).pass_bytes is None
    for held, learned in (
        (512, None),
        (515, pytest.approx(1.1 * GB / 4)),
    ):  # three tokens were generated, and it is idle again
        idle = Slot(0, processing=False, task_id=1, prompt_tokens=held, prompt_tokens_processed=0, decoded_tokens=0)
        over = msgspec.structs.replace(answered, http=BackendHttp("ok", (idle,)))
        assert step_prefill(state, over, signals_at(11, {}), Phase.IDLE, ONE_BATCH).pass_bytes == learned
    state = step_prefill(state, answered, signals_at(11, {}), Phase.DECODE, ONE_BATCH)
    assert state.pass_bytes == pytest.approx(1.1 * GB / 4)
    state = at(12, 0, 512, 0, state, ONE_BATCH, task_id=2)
    for second in range(13, 18):
        state = at(second, 0, 512, (second - 12) * GB // 10, state, ONE_BATCH, task_id=2)
    seen = view(state, ONE_BATCH)
    assert seen.eta_seconds == pytest.approx(6.0)
    assert seen.eta_least_seconds == pytest.approx(1.1 / 1.25 / 0.1 - 5)


def test_the_time_in_which_it_is_stopped_does_not_count() -> None:
    state = PrefillState()
    for second in range(11):
        state = at(second, 0, 400, second * GB // 10, state)
    before = view(state).eta_seconds
    stopped = BackendSample("one", ProcessCounters(7, 1, state="T", read_bytes=GB), http=BackendHttp("busy"))
    for second in range(11, 100):
        state = step_prefill(state, stopped, signals_at(second, {}), Phase.PREFILL, FACTS)
    assert view(state).eta_seconds == pytest.approx(before)


def test_no_answer_between_batches_lets_bytes_go_on() -> None:
    state = at(0, 0, 400, 0, PrefillState())
    silent = BackendSample("one", ProcessCounters(7, 1, read_bytes=GB), http=BackendHttp("busy"))
    state = step_prefill(state, silent, signals_at(10, {}), Phase.PREFILL, FACTS)
    assert view(state).read_bytes == GB


def test_a_micro_batch_touches_all_experts_when_it_is_large() -> None:
    assert touched_bytes(FACTS, 1) == pytest.approx(2 * GB * 4 / 64)
    assert touched_bytes(FACTS, 512) == pytest.approx(2 * GB)
    assert touched_bytes(BackendFacts(), 512) is None


COUNT = st.one_of(st.none(), st.integers(0, 1 << 53))


@given(st.lists(st.tuples(COUNT, COUNT, COUNT, COUNT, st.integers(0, 3)), max_size=30))
def test_nothing_a_server_says_breaks_it(
    rows: list[tuple[int | None, int | None, int | None, int | None, int]],
) -> None:
    state = PrefillState()
    for second, (processed, taken, read, cached, task) in enumerate(rows):
        state = at(second, processed, taken, read, state, prompt_tokens_cached=cached, task_id=task)
        seen = view(state)
        for number in (seen.eta_seconds, seen.eta_least_seconds, seen.eta_most_seconds):
            assert number is None or number >= 0
        assert isinstance(eta_text(seen), str)
