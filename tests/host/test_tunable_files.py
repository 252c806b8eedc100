from __future__ import annotations

import errno

import pytest
from fakes.fake_kernel import FakeKernel, Text, add_cgroups, usual_kernel

from moetuned.host import service_manager, tunable_files
from moetuned.host.fs import RealFS
from moetuned.host.tunable_files import (
    describe_error,
    read_for_plan,
    read_tunable,
    unset_of_stopped_unit,
    write_tunable,
)
from moetuned.schema.tunable import Cell, Codec, Place, Reading

VM = "/proc/sys/vm/"
DIRTY = Place(VM + "dirty_ratio", Codec.INTEGER, VM + "dirty_bytes")
THP = Place("/sys/kernel/mm/transparent_hugepage/enabled", Codec.CHOICE)


def test_the_one_of_a_pair_that_is_in_force_is_read() -> None:
    kernel = usual_kernel()
    assert read_tunable(kernel, DIRTY).cell == Cell(DIRTY.path, "20")
    kernel.foreign_write(VM + "dirty_bytes", "65536")
    assert read_tunable(kernel, DIRTY).cell == Cell(VM + "dirty_bytes", "65536")
    del kernel.files[VM + "dirty_bytes"]
    assert read_tunable(kernel, DIRTY).cell == Cell(DIRTY.path, "0")


def test_choices_and_read_only_mounts() -> None:
    kernel = usual_kernel()
    reading = read_tunable(kernel, THP)
    assert (reading.cell, reading.choices) == (Cell(THP.path, "madvise"), ("always", "madvise", "never"))
    assert not read_for_plan(kernel, THP).read_only
    kernel.mount_read_only("/sys")
    assert read_for_plan(kernel, THP) == Reading(reading.cell, reading.choices, read_only=True)
    assert not read_for_plan(kernel, DIRTY).read_only
    del kernel.files["/proc/self/mounts"]
    assert not read_for_plan(kernel, THP).read_only


def test_what_cannot_be_read_says_why() -> None:
    kernel = usual_kernel()
    kernel.fail("read", DIRTY.path, errno.EIO)
    assert "Input/output error" in (read_tunable(kernel, DIRTY).unknown or "")
    kernel.files[DIRTY.path] = Text("what?\n")
    assert "no whole number" in (read_tunable(kernel, DIRTY).unknown or "")
    del kernel.files[DIRTY.path]
    assert read_tunable(kernel, DIRTY).unknown == f"this kernel has no {DIRTY.path}"


def test_zero_replaces_the_twin() -> None:
    kernel = usual_kernel()
    kernel.foreign_write(VM + "dirty_bytes", "65536")
    kernel.foreign_write(VM + "dirty_ratio", "0")
    assert kernel.foreign_read(VM + "dirty_bytes") == "65536\n", "as the kernel does"
    write_tunable(kernel, DIRTY, Cell(DIRTY.path, "0"))
    assert (kernel.foreign_read(VM + "dirty_bytes"), kernel.foreign_read(DIRTY.path)) == ("0\n", "0\n")


LOW = Place("/sys/fs/cgroup/ai/memory.low", Codec.LIMIT)
WEIGHT = Place("/sys/fs/cgroup/ai/io.weight", Codec.WEIGHT)


@pytest.fixture
def cgroups() -> FakeKernel:
    kernel = usual_kernel()
    add_cgroups(kernel, "ai", "system.slice/llama.service")
    return kernel


def test_limits_and_weights_of_a_cgroup(cgroups: FakeKernel) -> None:
    assert read_tunable(cgroups, LOW).cell == Cell(LOW.path, "0")
    write_tunable(cgroups, LOW, Cell(LOW.path, "max"))
    assert read_tunable(cgroups, LOW).cell == Cell(LOW.path, "max")
    write_tunable(cgroups, LOW, Cell(LOW.path, "4097"))
    assert read_tunable(cgroups, LOW).cell == Cell(LOW.path, "4096"), "in whole pages"
    assert read_tunable(cgroups, WEIGHT).cell == Cell(WEIGHT.path, "100")
    write_tunable(cgroups, WEIGHT, Cell(WEIGHT.path, "300"))
    assert read_tunable(cgroups, WEIGHT).cell == Cell(WEIGHT.path, "300")
    assert cgroups.writes()[-1] == (WEIGHT.path, "default 300")


def test_a_weight_of_a_single_device_is_left_alone(cgroups: FakeKernel) -> None:
    cgroups.files[WEIGHT.path].devices = "8:16 50\n"  # type: ignore[union-attr]
    write_tunable(cgroups, WEIGHT, Cell(WEIGHT.path, "300"))
    assert cgroups.foreign_read(WEIGHT.path) == "default 300\n8:16 50\n"


UNIT = Place(
    "/sys/fs/cgroup/system.slice/llama.service/memory.low", Codec.LIMIT, None, False, "llama.service", "MemoryLow"
)


def test_a_unit_is_changed_by_systemd_and_read_from_the_kernel(
    cgroups: FakeKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    cgroups.files["/proc/sys/kernel/random/boot_id"] = Text(RealFS().read_text("/proc/sys/kernel/random/boot_id"))

    def set_property(unit: str, name: str, value: str) -> None:
        assert (unit, name) == ("llama.service", "MemoryLow")
        cgroups.foreign_write(UNIT.path, value)

    monkeypatch.setattr(service_manager, "set_property", set_property)
    write_tunable(cgroups, UNIT, Cell(UNIT.path, "8192"))
    assert cgroups.writes() == [], "nothing past systemd, which would undo it"
    assert read_tunable(cgroups, UNIT).cell == Cell(UNIT.path, "8192")


def test_systemd_writes_a_moment_after_it_has_answered(cgroups: FakeKernel, monkeypatch: pytest.MonkeyPatch) -> None:
    cgroups.files["/proc/sys/kernel/random/boot_id"] = Text(RealFS().read_text("/proc/sys/kernel/random/boot_id"))
    waited: list[float] = []

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 3:
            cgroups.foreign_write(UNIT.path, "8192")

    monkeypatch.setattr(service_manager, "set_property", lambda *_: None)
    monkeypatch.setattr(tunable_files.time, "sleep", sleep)
    write_tunable(cgroups, UNIT, Cell(UNIT.path, "8192"))
    assert (len(waited), read_tunable(cgroups, UNIT).cell) == (3, Cell(UNIT.path, "8192"))
    write_tunable(cgroups, UNIT, Cell(UNIT.path, "8192"))
    assert len(waited) == 3, "nothing to wait for"
    write_tunable(cgroups, UNIT, Cell(UNIT.path, "4096"))
    assert sum(waited) < 3, "and not for ever"


def test_a_unit_of_another_machines_files_is_not_changed(cgroups: FakeKernel, monkeypatch: pytest.MonkeyPatch) -> None:
    def set_property(*_: str) -> None:
        raise AssertionError

    monkeypatch.setattr(service_manager, "set_property", set_property)
    with pytest.raises(OSError, match=r"llama\.service is a unit of another machine"):
        write_tunable(cgroups, UNIT, Cell(UNIT.path, "8192"))
    del cgroups.files["/proc/sys/kernel/random/boot_id"]
    with pytest.raises(OSError, match="another machine"):
        write_tunable(cgroups, UNIT, Cell(UNIT.path, "8192"))


@pytest.mark.parametrize(("stands", "told"), [("8192", ["4096"]), ("4096", []), ("1048576", []), (None, [])])
def test_what_systemd_keeps_for_a_stopped_unit_is_taken_back_where_it_is_ours(
    cgroups: FakeKernel, monkeypatch: pytest.MonkeyPatch, stands: str | None, told: list[str]
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(service_manager, "property_of", lambda *_: stands)
    monkeypatch.setattr(service_manager, "set_property", lambda _unit, _name, value: asked.append(value))
    unset_of_stopped_unit(cgroups, UNIT, {"8192", "16384"}, "4096")
    assert asked == [], "a unit of another machine"
    cgroups.files["/proc/sys/kernel/random/boot_id"] = Text(RealFS().read_text("/proc/sys/kernel/random/boot_id"))
    unset_of_stopped_unit(cgroups, UNIT, {"8192", "16384"}, "4096")
    unset_of_stopped_unit(cgroups, LOW, {"8192"}, "4096")
    assert asked == told


def test_a_unit_that_is_none_is_a_refusal(cgroups: FakeKernel) -> None:
    cgroups.files["/proc/sys/kernel/random/boot_id"] = Text(RealFS().read_text("/proc/sys/kernel/random/boot_id"))
    place = Place(UNIT.path, Codec.LIMIT, None, False, "--help.service", "MemoryLow")
    with pytest.raises(OSError, match="is no unit") as caught:
        write_tunable(cgroups, place, Cell(UNIT.path, "8192"))
    assert caught.value.errno == errno.EINVAL


@pytest.mark.parametrize(
    ("number", "says"),
    [
        (errno.ENOENT, "has no"),
        (errno.EROFS, "read-only"),
        (errno.EPERM, "not root"),
        (errno.EACCES, "not root"),
        (errno.EINVAL, "does not take this value"),
        (errno.EIO, "Input/output error"),
    ],
)
def test_errors_name_the_path(number: int, says: str) -> None:
    kernel = usual_kernel()
    kernel.fail("write", THP.path, number)
    with pytest.raises(OSError) as caught:  # noqa: PT011
        write_tunable(kernel, THP, Cell(THP.path, "never"))
    text = describe_error(caught.value, THP.path)
    assert says in text
    assert THP.path in text
