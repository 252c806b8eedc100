"""The kernel log as it is read."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.host import kernel_log
from moetuned.host.bounded_program import Ended
from moetuned.host.kernel_log import oom_kills_since, read_records, records_of

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


@given(st.text(st.sampled_from("a \n,;\x00é")))
def test_no_part_of_a_log_in_one_text_is_lost(text: str) -> None:
    records = records_of(text)
    assert "".join(records) == text
    assert not any(record.startswith(" ") for record in records[1:])


def test_what_this_process_may_not_read_one_outside_does(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[bool] = []

    def run_bounded(command: tuple[str, ...], *_: object, outside: bool, **__: object) -> Ended:
        asked.append(outside)
        return Ended(1, False, subprocess.run(command, capture_output=True, check=False).stdout, False)

    monkeypatch.setattr(kernel_log, "run_bounded", run_bounded)
    monkeypatch.setattr(kernel_log, "can_leave", lambda: True)
    log = tmp_path / "log"
    log.write_text("6,1,2,-;one\n SUBSYSTEM=a\n DEVICE=b\n4,2,3,-;two\n")
    monkeypatch.setattr(kernel_log.os, "open", refused)
    assert read_records(str(log)) == ["6,1,2,-;one\n SUBSYSTEM=a\n DEVICE=b\n", "4,2,3,-;two\n"]
    assert asked == [True]
    monkeypatch.setattr(kernel_log, "can_leave", lambda: False)
    assert read_records(str(log)) is None


def refused(*_: object) -> int:
    raise PermissionError(1, "Operation not permitted")
