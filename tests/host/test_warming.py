"""The warming process, followed from the daemon's side."""

from __future__ import annotations

import os
import select
import shlex
import signal
import subprocess
from pathlib import Path

import pytest
from fakes.cold_file import make_cold_file
from fakes.own_cgroup import memory_stat, own_cgroup

from moetuned.host.block_devices import under_file
from moetuned.host.cgroup_process import CgroupProcess
from moetuned.host.page_cache import PAGE_BYTES, ResidencyScan
from moetuned.host.page_touch import multi_gen_lru
from moetuned.host.processes import identify
from moetuned.host.warming import Warming, WarmProgress, warm_in_cgroup
from moetuned.schema.model import ByteRange

MIB = 1 << 20


@pytest.fixture
def model(tmp_path: Path) -> str:
    return make_cold_file(tmp_path / "model.gguf", 32 * MIB)


def finish(warming: Warming) -> WarmProgress:
    while warming.progress.going_on:
        assert select.select([warming], [], [], 30)[0]
        warming.advance()
    return warming.progress


def test_it_warms_all_and_says_so(model: str) -> None:
    before = len(os.listdir("/proc/self/fd"))
    progress = finish(warm_in_cgroup([model], [ByteRange(0, 0, 16 * MIB)], [ByteRange(0, 20 * MIB, MIB)]))
    assert (progress.state, progress.done_bytes, progress.goal_bytes) == ("done", 17 * MIB, 17 * MIB)
    assert progress.rss_bytes is not None
    assert progress.rss_bytes < 16 * MIB
    assert len(os.listdir("/proc/self/fd")) == before
    scan = ResidencyScan([model])
    while not scan.advance():
        pass
    assert scan.result is not None
    beyond = scan.result.cached - 17 * MIB // PAGE_BYTES
    # A fault reads the window around it and starts on the next. A machine that pages idle memory out takes some at any time.
    assert (
        -17 * MIB // PAGE_BYTES // 20
        <= beyond
        <= 2 * (under_file(model).read_ahead_kb or 0) * 1024 // PAGE_BYTES * multi_gen_lru()
    )


def test_it_stops_when_asked(model: str) -> None:
    warming = warm_in_cgroup([model], [ByteRange(0, 0, 32 * MIB)], rate_bytes_per_second=MIB)
    warming.stop()
    progress = finish(warming)
    assert progress.state == "stopped"
    assert progress.done_bytes < 32 * MIB


def test_it_can_be_killed(model: str) -> None:
    warming = warm_in_cgroup([model], [ByteRange(0, 0, 32 * MIB)], rate_bytes_per_second=MIB)
    warming.kill()
    assert warming.progress.state == "stopped"
    assert not os.path.exists(f"/proc/{warming.pid}")
    assert warming.advance().state == "stopped"


def test_one_that_somebody_kills_says_so(model: str) -> None:
    warming = warm_in_cgroup([model], [ByteRange(0, 0, 32 * MIB)], rate_bytes_per_second=MIB)
    os.kill(warming.pid, signal.SIGKILL)
    progress = finish(warming)
    assert (progress.state, progress.error) == (
        "failed",
        "the warming process is gone: the kernel or somebody killed it",
    )


def test_a_model_that_is_gone_fails_with_its_name(tmp_path: Path) -> None:
    progress = finish(warm_in_cgroup([str(tmp_path / "none.gguf")], [ByteRange(0, 0, 1)]))
    assert progress.state == "failed"
    assert "none.gguf" in (progress.error or "")


def test_a_plan_longer_than_a_pipe_arrives_whole(model: str) -> None:
    ranges = [ByteRange(0, number * 1024, 512) for number in range(20_000)]
    progress = finish(warm_in_cgroup([model], ranges))
    assert (progress.state, progress.done_bytes) == ("done", 20_000 * 512)


def said(*lines: str) -> Warming:
    """A warming process that says these lines."""
    script = "read plan; printf '%s\\n' " + " ".join(f"'{line}'" for line in lines)
    child = subprocess.Popen(["sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    return Warming(CgroupProcess(child, b"\n"), 100)


def test_rate_and_time_left_while_it_runs_only() -> None:
    progress = finish(
        said(
            '{"done_bytes": 5, "state": "running", "rate_bytes_per_second": 50.0, "eta_seconds": 1.9}',
            '{"done_bytes": 6, "finished": false, "detail": "the backend has ended", "outside": "it may not join"}',
        )
    )
    assert progress == WarmProgress("stopped", 6, 100, detail="the backend has ended", outside="it may not join")


def test_a_line_that_is_none_is_passed_over() -> None:
    assert finish(said("what?", '{"done_bytes": 100, "finished": true}')).state == "done"


@pytest.mark.kernel
def test_it_pauses_while_the_backend_reads_and_ends_with_it(model: str) -> None:
    read_on = f"while dd if={shlex.quote(model)} of=/dev/null iflag=direct bs=1M 2>/dev/null; do :; done"
    # dd runs as a child, and what an ended child has read counts as its parent's.
    backend = subprocess.Popen(["sh", "-c", read_on], start_new_session=True)
    try:
        identity = identify(backend.pid)
        assert identity is not None
        warming = warm_in_cgroup([model], [ByteRange(0, 0, 32 * MIB)], rate_bytes_per_second=MIB, backend=identity)
        while warming.progress.state == "running":
            assert select.select([warming], [], [], 30)[0]
            warming.advance()
        assert warming.progress.state == "paused"
        assert warming.progress.detail == "the backend itself reads from the disk"
    finally:
        os.killpg(backend.pid, signal.SIGKILL)
        backend.wait()
    progress = finish(warming)
    assert (progress.state, progress.detail) == ("stopped", "the backend has ended")


@pytest.mark.kernel
def test_what_must_stay_comes_in_through_a_mapping_where_pages_age_in_generations(model: str) -> None:
    """In the youngest generation: on the active list, as memory.stat counts (mm/vmstat, lru_gen_is_active)."""
    with own_cgroup() as directory:
        finish(warm_in_cgroup([model], [ByteRange(0, 16 * MIB, 16 * MIB)], cgroup_directory=directory))
        before = memory_stat(directory, "active_file")
        finish(warm_in_cgroup([model], [], [ByteRange(0, 0, 8 * MIB)], cgroup_directory=directory))
        assert memory_stat(directory, "active_file") - before > 7 * MIB
        with open(model, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@pytest.mark.kernel
def test_pages_are_charged_to_the_backends_cgroup_and_stay_active(model: str) -> None:
    with own_cgroup() as directory:
        progress = finish(warm_in_cgroup([model], [], [ByteRange(0, 0, 32 * MIB)], cgroup_directory=directory))
        assert progress.state == "done"
        active, inactive = memory_stat(directory, "active_file"), memory_stat(directory, "inactive_file")
        assert active + inactive > 30 * MIB
        assert active > 30 * MIB
        with open(model, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def test_a_cgroup_that_is_gone_fails(model: str) -> None:
    progress = finish(
        warm_in_cgroup([model], [ByteRange(0, 0, 1)], cgroup_directory="/sys/fs/cgroup/moetuned-test-none")
    )
    assert progress.state == "failed"
    assert "cgroup" in (progress.error or "")
