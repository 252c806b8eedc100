"""The limits that a backend's warming is watched under are those of the kernel: its own, one above, the machine's."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from fakes.cold_file import make_cold_file
from fakes.own_cgroup import add_process, own_cgroup

from moetuned.decide.memory_headroom import memory_under_each
from moetuned.decide.warm_room import free_under, taken
from moetuned.host.cgroup import memory_cgroup
from moetuned.host.clock import RealClock
from moetuned.host.sampler import Sampler
from moetuned.parse.assemble import assemble
from moetuned.schema.sample import BackendIdentity
from moetuned.schema.snapshot import MemoryView

MIB = 1 << 20


def limits_of(pid: int) -> tuple[MemoryView, ...]:
    found = memory_cgroup(pid)
    identity = BackendIdentity(
        "glm",
        pid,
        cgroup_directory=found.counted_in,
        cgroup_version=found.version,
        limited_above=found.limited_above,
    )
    sampler = Sampler(RealClock())
    try:
        sample = assemble(sampler.read([identity], {}), [identity])
    finally:
        sampler.close()
    return memory_under_each(sample.machine, sample.backends[0])


@pytest.mark.kernel
def test_a_neighbour_that_fills_a_limit_above_is_seen(tmp_path: Path) -> None:
    other = make_cold_file(tmp_path / "other", 150 * MIB)
    with own_cgroup(200 * MIB) as above:
        inner, beside = f"{above}/llm", f"{above}/backup"
        backend = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
        try:
            if os.path.exists(f"{above}/cgroup.subtree_control"):
                Path(above, "cgroup.subtree_control").write_text("+memory")
            for directory in (inner, beside):
                os.mkdir(directory)
            add_process(inner, backend.pid)
            before = limits_of(backend.pid)
            assert above in free_under(before)
            assert taken(before, frozenset({above})) is None
            subprocess.run(
                ["sh", "-c", f'echo $$ > "{beside}/cgroup.procs"; exec cat "{other}" > /dev/null'], check=True
            )
            now = taken(limits_of(backend.pid), frozenset({above}))
            assert now is None, "50 MiB are left"
            more = make_cold_file(tmp_path / "more", 60 * MIB)
            subprocess.run(
                ["sh", "-c", f'echo $$ > "{beside}/cgroup.procs"; exec cat "{more}" > /dev/null'], check=True
            )
            assert above in (taken(limits_of(backend.pid), frozenset({above})) or "")
        finally:
            backend.communicate()
            for directory in (inner, beside):
                os.rmdir(directory)
