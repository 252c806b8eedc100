"""What is worked out of a sample once."""

from __future__ import annotations

import pytest

from moetuned.decide.moment import moment_of
from moetuned.schema.sample import (
    BackendHttp,
    BackendSample,
    CgroupMemory,
    MachineSample,
    MemInfo,
    Residency,
    Slot,
)

MACHINE = MachineSample(meminfo=MemInfo(cached_bytes=900, shared_bytes=100))


def test_page_cache_is_its_cgroups_else_the_machines_without_shared_memory() -> None:
    assert moment_of(0.0, MACHINE, BackendSample("a")).cache_bytes == 800
    own = BackendSample("a", cgroup=CgroupMemory(2, file_bytes=50, shared_bytes=60))
    assert moment_of(0.0, MACHINE, own).cache_bytes == 0
    assert moment_of(0.0, MACHINE, BackendSample("a", cgroup=CgroupMemory(2))).cache_bytes is None
    assert moment_of(0.0, MachineSample(), BackendSample("a")).cache_bytes is None


@pytest.mark.parametrize(
    ("http", "busy"),
    [
        (None, None),
        (BackendHttp(), None),
        (BackendHttp(requests_processing=2.0), 2),
        (BackendHttp(slots=()), 0),
        (BackendHttp(slots=(Slot(0, True), Slot(1, False), Slot(2, True))), 2),
        (BackendHttp(slots=(Slot(0, True), Slot(1)), requests_processing=3.0), 3),
        (BackendHttp(slots=(Slot(0, True), Slot(1))), None),
    ],
)
def test_busy_slots(http: BackendHttp | None, busy: int | None) -> None:
    assert moment_of(0.0, MACHINE, BackendSample("a", http=http)).busy_slots == busy


def test_residency() -> None:
    assert moment_of(0.0, MACHINE, BackendSample("a")).resident_bytes is None
    assert moment_of(0.0, MACHINE, BackendSample("a", residency=Residency(7))).resident_bytes == 7


def test_loading_is_what_it_says_itself() -> None:
    assert moment_of(0.0, MACHINE, BackendSample("a", http=BackendHttp(health="loading"))).loads
    assert not moment_of(0.0, MACHINE, BackendSample("a", http=BackendHttp(health="unreachable"))).loads
    assert not moment_of(0.0, MACHINE, BackendSample("a")).loads
