"""Which backend `moetunectl record` records: by its name, by its process, or the only one that runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import msgspec

from moetuned import backends
from moetuned.api.errors import DaemonError
from moetuned.host.backend_http import loopback_address
from moetuned.host.block_devices import FileDevices, under_file
from moetuned.host.cgroup import memory_cgroup
from moetuned.host.config_files import load_files
from moetuned.host.kept_cgroups import kept_cgroups
from moetuned.host.model_files import ModelFile, ModelFileError, read_model
from moetuned.host.processes import ProcessIdentity, command_line, identify
from moetuned.host.recording import Subject
from moetuned.host.running_backends import (
    Finder,
    FoundBackend,
    address_of,
    belongs_to,
    describe,
    model_path,
    name_for,
)
from moetuned.parse.config_problem import ConfigError
from moetuned.parse.numbers_http import numbers_of
from moetuned.schema.config import Backend
from moetuned.schema.sample import HttpNumbers
from moetuned.schema.snapshot import Snapshot


class ChoiceError(Exception):
    """No backend to record. The text is a sentence that says what to do; `refused`: it may not be read by this user."""

    def __init__(self, sentence: str, *, refused: bool = False) -> None:
        super().__init__(sentence)
        self.refused = refused


class Choice(msgspec.Struct, frozen=True):
    """What is recorded, and the disks under its model."""

    subject: Subject
    devices: FileDevices


AskDaemon = Callable[[], Snapshot]
"""Gives the running daemon's Snapshot. Raises DaemonError."""


def choose(
    ask_daemon: AskDaemon,
    name: str | None = None,
    pid: int | None = None,
    url: str | None = None,
    model: str | None = None,
) -> Choice:
    """The backend that these options mean; None: as it is found. Raises ChoiceError."""
    if url is not None:
        _check_url(url)
    called, numbers = None, None
    if pid is not None:
        found = _by_pid(pid)
    elif name is not None:
        found, called, configured = _by_name(name, ask_daemon)
        url, model = url or address_of(found.description, configured.url), model or configured.model
        numbers = numbers_of(configured.generic)
    else:
        found = _only_one(Finder(backends.find).find())
    return _subject(found, called or name_for(found, ()), url, model, numbers)


def _check_url(url: str) -> None:
    try:
        loopback_address(url)
    except ValueError as error:
        # Also of urlsplit, whose words name neither the flag nor what to write.
        wanted = "is no HTTP address on this machine (with a port of at most 65535)"
        raise ChoiceError(f"--url {url!r} {wanted}; write e.g. --url http://127.0.0.1:8080") from error


def _by_pid(pid: int) -> FoundBackend:
    identity = identify(pid)
    argv = command_line(pid)
    if identity is None or argv is None:
        raise ChoiceError(f"no process {pid} runs")
    found = describe(identity, argv, backends.find)
    if found is not None:
        return found
    # Whoever names a process knows that it is a backend, also when its command line does not look like one.
    from moetuned.schema.backend_description import BackendDescription

    unknown = BackendDescription(url_unknown="its command line is of no known backend; say --url")
    return FoundBackend(identity, "process", unknown, argv, pid, model_path(pid, None))


def _only_one(found: Sequence[FoundBackend]) -> FoundBackend:
    if not found:
        raise ChoiceError("no backend runs; start it first, or say --pid for one that is called otherwise")
    if len(found) > 1:
        raise ChoiceError(f"several backends run; say which with --pid or --backend: {_listed(found)}")
    return found[0]


def _listed(found: Sequence[FoundBackend]) -> str:
    return ", ".join(f"{name_for(one, ())} (pid {one.identity.pid})" for one in found)


def _by_name(name: str, ask_daemon: AskDaemon) -> tuple[FoundBackend, str, Backend]:
    """A backend that the daemon watches; without a daemon, that the config names or that would be called so."""
    try:
        watched = {view.name: view for view in ask_daemon().backends}
    except DaemonError:
        return _by_configured_name(name)
    view = watched.get(name)
    if view is None:
        raise ChoiceError(f"the daemon watches no backend {name!r}; it watches: {', '.join(watched) or 'none'}")
    if view.pid is None:
        raise ChoiceError(f"{name} does not run now")
    return _by_pid(view.pid), name, Backend(name, url=view.url, model=view.model_path)


def _by_configured_name(name: str) -> tuple[FoundBackend, str, Backend]:
    try:
        entries = {entry.name: entry for entry in load_files().config.backends}
    except ConfigError:
        entries = {}  # it may not be for this user to read
    running = Finder(backends.finder_of(tuple(entries.values()))).find()
    entry = entries.get(name)
    if entry is not None:
        own = next((one for one in running if belongs_to(entry, one)), None)
        if own is None:
            raise ChoiceError(f"{name} of the config does not run now; there run: {_listed(running) or 'none'}")
        return own, name, entry
    own = next((one for one in running if name_for(one, ()) == name), None)
    if own is None:
        raise ChoiceError(f"there is no backend {name!r}; there run: {_listed(running) or 'none'}")
    return own, name, Backend(name)


def _subject(found: FoundBackend, name: str, url: str | None, model: str | None, numbers: HttpNumbers | None) -> Choice:
    pid, said = found.identity.pid, found.description
    _check_readable(found.identity)
    path = model or found.model_path
    read, unknown = _read(path, named=model is not None)
    devices = FileDevices() if path is None else under_file(path)
    cgroup = memory_cgroup(pid)
    limited = (*cgroup.limited_above, *filter(None, (cgroup.directory,)))
    subject = Subject(
        name=name,
        kind=found.kind,
        process=found.identity,
        argv=found.argv,
        description=None if found.kind == "process" else said,
        url=url or said.url,
        url_unknown=None if url or said.url else said.url_unknown,
        may_sleep=found.kind == "process" or said.sleeps_after_seconds is not None,
        model=read,
        model_unknown=unknown,
        cgroup=cgroup,
        disks=devices.names,
        numbers=numbers,
        kept=kept_cgroups(limited=limited),
    )
    return Choice(subject, devices)


def _check_readable(process: ProcessIdentity) -> None:
    """/proc/<pid>/io is for root and the process's owner (proc_pid_io(5))."""
    try:
        with open(f"/proc/{process.pid}/io", encoding="ascii") as file:
            file.read()
    except PermissionError:
        what = f"what process {process.pid} reads is told only to its owner and to root"
        # Root without CAP_SYS_PTRACE, e.g. in a container, or a process that has more capabilities than this one.
        way = "run this with sudo" if os.geteuid() else "this root may not look at it (CAP_SYS_PTRACE)"
        raise ChoiceError(f"{what}; {way}", refused=True) from None
    except OSError as error:
        raise ChoiceError(f"process {process.pid} cannot be looked at: {error.strerror}") from error


def _read(path: str | None, *, named: bool) -> tuple[ModelFile | None, str | None]:
    if path is None:
        return None, "its command line names no model that can be found; say --model"
    try:
        return read_model(path), None
    except ModelFileError as error:
        if named:
            raise ChoiceError(str(error)) from error
        return None, error.sentence
