from __future__ import annotations

import pytest
from signal_cases import facts_of, sample_of

from moetuned.decide.counters import resident_bytes
from moetuned.decide.resident import MAX_AGE_SECONDS, resident_share, scanned_share
from moetuned.decide.window import window_of


@pytest.mark.parametrize(
    ("scan", "cache", "share"),
    [(150, 300, 0.5), (300, 150, 0.5), (None, 30, 0.1), (900, None, 1.0), (None, None, None)],
)
def test_the_smaller_of_scan_and_cgroup_cache(scan: int | None, cache: int | None, share: float | None) -> None:
    moment = {
        "t": 0,
        "residency": None if scan is None else {"resident_bytes": scan},
        "cgroup": None if cache is None else {"file_bytes": cache},
    }
    window = window_of([sample_of(moment)], "one", facts_of({"model_bytes": 300}))
    assert window is not None
    assert resident_share(window) == (None if share is None else pytest.approx(share))


def test_the_machines_cache_bounds_nothing_and_an_unknown_size_has_no_share() -> None:
    sample = sample_of({"t": 0, "residency": {"resident_bytes": 150}, "machine": {"meminfo": {"cached_bytes": 1}}})
    for size, share in ((300, 0.5), (None, None)):
        window = window_of([sample], "one", facts_of({"model_bytes": size}))
        assert window is not None
        assert resident_share(window) == share


@pytest.mark.parametrize(("size", "share"), [(300, 0.5), (100, 1.0), (0, None), (None, None)])
def test_a_scan_gives_a_share_while_it_is_young(size: int | None, share: float | None) -> None:
    scan = sample_of({"t": 0, "residency": {"resident_bytes": 150}})
    for ticks, wanted in ((0, share), (10, share), (11, None)):
        window = window_of([scan, *(sample_of({"t": 3.0 * tick}) for tick in range(1, ticks + 1))], "one", facts_of({}))
        assert window is not None
        assert len(window.moments) == ticks + 1
        assert scanned_share(window, size, resident_bytes) == wanted, f"{3 * ticks} s of {MAX_AGE_SECONDS:g} s"
