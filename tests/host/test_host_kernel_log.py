"""The kernel log as it is read."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from moetuned.host import kernel_log
from moetuned.host.kernel_log import oom_kills_since, read_records

TICKS = os.sysconf("SC_CLK_TCK")


def test_only_kills_since_the_process_began(monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.clock_gettime(time.CLOCK_MONOTONIC)
    suspended = time.clock_gettime(time.CLOCK_BOOTTIME) - now
    records = [f"3,{n},{int(at * 1e6)},-;Killed process {n} (x) a\n" for n, at in ((1, 10.0), (2, 90.0), (3, 150.0))]
    monkeypatch.setattr(kernel_log, "own_pids", lambda: True)
    monkeypatch.setattr(kernel_log, "read_records", lambda _path: records)
    kills = oom_kills_since(int((100.0 + suspended) * TICKS), TICKS)
    assert kills is not None
    assert [kill.pid for kill in kills] == [3]


def test_what_cannot_be_read_or_is_another_namespace_s_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_log, "own_pids", lambda: True)
    assert oom_kills_since(1, TICKS, str(tmp_path / "none")) is None
    empty = tmp_path / "empty"
    empty.write_text("")
    assert oom_kills_since(1, TICKS, str(empty)) == ()
    monkeypatch.setattr(kernel_log, "own_pids", lambda: False)
    assert oom_kills_since(1, TICKS, str(empty)) is None


@pytest.mark.kernel
def test_the_real_one_has_records() -> None:
    records = read_records()
    if records is None:
        pytest.skip("the kernel log may not be read here")
    assert all(";" in record for record in records)
