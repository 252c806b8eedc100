"""The machine's kernel settings for one test: nobody else changes them meanwhile, and they are put back."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator

import pytest

from moetuned import tunables
from moetuned.host.durable_file import lock_directory
from moetuned.host.fs import RealFS
from moetuned.host.tunable_files import read_tunable, write_tunable
from moetuned.parse.tunable_text import parse_value
from moetuned.schema.tunable import Codec
from moetuned.state.undo_journal import DEFAULT_DIRECTORY

MIN_FREE = "/proc/sys/vm/min_free_kbytes"
THP = "/sys/kernel/mm/transparent_hugepage/enabled"


@contextlib.contextmanager
def own_settings() -> Iterator[RealFS]:
    """Whatever values the machine has are what they are afterwards, also when the test fails; skips where it cannot be."""
    if os.geteuid() != 0:
        pytest.skip("needs root: it writes kernel settings")
    fs = RealFS()
    specs = [tunables.load(name).spec for name in tunables.module_names()]
    places = [spec.place for spec in specs if not spec.per_device and fs.exists(spec.place.path)]
    with open("/proc/sys/vm/vfs_cache_pressure", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two runs of the tests take turns
        _skip_beside_a_daemon()
        readings = [(place, read_tunable(fs, place)) for place in places]
        min_free_before = fs.read_text(MIN_FREE)
        if any(reading.cell is None or reading.read_only for _, reading in readings):
            pytest.skip("kernel settings are read-only here (a container)")
        try:
            yield fs
        finally:
            for place, reading in readings:
                if reading.cell is not None and read_tunable(fs, place).cell != reading.cell:
                    write_tunable(fs, place, reading.cell)
            _let_the_kernel_choose(fs, min_free_before)


def _let_the_kernel_choose(fs: RealFS, wanted: str) -> None:
    """The kernel remembers that vm.min_free_kbytes was written and then no longer lowers it. What is written here is so low that its
    own value wins again, which any write to `enabled` makes it compute; where that is not what stood there, the value is written.
    """
    if fs.exists(THP):
        fs.write_text(MIN_FREE, "1024")
        fs.write_text(THP, parse_value(Codec.CHOICE, fs.read_text(THP)))
    if fs.read_text(MIN_FREE) != wanted:
        fs.write_text(MIN_FREE, wanted.strip())


def _skip_beside_a_daemon() -> None:
    """A moetuned that runs on this machine may change the same settings at any moment, and would see drift."""
    with contextlib.suppress(FileNotFoundError):
        try:
            os.close(lock_directory(DEFAULT_DIRECTORY))
        except BlockingIOError:
            pytest.skip("a moetuned runs on this machine and looks after its settings")
