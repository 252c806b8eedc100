from __future__ import annotations

import os

import pytest
from fakes.own_cgroup import own_cgroup

from moetuned.host.fs import RealFS
from moetuned.host.machine import MachineError, own_cpus, read_machine

GIB = 1 << 30
MEMINFO = "MemTotal: 33554432 kB\nMemAvailable: 29360128 kB\nSwapTotal: 4194304 kB\n"
V2_MOUNT = "30 24 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
STAT = "anon 1073741824\nactive_file 1000\ninactive_file 1000\nslab_reclaimable 0\n"


def tree(tmp_path, files: dict[str, str]) -> RealFS:
    base = {"/proc/meminfo": MEMINFO, "/proc/self/mountinfo": "", "/proc/7/cgroup": "0::/\n"}
    for path, text in (base | files).items():
        target = tmp_path / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    return RealFS(str(tmp_path))


def test_without_a_cgroup_limit_ram_is_the_limit(tmp_path):
    found = read_machine(7, frozenset({0}), tree(tmp_path, {"/proc/self/mountinfo": V2_MOUNT}))
    assert (found.limit.low_bytes, found.limit.source) == (32 * GIB, "RAM (MemTotal)")
    assert found.system.low_bytes == 4 * GIB
    assert found.swap.low_bytes == 4 * GIB


@pytest.mark.parametrize("own", ["max", str(20 * GIB)])
def test_the_tightest_limit_above_counts(tmp_path, own: str):
    files = {
        "/proc/self/mountinfo": V2_MOUNT,
        "/proc/7/cgroup": "0::/outer/inner\n",
        "/sys/fs/cgroup/outer/inner/memory.current": "5\n",
        "/sys/fs/cgroup/outer/inner/memory.max": own + "\n",
        "/sys/fs/cgroup/outer/memory.current": str(3 * GIB) + "\n",
        "/sys/fs/cgroup/outer/memory.max": str(8 * GIB) + "\n",
        "/sys/fs/cgroup/outer/memory.stat": STAT,
    }
    found = read_machine(7, frozenset({0}), tree(tmp_path, files))
    assert found.limit.low_bytes == 8 * GIB
    assert found.limit.source == "limit of the cgroup /sys/fs/cgroup/outer"
    assert found.system.low_bytes == 3 * GIB - 2000


def test_a_container_that_sees_itself_as_the_root_has_its_limit(tmp_path):
    files = {
        "/proc/self/mountinfo": V2_MOUNT,
        "/sys/fs/cgroup/memory.current": "4096\n",
        "/sys/fs/cgroup/memory.max": str(2 * GIB) + "\n",
    }
    assert read_machine(7, frozenset({0}), tree(tmp_path, files)).limit.low_bytes == 2 * GIB


def test_a_limit_above_what_is_free_counts_what_others_took(tmp_path):
    files = {
        "/proc/self/mountinfo": V2_MOUNT,
        "/sys/fs/cgroup/memory.current": "0\n",
        "/sys/fs/cgroup/memory.max": str(30 * GIB) + "\n",
    }
    found = read_machine(7, frozenset({0}), tree(tmp_path, files))
    assert found.limit.low_bytes - found.system.low_bytes == 28 * GIB


def test_threads_of_a_core_count_once(tmp_path):
    files = {
        f"/sys/devices/system/cpu/cpu{cpu}/topology/core_cpus_list": f"{cpu % 4},{cpu % 4 + 4}\n" for cpu in range(8)
    }
    fs = tree(tmp_path, files)
    assert read_machine(7, frozenset(range(8)), fs).physical_cores == 4
    assert read_machine(7, frozenset({0, 1, 4}), fs).physical_cores == 2


def test_only_the_fast_kind_of_core(tmp_path):
    files = {f"/sys/devices/system/cpu/cpu{cpu}/topology/core_cpus_list": f"{cpu}\n" for cpu in range(6)}
    found = read_machine(7, frozenset(range(6)), tree(tmp_path, files | {"/sys/devices/cpu_core/cpus": "0-3\n"}))
    assert (found.physical_cores, found.cores_source) == (4, "physical performance cores")


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"/sys/fs/cgroup/cpu.max": "150000 100000\n"}, 2),
        ({"/sys/fs/cgroup/cpu.max": "max 100000\n"}, 4),
        ({"/sys/fs/cgroup/cpu/cpu.cfs_quota_us": "50000\n", "/sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n"}, 1),
        ({"/sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n", "/sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n"}, 4),
    ],
)
def test_no_more_threads_than_the_quota(tmp_path, files: dict[str, str], cores: int):
    assert read_machine(7, frozenset(range(4)), tree(tmp_path, files)).physical_cores == cores


def test_unknown_memory_is_an_error(tmp_path):
    with pytest.raises(MachineError, match="--ram"):
        read_machine(7, frozenset({0}), tree(tmp_path, {"/proc/meminfo": "nothing\n"}))


def test_this_machine():
    found = read_machine(os.getpid(), own_cpus())
    assert found.limit.low_bytes > 0
    assert 1 <= (found.physical_cores or 0) <= len(own_cpus())
    assert found.cpu_features


@pytest.mark.kernel
def test_a_real_limit_is_seen():
    limit = 300 << 20
    with own_cgroup(limit) as group:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                with open(f"{group}/cgroup.procs", "w", encoding="ascii") as file:
                    file.write("0")
                found = read_machine(os.getpid(), own_cpus())
                code = 0 if found.limit.low_bytes == limit and group in found.limit.source else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_the_limit_of_a_cgroup_that_a_process_would_be_started_in(tmp_path):
    files = {
        "/proc/self/mountinfo": V2_MOUNT,
        "/sys/fs/cgroup/one/memory.current": "5\n",
        "/sys/fs/cgroup/one/memory.max": str(2 * GIB) + "\n",
        "/sys/fs/cgroup/memory/two/memory.usage_in_bytes": "5\n",
        "/sys/fs/cgroup/memory/two/memory.limit_in_bytes": str(3 * GIB) + "\n",
    }
    fs = tree(tmp_path, files)
    assert read_machine(7, frozenset({0}), fs, cgroup="/sys/fs/cgroup/one").limit.low_bytes == 2 * GIB
    assert read_machine(7, frozenset({0}), fs, cgroup="/sys/fs/cgroup/memory/two").limit.low_bytes == 3 * GIB
    assert read_machine(7, frozenset({0}), fs, cgroup="/sys/fs/cgroup/none").limit.low_bytes == 32 * GIB


def test_what_others_keep_is_not_free_whatever_memavailable_says(tmp_path):
    files = {
        "/proc/self/mountinfo": V2_MOUNT,
        "/proc/7/cgroup": "0::/own.slice\n",
        "/sys/fs/cgroup/own.slice/memory.current": "4096\n",
        "/sys/fs/cgroup/other.slice/memory.current": str(9 * GIB) + "\n",
        "/sys/fs/cgroup/other.slice/memory.stat": f"active_file {7 * GIB}\ninactive_file 0\n",
        "/sys/fs/cgroup/other.slice/memory.min": str(5 * GIB) + "\n",
        "/sys/fs/cgroup/other.slice/cgroup.procs": "",
    }
    found = read_machine(7, frozenset({0}), tree(tmp_path, files))
    assert (found.system.low_bytes, found.system.source) == (
        7 * GIB,
        "MemTotal - MemAvailable now, and what memory.min keeps",
    )
    own = read_machine(8, frozenset({0}), tree(tmp_path, files), cgroup="/sys/fs/cgroup/other.slice")
    assert own.system.low_bytes == 4 * GIB, "it makes way for what is in its own cgroup"


def test_what_others_keep_below_a_limit_is_no_room_below_it(tmp_path):
    files = {
        "/proc/self/mountinfo": V2_MOUNT,
        "/sys/fs/cgroup/ai.slice/memory.max": str(16 * GIB) + "\n",
        "/sys/fs/cgroup/ai.slice/memory.current": str(9 * GIB) + "\n",
        "/sys/fs/cgroup/ai.slice/memory.stat": f"active_file {8 * GIB}\ninactive_file 0\n",
        "/sys/fs/cgroup/ai.slice/own.service/memory.current": "4096\n",
        "/sys/fs/cgroup/ai.slice/other.service/memory.current": str(9 * GIB) + "\n",
        "/sys/fs/cgroup/ai.slice/other.service/memory.stat": f"active_file {8 * GIB}\ninactive_file 0\n",
        "/sys/fs/cgroup/ai.slice/other.service/memory.min": str(6 * GIB) + "\n",
    }
    fs = tree(tmp_path, files)
    found = read_machine(8, frozenset({0}), fs, cgroup="/sys/fs/cgroup/ai.slice/own.service")
    assert (found.limit.low_bytes, found.system.low_bytes) == (16 * GIB, 6 * GIB), "1 GiB and 5 of page cache"
    found = read_machine(8, frozenset({0}), fs, cgroup="/sys/fs/cgroup/ai.slice/other.service")
    assert found.system.low_bytes == GIB
