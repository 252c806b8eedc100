"""What grows, told from seconds of a backend that are made up here."""

from __future__ import annotations

import pytest
from detector_scenes import MB, signals_at
from hypothesis import given
from hypothesis import strategies as st

from moetuned.decide.facts import BackendFacts
from moetuned.decide.growth_kind import GrowthKind, GrowthState, squeezed_by, step_growth
from moetuned.schema.sample import BackendHttp, BackendSample, CgroupMemory, ProcessCounters, Slot
from moetuned.schema.verdict import Phase

GB = 1000 * MB
FACTS = BackendFacts(prompt_cache_bytes=int(2 * GB), kv_cache_bytes=int(GB))


class Life:
    """A backend second by second."""

    def __init__(self, facts: BackendFacts = FACTS, *, cgroup: bool = True, start_ticks: int = 0) -> None:
        self.state, self.facts = GrowthState(), facts
        self.at, self.own, self.task = 1000.0, GB, 0
        self.cgroup, self.start_ticks = CgroupMemory(2) if cgroup else None, start_ticks

    def go(self, seconds: int, phase: Phase, grows: float = 0.0, **signals: float | None) -> GrowthState:
        """`grows` bytes a second; other signals as given."""
        for _ in range(seconds):
            self.at, self.own = self.at + 1, self.own + grows
            busy = phase in (Phase.PREFILL, Phase.DECODE)
            sample = BackendSample(
                "one",
                process=ProcessCounters(7, self.start_ticks, rss_anon_bytes=int(self.own), swap_bytes=0),
                cgroup=self.cgroup,
                http=BackendHttp("ok", slots=(Slot(0, processing=busy, task_id=self.task if busy else None),)),
            )
            known: dict[str, float | None] = {
                "anonymous_growth_bytes_per_second": float(grows),
                "others_growth_bytes_per_second": 0.0,
                **signals,
            }
            self.state = step_growth(self.state, signals_at(self.at, known), sample, phase, self.facts)
        return self.state

    def request(self, allocates: float = 0.0) -> GrowthState:
        """Five seconds; at its end it allocates."""
        self.task += 1
        self.go(1, Phase.PREFILL)
        self.go(3, Phase.DECODE)
        return self.go(1, Phase.DECODE, allocates)

    @property
    def kind(self) -> GrowthKind:
        return self.state.growth.kind


def test_nothing_grows() -> None:
    life = Life()
    life.go(30, Phase.IDLE)
    life.request()
    assert (life.kind, life.state.growth.text) == (GrowthKind.NONE, "")


def test_repacked_weights_while_it_loads() -> None:
    life = Life()
    assert "repacked weights" in life.go(10, Phase.LOADING, 150 * MB).growth.text
    assert life.kind is GrowthKind.LOADING
    life.go(1, Phase.IDLE)
    assert life.kind is GrowthKind.NONE


def test_where_nobody_can_be_asked_growth_at_the_pace_of_the_reads_is_loading() -> None:
    life = Life(start_ticks=990 * 100)
    life.go(5, Phase.UNKNOWN, 150 * MB, process_read_bytes_per_second=160 * MB)
    assert life.kind is GrowthKind.LOADING
    life.go(5, Phase.UNKNOWN, 150 * MB, process_read_bytes_per_second=0.0)
    assert life.kind is GrowthKind.UNKNOWN
    old = Life(start_ticks=100)
    old.go(5, Phase.UNKNOWN, 150 * MB, process_read_bytes_per_second=160 * MB)
    assert old.kind is GrowthKind.UNKNOWN


def test_buffers_of_the_first_request() -> None:
    life = Life()
    life.go(5, Phase.IDLE)
    life.request(300 * MB)
    assert life.kind is GrowthKind.START


def test_the_prompt_cache_grows_in_steps_with_requests() -> None:
    life = Life()
    life.go(70, Phase.IDLE)
    for _ in range(5):
        life.request(150 * MB)
        assert life.kind is GrowthKind.PROMPT_CACHE
    assert "over 5 requests" in life.state.growth.text
    assert "--cache-ram" in life.state.growth.text
    life.go(1, Phase.IDLE, seconds_to_limit=20.0)
    assert life.kind is GrowthKind.PROMPT_CACHE, "between two steps it is still that"
    life.go(1, Phase.IDLE)
    assert life.kind is GrowthKind.NONE


def test_a_prompt_cache_whose_requests_take_long_is_not_somebody_else_between_them() -> None:
    life = Life()
    life.go(70, Phase.IDLE)
    soon = {"growth_to_limit_bytes_per_second": 2.5 * MB, "seconds_to_limit": 24.0}
    for _ in range(3):
        life.request(150 * MB)
        life.task += 1
        life.go(20, Phase.PREFILL, **soon)
        assert life.kind is GrowthKind.PROMPT_CACHE
    life.go(20, Phase.PREFILL, **soon)
    assert life.kind is GrowthKind.OUTSIDE, "it has not grown for long, and something does"


def test_without_a_known_bound_its_own_growth_is_unknown() -> None:
    life = Life(BackendFacts())
    life.go(70, Phase.IDLE)
    life.request(150 * MB)
    assert life.kind is GrowthKind.UNKNOWN
    assert "how much its prompt cache may take is unknown" in life.state.growth.text


def test_growth_while_nothing_is_asked_is_a_leak() -> None:
    life = Life()
    life.go(10, Phase.IDLE)
    life.go(40, Phase.IDLE, 5 * MB)
    assert life.kind is GrowthKind.LEAK
    assert "while nothing was asked of it" in life.state.growth.text


def test_what_a_request_allocates_at_its_end_is_no_growth_while_idle() -> None:
    life = Life()
    life.go(70, Phase.IDLE)
    for _ in range(6):
        life.request()
        life.go(1, Phase.IDLE, 200 * MB)
        assert life.kind is GrowthKind.PROMPT_CACHE
        life.go(15, Phase.IDLE)
    assert life.state.idle_bytes == 0


def test_far_beyond_what_the_prompt_cache_may_take_after_many_requests_is_a_leak() -> None:
    life = Life()
    life.go(70, Phase.IDLE)
    for _ in range(19):
        life.request(150 * MB)
    assert life.kind is GrowthKind.UNKNOWN
    assert "context checkpoints" in life.state.growth.text
    for _ in range(12):
        life.request(150 * MB)
    assert life.kind is GrowthKind.LEAK


def test_growth_while_it_only_generates_is_no_cache() -> None:
    life = Life()
    life.go(70, Phase.IDLE)
    life.request(150 * MB)
    life.task += 1
    life.go(20, Phase.DECODE, 20 * MB)
    assert life.kind is GrowthKind.UNKNOWN
    assert "only generates" in life.state.growth.text


def test_another_process_in_its_cgroup() -> None:
    life = Life()
    life.go(70, Phase.IDLE)
    life.go(3, Phase.DECODE, others_growth_bytes_per_second=100 * MB)
    assert life.kind is GrowthKind.NEIGHBOUR


def test_others_on_the_machine() -> None:
    life = Life(cgroup=False)
    life.go(70, Phase.IDLE)
    life.go(3, Phase.DECODE, others_growth_bytes_per_second=100 * MB)
    assert life.kind is GrowthKind.OUTSIDE


def test_a_shared_limit_that_others_fill() -> None:
    life = Life()
    life.go(70, Phase.IDLE)
    life.go(3, Phase.DECODE, growth_to_limit_bytes_per_second=100 * MB, seconds_to_limit=9.0)
    assert life.kind is GrowthKind.OUTSIDE
    assert "from outside" in life.state.growth.text
    life.go(3, Phase.DECODE, growth_to_limit_bytes_per_second=100 * MB, seconds_to_limit=300.0)
    assert life.kind is GrowthKind.NONE, "far from its limit it is no matter"


@pytest.mark.parametrize(
    ("mine", "others", "kind", "told"),
    [
        (4, 20, GrowthKind.OUTSIDE, "fills at 20"),
        (0, 20, GrowthKind.OUTSIDE, "fills at 20"),  # also between two steps of what grew before
        (15, 10, GrowthKind.PROMPT_CACHE, "add 10"),
        (25, 0.5, GrowthKind.PROMPT_CACHE, None),
        (25, None, GrowthKind.PROMPT_CACHE, None),
    ],
)
def test_others_below_a_shared_limit_grow_beside_its_prompt_cache(
    mine: float, others: float | None, kind: GrowthKind, told: str | None
) -> None:
    life = Life()
    life.go(70, Phase.IDLE)
    life.request(150 * MB)
    life.task += 1
    shared = None if others is None else others * MB
    towards = {"growth_to_limit_bytes_per_second": (mine + (others or 0)) * MB, "seconds_to_limit": 12.0}
    life.go(1, Phase.PREFILL, mine * MB, others_growth_to_limit_bytes_per_second=shared, **towards)
    assert life.kind is kind
    assert told in life.state.growth.text if told is not None else "outside" not in life.state.growth.text


def test_unknown_figures_are_unknown_and_another_process_is_another_story() -> None:
    life = Life()
    life.go(70, Phase.IDLE)
    life.request(150 * MB)
    unread = BackendSample("one", process=ProcessCounters(7, 0))
    state = step_growth(life.state, signals_at(life.at + 1, {}), unread, Phase.IDLE, FACTS)
    assert (state.growth.kind, state.requests, state.last_bytes) == (GrowthKind.NONE, 1, int(life.own))
    known: dict[str, float | None] = {"growth_to_limit_bytes_per_second": 5 * MB, "seconds_to_limit": 20.0}
    state = step_growth(state, signals_at(life.at + 2, known), unread, Phase.IDLE, FACTS)
    assert state.growth.kind is GrowthKind.UNKNOWN
    other = BackendSample("one", process=ProcessCounters(8, 0, rss_anon_bytes=5))
    state = step_growth(state, signals_at(life.at + 3, {}), other, Phase.IDLE, FACTS)
    assert (state.process, state.base_bytes, state.requests) == ((8, 0), 5, 0)
    assert step_growth(state, signals_at(life.at + 4, {}), BackendSample("one"), Phase.ABSENT, FACTS) == GrowthState()


NUMBER = st.none() | st.floats(-1e12, 1e12)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(list(Phase)),
            st.none() | st.integers(0, 1 << 50),
            NUMBER,
            NUMBER,
            NUMBER,
            NUMBER,
            st.integers(-1, 3),
        ),
        max_size=20,
    )
)
def test_any_life_has_an_answer(
    seconds: list[tuple[Phase, int | None, float | None, float | None, float | None, float | None, int]],
) -> None:
    state = GrowthState()
    for at, (phase, own, grows, others, shared, towards, task) in enumerate(seconds):
        values = {
            "anonymous_growth_bytes_per_second": grows,
            "others_growth_bytes_per_second": others,
            "others_growth_to_limit_bytes_per_second": shared,
            "growth_to_limit_bytes_per_second": towards,
            "seconds_to_limit": None if towards is None else 20.0,
        }
        sample = BackendSample(
            "one",
            process=ProcessCounters(7, 0, rss_anon_bytes=own),
            http=BackendHttp("ok", slots=(Slot(0, processing=True, task_id=task),)),
        )
        state = step_growth(state, signals_at(float(at), values), sample, phase, FACTS)
        assert bool(state.growth.text) is (state.growth.kind is not GrowthKind.NONE)
        assert state.requests <= at + 1


@pytest.mark.parametrize("kind", list(GrowthKind))
def test_kinds_are_words_for_json(kind: GrowthKind) -> None:
    assert kind.value == kind.name.lower()


def test_what_took_the_cache_is_said_for_half_a_minute() -> None:
    life = Life()
    life.go(70, Phase.IDLE)
    assert squeezed_by(life.state) is None
    life.go(3, Phase.DECODE, others_growth_bytes_per_second=100 * MB)
    life.go(20, Phase.DECODE)
    assert "another process in the backend's cgroup" in (squeezed_by(life.state) or "")
    life.go(20, Phase.DECODE)
    assert squeezed_by(life.state) is None
