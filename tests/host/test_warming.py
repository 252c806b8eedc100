"""The warming process, followed from the daemon's side."""

from __future__ import annotations

import os
import select
from pathlib import Path

import pytest
from fakes.cold_file import make_cold_file
from fakes.own_cgroup import memory_stat, own_cgroup

from moetuned.host.page_cache import PAGE_BYTES, ResidencyScan
from moetuned.host.warming import Warming, WarmProgress, warm_in_cgroup
from moetuned.schema.model import ByteRange

MIB = 1 << 20


@pytest.fixture
def model(tmp_path: Path) -> str:
    return make_cold_file(tmp_path / "model.gguf", 32 * MIB)


def finish(warming: Warming) -> WarmProgress:
    while warming.progress.state == "running":
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
    assert scan.result.cached == 17 * MIB // PAGE_BYTES


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


def test_a_model_that_is_gone_fails_with_its_name(tmp_path: Path) -> None:
    progress = finish(warm_in_cgroup([str(tmp_path / "none.gguf")], [ByteRange(0, 0, 1)]))
    assert progress.state == "failed"
    assert "none.gguf" in (progress.error or "")


def test_a_plan_longer_than_a_pipe_arrives_whole(model: str) -> None:
    ranges = [ByteRange(0, number * 1024, 512) for number in range(20_000)]
    progress = finish(warm_in_cgroup([model], ranges))
    assert (progress.state, progress.done_bytes) == ("done", 20_000 * 512)


def multi_gen_lru() -> bool:
    """Whether pages age in generations (Documentation/admin-guide/mm/multigen_lru.rst: bit 0 is the main switch)."""
    switch = Path("/sys/kernel/mm/lru_gen/enabled")
    return switch.exists() and int(switch.read_text(), 16) & 1 == 1


@pytest.mark.kernel
def test_pages_are_charged_to_the_backends_cgroup_and_stay_active(model: str) -> None:
    with own_cgroup() as directory:
        progress = finish(warm_in_cgroup([model], [], [ByteRange(0, 0, 32 * MIB)], cgroup_directory=directory))
        assert progress.state == "done"
        active, inactive = memory_stat(directory, "active_file"), memory_stat(directory, "inactive_file")
        assert active + inactive > 30 * MIB
        if not multi_gen_lru():
            # The multi-gen LRU leaves what is read through a descriptor in its oldest generation, however often.
            assert active > 30 * MIB
        with open(model, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def test_a_cgroup_that_is_gone_fails(model: str) -> None:
    progress = finish(
        warm_in_cgroup([model], [ByteRange(0, 0, 1)], cgroup_directory="/sys/fs/cgroup/moetuned-test-none")
    )
    assert progress.state == "failed"
    assert "cgroup" in (progress.error or "")
