"""Reads the volatile files of one tick. Descriptors stay open and are read again with pread, which costs a third of opening.

A process's files are opened below a descriptor of its /proc directory. That descriptor belongs to the process and not to the
number: when the process ends its files give ESRCH, also when the pid is in use again, and are unknown from then on.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from collections.abc import Mapping, Sequence

from moetuned.host.clock import Clock
from moetuned.parse.assemble import backend_paths, machine_paths
from moetuned.parse.process import parse_process
from moetuned.schema.sample import BackendIdentity, RawBackend, RawSample

log = logging.getLogger(__name__)

_CHUNK_BYTES = 64 << 10
_WHOLE_BYTES = 2048
"""A read that gives less was the last. The kernel fills a page with lines and hands it out (seq_file.rst), so only what is left
behind the last page, or all of a shorter text, is below half a page: no line of these files is that long.
"""
_LIMIT_BYTES = 1 << 20
_ENDED = (errno.ESRCH, errno.ENOENT)
"""What the files of a process that has ended give: ESRCH when read, either of them when opened, by the kernel's version."""
_OPEN = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK


class _Process:
    """The /proc directory of one process, opened once; after its end it stays ended."""

    def __init__(self, directory: str, start_ticks: int | None) -> None:
        self._directory = directory
        self._start_ticks = start_ticks
        self._descriptor: int | None = None
        self._ended = False

    def open(self, name: str) -> int:
        """Descriptor of a file of the process. Raises OSError; ESRCH once it has ended."""
        if self._ended:
            raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
        if self._descriptor is None:
            self._open_directory()
        return os.open(name, _OPEN, dir_fd=self._descriptor)

    def end(self) -> None:
        """The process has ended, or nobody asks for it any more."""
        self._ended = True
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            _close(descriptor)

    def _open_directory(self) -> None:
        """Kept only once it is known whose it is: what fails before that is tried again."""
        try:
            opened = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            self.end()
        else:
            try:
                self._ended = self._start_ticks not in (None, _start_ticks_in(opened))
                if not self._ended:
                    self._descriptor, opened = opened, -1
            finally:
                if opened >= 0:
                    _close(opened)
        if self._ended:
            raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))


def _start_ticks_in(directory: int) -> int | None:
    descriptor = os.open("stat", _OPEN, dir_fd=directory)
    try:
        counters = parse_process(0, os.read(descriptor, 4096).decode("utf-8", "replace"), None, None)
    finally:
        _close(descriptor)
    return None if counters is None else counters.start_ticks


def _close(descriptor: int) -> None:
    """It is closed whatever close(2) says; a file of lxcfs says ENOTCONN once lxcfs has ended."""
    with contextlib.suppress(OSError):
        os.close(descriptor)


class _File:
    """One file: its descriptor while it can be read."""

    __slots__ = ("_descriptor", "_location", "_process", "failures", "path", "trouble", "undecided")

    def __init__(self, path: str, location: str, process: _Process | None) -> None:
        self.path = path
        self._location = location
        self._process = process
        self._descriptor: int | None = None
        self.failures = 0
        self.trouble: str | None = None
        self.undecided = False
        """It is of a process, could not be read the last time, and not because that has ended."""

    def read(self) -> str | None:
        """Its text now; None when it cannot be read (`trouble` says why)."""
        reopened = self._descriptor is None
        while True:
            try:
                text = self._read_open()
            except OSError as error:
                self.close()
                if not reopened and self._process is None:
                    reopened = True  # It vanished; perhaps it is there again.
                    continue
                self._failed(error)
                return None
            self.undecided = False
            if self.trouble is not None:
                log.info("%s can be read again", self.path)
                self.trouble = None
            return text

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            _close(descriptor)

    def _read_open(self) -> str:
        descriptor = self._descriptor
        if descriptor is None:
            descriptor = self._descriptor = (
                os.open(self._location, _OPEN) if self._process is None else self._process.open(self._location)
            )
        data = more = os.pread(descriptor, _CHUNK_BYTES, 0)
        while len(more) >= _WHOLE_BYTES and len(data) < _LIMIT_BYTES:
            more = os.pread(descriptor, _CHUNK_BYTES, len(data))
            data += more
        return data.decode("utf-8", "replace")

    def _failed(self, error: OSError) -> None:
        self.failures += 1
        trouble = error.strerror or str(error)
        self.undecided = self._process is not None and error.errno not in _ENDED
        if trouble != self.trouble:
            # That a process has ended is told where it matters, not once a file.
            ended = self._process is not None and error.errno in _ENDED
            log.log(logging.DEBUG if ended else logging.INFO, "cannot read %s: %s", self.path, trouble)
            self.trouble = trouble


class Sampler:
    """Reads one moment of the machine and of each backend. Belongs to one thread."""

    def __init__(self, clock: Clock, root: str = "/") -> None:
        """`root`: where the files are, another directory for fixtures."""
        self._clock = clock
        self._root = root.rstrip("/")
        self._identities: tuple[BackendIdentity, ...] | None = None
        self._processes: dict[tuple[int, int | None], _Process] = {}
        self._files: dict[tuple[str, _Process | None], _File] = {}

    def read(self, identities: Sequence[BackendIdentity], backends: Mapping[str, RawBackend]) -> RawSample:
        """All files now; `backends` (HTTP and residency, read elsewhere) is handed on as it is.

        What belongs to a backend that is not among `identities` any more is closed. A file of a process that cannot be read although
        the process has not ended (out of descriptors, or of memory) is left out: None there means that it has ended.
        """
        wanted = tuple(identities)
        if wanted != self._identities:
            self._watch(wanted)
        at, wall = self._clock.monotonic(), self._clock.wall()
        files: dict[str, str | None] = {}
        for file in self._files.values():
            text = file.read()
            if text is not None or not file.undecided:
                files[file.path] = text
        return RawSample(t=at, wall=wall, files=files, backends=dict(backends))

    @property
    def errors(self) -> dict[str, int]:
        """Failed reads by path, for the files that are watched now."""
        return {file.path: file.failures for file in self._files.values() if file.failures}

    @property
    def troubles(self) -> dict[str, str]:
        """Why a file could not be read the last time, by path."""
        return {file.path: file.trouble for file in self._files.values() if file.trouble is not None}

    def close(self) -> None:
        """Close everything; `read` opens again what it needs."""
        for file in self._files.values():
            file.close()
        for process in self._processes.values():
            process.end()
        self._files, self._processes, self._identities = {}, {}, None

    def _watch(self, identities: tuple[BackendIdentity, ...]) -> None:
        """Keep what is still wanted, close the rest."""
        processes: dict[tuple[int, int | None], _Process] = {}
        files: dict[tuple[str, _Process | None], _File] = {}
        for path in machine_paths():
            self._keep(files, path, None)
        for identity in identities:
            process, prefix = None, ""
            if identity.pid is not None:
                prefix = f"/proc/{identity.pid}/"
                key = (identity.pid, identity.start_ticks)
                process = processes.get(key) or self._processes.get(key)
                processes[key] = process = process or _Process(self._root + prefix, identity.start_ticks)
            for path in backend_paths(identity):
                self._keep(files, path, process if prefix and path.startswith(prefix) else None)
        for file in self._files.values():
            if file not in files.values():
                file.close()
        for old in self._processes.values():
            if old not in processes.values():
                old.end()
        self._files, self._processes, self._identities = files, processes, identities

    def _keep(self, files: dict[tuple[str, _Process | None], _File], path: str, process: _Process | None) -> None:
        key = (path, process)
        if key not in files:
            location = self._root + path if process is None else path.rpartition("/")[2]
            files[key] = self._files.get(key) or _File(path, location, process)
