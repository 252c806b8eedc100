"""Config files from disk: which are read, and which are refused because somebody else could have written them.

The config names programs that the daemon starts as root, so whoever may write it is root. `parse.config_text` does
the rest; this module only reads.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence

import msgspec

from moetuned.parse.config_problem import ConfigError, Problem, key_path
from moetuned.parse.config_text import FurtherCheck, load_with_warnings
from moetuned.parse.config_yaml import LIMIT_CHARACTERS
from moetuned.schema.alert import ExecAlert
from moetuned.schema.config import Config
from moetuned.schema.supervise import SuperviseCommand, SuperviseProcess

DEFAULT_PATH = "/etc/moetuned/moetuned.yaml"
_LIMIT_FILES = 64
_Path = tuple[str | int, ...]
_WRITABLE_BY_OTHERS = stat.S_IWOTH | stat.S_IWGRP


class LoadedConfig(msgspec.Struct, frozen=True):
    """A config, the files it was read from in order (none: defaults), and what looks like a mistake in it."""

    config: Config
    files: tuple[str, ...] = ()
    warnings: tuple[Problem, ...] = ()


def load_files(
    path: str | None = None,
    known_sysctls: Collection[str] | None = None,
    default_path: str = DEFAULT_PATH,
    known_kinds: Collection[str] | None = None,
    further: Sequence[FurtherCheck] = (),
    instead: Mapping[str, str | None] | None = None,
) -> LoadedConfig:
    """The config of `path`, or of the default file and the *.yaml files of conf.d beside it.

    A missing default file is an empty config; a missing `path` is an error. Raises ConfigError, which also holds what
    kept a file from being read: OSError does not get out. `known_sysctls`, `known_kinds` (of backends) and `further` are what else is
    checked. `instead`: what files of conf.d are taken to say, or would say if they were there; None: left out.
    """
    texts = instead or {}
    path = default_path if path is None else os.path.abspath(path)
    is_default = path == default_path
    problems: list[Problem] = []
    notes: list[Problem] = []
    sources: list[tuple[str, str]] = []
    names = [path] if not is_default or os.path.lexists(path) else []
    if is_default:
        overlays = _overlays(os.path.join(os.path.dirname(path), "conf.d"), problems, notes)
        names += sorted({*overlays, *(each for each, text in texts.items() if text is not None)})
    for name in names:
        try:
            text = texts[name] if name in texts else _read(name)
        except ConfigError as error:
            problems += error.problems
            continue
        if text is not None:
            sources.append((name, text))
    try:
        config, warnings = load_with_warnings(sources, known_sysctls, known_kinds, further)
    except ConfigError as error:
        raise ConfigError([*problems, *error.problems], (*notes, *error.warnings)) from None
    if problems:
        raise ConfigError(problems)
    return LoadedConfig(config, tuple(name for name, _ in sources), (*notes, *warnings))


def missing_places(config: Config) -> Iterator[Problem]:
    """Warnings for files and directories that the config names and that are not there; for `further` of `load_files`.

    Only warnings: they may be made, or mounted, before they are needed. What may not be looked at counts as there.
    """
    for index, alert in enumerate(config.alerts):
        if not isinstance(alert, ExecAlert):
            continue
        hint = "no hook is run; make it, or take the alert out"
        yield from _missing(("alerts", index, "directory"), alert.directory, alert.directory, hint)
    for index, backend in enumerate(config.backends):
        path: _Path = ("backends", index)
        if backend.model is not None:
            hint = "the backend cannot load it; correct the path"
            yield from _missing((*path, "model"), backend.model, backend.model, hint, what="file")
        process = backend.supervise
        if isinstance(process, SuperviseCommand):
            hint = "the backend cannot be restarted by it; make it or correct the path"
            script = process.restart[0]
            yield from _missing((*path, "supervise", "restart"), script, script, hint, what="file")
        if not isinstance(process, SuperviseProcess):
            continue
        path = (*path, "supervise")
        hint = "the backend cannot be started by it; correct the path"
        yield from _missing((*path, "command", 0), process.command[0], process.command[0], hint, what="file")
        if process.directory is not None:
            hint = "the backend cannot be started in it; make it or correct the path"
            yield from _missing((*path, "directory"), process.directory, process.directory, hint)
        if process.log is not None:
            hint = "the log cannot be written; make it or correct the path"
            yield from _missing((*path, "log"), process.log, os.path.dirname(process.log), hint)
        if process.cgroup is not None:
            hint = "the backend cannot be started in it, and moetuned makes no cgroups; make it or correct the path"
            yield from _missing((*path, "cgroup"), process.cgroup, process.cgroup, hint, what="cgroup")


def _missing(path: _Path, value: str, place: str, hint: str, *, what: str = "directory") -> Iterator[Problem]:
    if not place.startswith("/"):  # an error of its own
        return
    try:
        is_directory = stat.S_ISDIR(os.stat(place).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        named = f"there is no such {what}" if value == place else f"there is no {what} {place}"
    except (OSError, ValueError):
        return
    else:
        if is_directory is (what != "file"):
            return
        named = f"{'this' if value == place else place} is {'a' if is_directory else 'no'} directory"
    yield Problem("", key_path(path), repr(value), f"{named}: {hint}", severity="warning")


def _overlays(directory: str, problems: list[Problem], notes: list[Problem]) -> list[str]:
    """The *.yaml files of conf.d in the order of their names; a missing directory has none."""
    try:
        names = sorted(name for name in os.listdir(directory) if not name.startswith("."))
    except FileNotFoundError:
        return []
    except OSError as error:
        problems.append(_unreadable(directory, error))
        return []
    for name in names:
        if name.endswith((".yml", ".conf", ".json")):
            hint = "is not read: only names that end in .yaml are; rename it"
            notes.append(Problem(os.path.join(directory, name), "", None, hint, severity="warning"))
    chosen = [os.path.join(directory, name) for name in names if name.endswith(".yaml")]
    if len(chosen) > _LIMIT_FILES:
        problems.append(Problem(directory, "", None, f"has {len(chosen)} files; at most {_LIMIT_FILES} are read"))
        return []
    return chosen


def _read(path: str) -> str:
    """Text of one file. Raises ConfigError when it cannot or must not be used."""
    try:
        # Non-blocking: a FIFO in place of the file must not make the daemon wait for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise ConfigError([Problem(path, "", None, "is no regular file")])
            if os.geteuid() == 0 and (problems := [*unsafe(path, status)]):
                raise ConfigError(problems)
            data = _bytes(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise ConfigError([_unreadable(path, error)]) from None
    if len(data) > LIMIT_CHARACTERS:
        raise ConfigError([Problem(path, "", None, f"larger than {LIMIT_CHARACTERS >> 20} MiB; this is no config")])
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError([Problem(path, "", None, "is not UTF-8 text; save it as UTF-8", line)]) from None


def _bytes(descriptor: int) -> bytes:
    """All of a file, but never much more than the limit."""
    data = b""
    while len(data) <= LIMIT_CHARACTERS and (piece := os.read(descriptor, LIMIT_CHARACTERS + 1)):
        data += piece
    return data


def _unreadable(path: str, error: OSError) -> Problem:
    hint = f"cannot be read: {error.strerror or error}"
    if isinstance(error, FileNotFoundError):
        hint = "there is no such file; moetunectl config sample prints one to begin with"
    return Problem(path, "", None, hint)


def unsafe(path: str, status: os.stat_result) -> Iterator[Problem]:
    """Why root must not trust the file: it, or a directory on the way to it, may be written by somebody else.

    A directory with the sticky bit, such as /tmp, is fine: in it nobody can replace a file of root.
    """
    yield from _unsafe(path, status, sticky_is_fine=False)
    real = os.path.realpath(path)
    directories: list[str] = []
    for name in (os.path.abspath(path), real):
        while (name := os.path.dirname(name)) not in directories:
            directories.append(name)
    for directory in directories:
        try:
            yield from _unsafe(directory, os.stat(directory), sticky_is_fine=True)
        except OSError as error:
            yield _unreadable(directory, error)


def _unsafe(path: str, status: os.stat_result, *, sticky_is_fine: bool) -> Iterator[Problem]:
    if status.st_uid != 0:
        yield Problem(path, "", None, f"belongs to user {status.st_uid}, not to root: run chown root {path}")
        return
    writable = status.st_mode & _WRITABLE_BY_OTHERS
    if status.st_gid == 0:
        writable &= ~stat.S_IWGRP
    if writable and not (sticky_is_fine and status.st_mode & stat.S_ISVTX):
        yield Problem(path, "", None, f"may be written by others than root: run chmod go-w {path}")
