from __future__ import annotations

import pytest
from signal_cases import facts_of, sample_of

from moetuned.decide import counters
from moetuned.decide.window import Moment, window_of


def moment(**given: object) -> Moment:
    window = window_of([sample_of({"t": 0, **given})], "one", facts_of({}))
    assert window is not None
    return window.now


@pytest.mark.parametrize(
    "read",
    [
        counters.process_read_bytes,
        counters.major_faults,
        counters.own_refault_pages,
        counters.machine_refault_pages,
        counters.anonymous_bytes,
        counters.cache_bytes,
        counters.resident_bytes,
        counters.busy_slots,
        counters.prompt_tokens_processed,
        counters.decode_calls,
    ],
)
def test_nothing_known_is_none(read: object) -> None:
    assert callable(read)
    assert read(moment()) is None
    assert read(moment(process=None)) is None


def test_a_cgroup_hides_the_machines_cache() -> None:
    machine = {"meminfo": {"cached_bytes": 100, "shared_bytes": 30}}
    assert counters.cache_bytes(moment(machine=machine)) == 70
    assert counters.cache_bytes(moment(machine=machine, cgroup={"file_bytes": 9})) == 9
    assert counters.cache_bytes(moment(machine=machine, cgroup={})) is None


def test_disks_add_up_or_are_unknown() -> None:
    both = moment(machine={"disks": {"a": {"read_bytes": 1}, "b": {"read_bytes": 2}}})
    assert counters.device_read_bytes(both, ["a", "b"]) == 3
    assert counters.device_read_bytes(both, ["a", "c"]) is None
    assert counters.device_read_bytes(both, []) is None


def test_slots_go_before_metrics() -> None:
    http = {"requests_processing": 4}
    assert counters.busy_slots(moment(slots=[{"processing": True}], http=http)) == 1
    assert counters.busy_slots(moment(slots=[{"processing": None}], http=http)) == 4
    assert counters.busy_slots(moment(http={"health": "ok"})) is None


def test_anonymous_memory_in_swap_counts() -> None:
    assert counters.anonymous_bytes(moment(process={"rss_anon_bytes": 1, "swap_bytes": 2})) == 3
    assert counters.anonymous_bytes(moment(process={"rss_anon_bytes": 1})) == 1
