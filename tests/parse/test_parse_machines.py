"""Kernels from 5.15 to 6.18, cgroup v1, v2 and none, PSI and none, containers, WSL2, small boards: what a tick makes of each."""

from __future__ import annotations

import errno
from pathlib import Path

import machine_cases
import msgspec
import pytest
from machine_cases import FILES, MachineCase, identity, moments

from moetuned.decide import detector, signals
from moetuned.decide.detector import DetectorSettings
from moetuned.decide.facts import BackendFacts
from moetuned.decide.memory_headroom import memory_view
from moetuned.host.cgroup import memory_cgroup
from moetuned.host.fs import READ_LIMIT_BYTES, RealFS
from moetuned.parse.assemble import assemble
from moetuned.schema.sample import (
    BackendSample,
    CgroupAbove,
    CgroupMemory,
    DiskCounters,
    MachineSample,
    MemInfo,
    Pressure,
    ProcessCounters,
    Sample,
    VmStat,
)

CASES = {path.stem: machine_cases.load(path) for path in FILES}
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
KERNELS = ("5.15.", "5.19.", "6.1.", "6.5.", "6.6.", "6.8.", "6.12.", "6.18")
KINDS = ("raspberry_pi", "wsl2", "lxc", "docker", "gvisor", "hybrid", "no_psi", "no_cgroup", "64k")


class Tree(RealFS):
    """The files of a case and no others."""

    def __init__(self, files: dict[str, str]) -> None:
        super().__init__()
        self._files = files

    def read_text(self, path: str, limit_bytes: int = READ_LIMIT_BYTES) -> str:
        if path not in self._files:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        return self._files[path][:limit_bytes]

    def exists(self, path: str) -> bool:
        return path in self._files


def test_every_kernel_and_kind_of_machine_has_a_case() -> None:
    told = [case.kernel for case in CASES.values()]
    assert [kernel for kernel in KERNELS if not any(one.startswith(kernel) for one in told)] == []
    assert [kind for kind in KINDS if not any(kind in name for name in CASES)] == []
    assert {case.place.version for case in CASES.values()} == {None, 1, 2}
    assert {case.page_bytes for case in CASES.values()} == {4096, 16384, 65536}


@every_case
def test_a_case_says_where_its_texts_are_from(case: MachineCase) -> None:
    assert case.source.startswith(("Recorded", "Composed"))
    assert set(case.later) <= set(case.files)


@every_case
def test_the_cgroup_is_found(case: MachineCase) -> None:
    found, place = memory_cgroup(case.pid, Tree(case.files)), case.place
    assert (found.directory, found.version, found.seen_root) == (place.directory, place.version, place.seen_root)
    assert found.limited_above == place.limited_above
    assert (found.unknown is None) == (place.unknown is None)
    assert place.unknown is None or place.unknown in (found.unknown or "")


def expected_sample(case: MachineCase) -> Sample:
    """The sample whose fields are those of the case and None otherwise."""
    expect, own = case.expect, identity(case)
    return Sample(
        at_seconds=1000.0,
        wall_seconds=1.7e9,
        machine=MachineSample(
            meminfo=msgspec.convert(expect.meminfo, MemInfo | None),
            vmstat=msgspec.convert(expect.vmstat, VmStat | None),
            pressure_memory=msgspec.convert(expect.pressure_memory, Pressure | None),
            pressure_io=msgspec.convert(expect.pressure_io, Pressure | None),
            disks=msgspec.convert(expect.disks, dict[str, DiskCounters]),
        ),
        backends=(
            BackendSample(
                name="backend",
                process=msgspec.convert(expect.process, ProcessCounters | None),
                cgroup=msgspec.convert(expect.cgroup, CgroupMemory | None),
                cgroup_directory=own.cgroup_directory,
                above=tuple(
                    CgroupAbove(directory, msgspec.convert(memory, CgroupMemory))
                    for directory, memory in expect.above.items()
                ),
            ),
        ),
    )


@every_case
def test_every_field_is_what_the_kernel_says_or_unknown(case: MachineCase) -> None:
    found = msgspec.to_builtins(assemble(moments(case)[0], [identity(case)]))
    assert found == msgspec.to_builtins(expected_sample(case))


@every_case
def test_signals_verdict_and_events(case: MachineCase) -> None:
    facts = BackendFacts(model_bytes=64 << 30, disks=case.disks, page_bytes=case.page_bytes)
    samples = [assemble(raw, [identity(case)]) for raw in moments(case)]
    state, settings, events = detector.initial("backend"), DetectorSettings(), []
    for count in (1, 2):
        derived = signals.derive(samples[:count], "backend", facts)
        step = detector.step(state, derived, samples[count - 1].backends[0], facts, settings)
        state = step.state
        events += [begun.name for begun in step.begun]
    assert events == [], "two moments are enough for no event"
    assert {name: derived.get(name) for name in case.signals} == pytest.approx(case.signals)
    assert {name: derived.get(name) for name in case.unknown} == dict.fromkeys(case.unknown)
    assert step.verdict.memory.value == case.memory
    view = memory_view(samples[1].machine, samples[1].backends[0])
    assert case.limit_of is None or case.limit_of in (view.limit_of or view.unknown or "")


def test_what_a_case_leaves_out_is_unknown_to_the_test(tmp_path: Path) -> None:
    """A case that names too little must fail: an empty expectation is not fulfilled by a full sample."""
    case = CASES["kernel_6_1_v2"]
    less = msgspec.structs.replace(case, expect=msgspec.structs.replace(case.expect, vmstat={}))
    assert expected_sample(less) != assemble(moments(case)[0], [identity(case)])
