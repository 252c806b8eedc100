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
from moetuned.state.undo_journal import DEFAULT_DIRECTORY


@contextlib.contextmanager
def own_settings() -> Iterator[RealFS]:
    """Whatever values the machine has are what they are afterwards, also when the test fails; skips where it cannot be."""
    if os.geteuid() != 0:
        pytest.skip("needs root: it writes kernel settings")
    fs = RealFS()
    specs = [tunables.load(name).spec for name in tunables.module_names()]
    places = [spec.place for spec in specs if not spec.per_device]
    with open("/proc/sys/vm/vfs_cache_pressure", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two runs of the tests take turns
        _skip_beside_a_daemon()
        readings = [(place, read_tunable(fs, place)) for place in places]
        if any(reading.cell is None or reading.read_only for _, reading in readings):
            pytest.skip("kernel settings are read-only here (a container)")
        try:
            yield fs
        finally:
            for place, reading in readings:
                if reading.cell is not None and read_tunable(fs, place).cell != reading.cell:
                    write_tunable(fs, place, reading.cell)


def _skip_beside_a_daemon() -> None:
    """A moetuned that runs on this machine may change the same settings at any moment, and would see drift."""
    with contextlib.suppress(FileNotFoundError):
        try:
            os.close(lock_directory(DEFAULT_DIRECTORY))
        except BlockingIOError:
            pytest.skip("a moetuned runs on this machine and looks after its settings")
