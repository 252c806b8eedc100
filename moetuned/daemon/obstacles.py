"""What would let a backend not start: a model that is not there, a port that another process listens on. Looked at off the loop."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from moetuned import backends
from moetuned.decide.exit_cause import Cause, Obstacle
from moetuned.gguf.split_files import part_names
from moetuned.host.listening import is_taken, who_listens
from moetuned.host.process_looks import Who
from moetuned.schema.backend_description import BackendDescription
from moetuned.schema.supervise import SuperviseProcess

_SHOWN_LENGTH = 200


def find_obstacle(
    supervise: SuperviseProcess, argv: Sequence[str], environ: Mapping[str, str], known: Obstacle | None = None
) -> Obstacle | None:
    """The first there is; None also where its command line does not tell which model or port it wants.

    `known`: what there was the last time; who has the port is not looked for again while it is taken.
    """
    missing = model_obstacle(supervise, argv, environ)
    if missing is not None:
        return missing
    said = _described(supervise, argv, environ)
    if said is None:
        return None
    host, port = _address(said.url)
    if port is None or not is_taken(host, port):
        return None
    if known is not None and known.cause is Cause.PORT_TAKEN:
        return known
    return Obstacle(Cause.PORT_TAKEN, f"port {port} is taken by {_told(who_listens(port))}")


def model_obstacle(supervise: SuperviseProcess, argv: Sequence[str], environ: Mapping[str, str]) -> Obstacle | None:
    """That its model cannot be read; None also where its command line does not tell which it wants. May block."""
    said = _described(supervise, argv, environ)
    if said is None or said.model_path is None:
        return None
    problem = model_problem(os.path.join(supervise.directory or "/", said.model_path))
    return None if problem is None else Obstacle(Cause.MODEL_MISSING, problem)


def _described(
    supervise: SuperviseProcess, argv: Sequence[str], environ: Mapping[str, str]
) -> BackendDescription | None:
    kind = backends.find(argv)
    return None if kind is None else kind.describe(argv, {**environ, **supervise.environment})


def model_problem(path: str) -> str | None:
    """Why a model cannot be read, one sentence with the path; None when it can, as far as its first byte tells. May block."""
    directory, name = os.path.split(path)
    for part in part_names(name):
        file = os.path.join(directory, part)
        shown = f"its model {_shown(file)}"
        try:
            # O_NONBLOCK: opening a FIFO must not wait for a writer.
            descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        except FileNotFoundError:
            return f"{shown} is not there"
        except OSError as error:
            return f"{shown} cannot be opened: {error.strerror}"
        try:
            os.pread(descriptor, 1, 0)
        except OSError as error:
            return f"{shown} cannot be read: {error.strerror}"
        finally:
            os.close(descriptor)
    return None


def _shown(text: str) -> str:
    printable = "".join(letter if letter.isprintable() else "?" for letter in text)
    return printable if len(printable) <= _SHOWN_LENGTH else f"…{printable[-_SHOWN_LENGTH:]}"


def _address(url: str | None) -> tuple[str, int | None]:
    if url is None:
        return "", None
    parts = urlsplit(url)
    host = parts.hostname or ""
    return "127.0.0.1" if host == "localhost" else host, parts.port


def _told(who: Who | None) -> str:
    if who is None:
        return "another process"
    unit = "" if who.unit is None else f", {who.unit}"
    return f"{who.name} (pid {who.pid}{unit})"
