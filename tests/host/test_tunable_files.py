from __future__ import annotations

import errno

import pytest
from fakes.fake_kernel import Text, usual_kernel

from moetuned.host.tunable_files import describe_error, read_for_plan, read_tunable, write_tunable
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
