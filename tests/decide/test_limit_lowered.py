"""A limit that somebody lowers is named, whosever it is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moetuned.decide.limit_lowered import LimitState, lowered_text, step_limits
from moetuned.schema.sample import BackendSample, CgroupAbove, CgroupMemory

MIB = 1 << 20
OWN_DIRECTORY = "/sys/fs/cgroup/a.slice/llama.service"


def own(
    limit: int | None, used: int | None = None, high: int | None = None, directory: str = OWN_DIRECTORY
) -> BackendSample:
    memory = CgroupMemory(2, current_bytes=used, limit_bytes=limit, high_bytes=high)
    return BackendSample("one", cgroup=memory, cgroup_directory=directory)


def after(*samples: BackendSample, dt: float = 1.0) -> str | None:
    state = LimitState()
    for sample in samples:
        state = step_limits(state, sample, dt)
    return lowered_text(state)


def test_its_own_limit() -> None:
    assert after(own(60 * MIB, 58 * MIB), own(25 * MIB, 25 * MIB)) == "its limit was lowered from 60.0 MiB to 25.0 MiB"
    assert after(own(None, 58 * MIB), own(25 * MIB, 25 * MIB)) == "its limit was lowered to 25.0 MiB"
    assert after(own(60 * MIB), own(25 * MIB)) is not None, "how much is in use is unknown"


def test_memory_high() -> None:
    samples = own(60 * MIB, 50 * MIB), own(60 * MIB, 40 * MIB, high=30 * MIB)
    assert after(*samples) == "its memory.high was lowered from 60.0 MiB to 30.0 MiB"


def test_in_steps_it_is_lowered_from_the_first() -> None:
    steps = [own(limit * MIB, limit * MIB) for limit in (60, 50, 40, 30)]
    assert after(*steps) == "its limit was lowered from 60.0 MiB to 30.0 MiB"


def test_one_above() -> None:
    def above(limit: int) -> BackendSample:
        memory = CgroupMemory(2, current_bytes=limit, limit_bytes=limit)
        return BackendSample("one", cgroup=CgroupMemory(2), above=(CgroupAbove("/sys/fs/cgroup/a.slice", memory),))

    text = after(above(60 * MIB), above(30 * MIB))
    assert text is not None
    assert "a.slice, which others share, was lowered from 60.0 MiB to 30.0 MiB" in text


def test_no_news() -> None:
    assert after(own(60 * MIB, 50 * MIB)) is None
    assert after(own(60 * MIB, 5 * MIB), own(25 * MIB, 5 * MIB)) is None, "far above what is in use"
    assert after(own(60 * MIB, 50 * MIB), own(80 * MIB, 50 * MIB)) is None
    assert after(own(60 * MIB, 50 * MIB), own(30 * MIB, 30 * MIB), own(60 * MIB, 30 * MIB)) is None, "raised again"
    assert after(own(60 * MIB, 50 * MIB), own(30 * MIB, 30 * MIB, directory="/sys/fs/cgroup/b")) is None, "it moved"
    assert after(own(60 * MIB, 50 * MIB), own(30 * MIB, 30 * MIB), *[own(30 * MIB, 30 * MIB)] * 31) is None, "long ago"


@given(st.lists(st.tuples(st.one_of(st.none(), st.integers(0, 9)), st.one_of(st.none(), st.integers(0, 9)))))
def test_it_is_named_only_where_it_is_below_what_it_was(ticks: list[tuple[int | None, int | None]]) -> None:
    state = LimitState()
    for limit, used in ticks:
        state = step_limits(state, own(limit, used), 1.0)
        lowered = state.lowered
        if lowered is not None:
            assert lowered.from_bytes is None or lowered.to_bytes < lowered.from_bytes
            assert lowered.to_bytes == limit
