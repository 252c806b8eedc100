"""Asks a container engine (docker, podman) through its command line, as root and without a shell.

It gets the system's PATH and root's HOME, where it reads its own configuration, and nothing else of the daemon's environment: no other
engine (DOCKER_HOST, DOCKER_CONTEXT, CONTAINER_HOST), no options. So it is the engine of root on this machine; containers of a user's own
engine (rootless) are not reached. Deadlines: a second figure beside each call.
"""

from __future__ import annotations

import pwd
import subprocess
from collections.abc import Callable, Collection, Sequence

import msgspec

from moetuned.host.bounded_program import printable_lines, run_bounded
from moetuned.host.program_search import ENVIRONMENT, find_program
from moetuned.host.service import ServiceError
from moetuned.parse.container_inspect import parse_containers, parse_names
from moetuned.schema.container import ContainerFacts

STOP_SECONDS = 10
"""How long a container has to end by itself before the engine kills it."""
_LOOK_SECONDS = 20.0
_STOP_SECONDS = STOP_SECONDS + 20.0
_CHANGE_SECONDS = 60.0
_CREATE_SECONDS = 120.0
_OUTPUT_LIMIT_BYTES = 1 << 20
_SAID_CHARACTERS = 300
_CLIENTS = frozenset({"docker"})
"""What only speaks to a daemon of its own; any other makes namespaces and mounts itself, which moetuned's unit may not."""
_PACKAGES = {"docker": "docker", "podman": "podman"}


class Said(msgspec.Struct, frozen=True):
    """What the command line answered: exit code, standard output, standard error."""

    code: int
    output: bytes
    errors: bytes


Ask = Callable[[Sequence[str], float], Said]
"""Gives the command line these arguments; returns within about so many seconds. Raises ServiceError."""


def command_line(engine: str) -> Ask:
    """The command line of the engine `docker` or `podman` in the system's directories. Raises ServiceError where there is none."""
    if engine not in _PACKAGES:
        raise ValueError(f"{engine!r} is no container engine that moetuned knows")
    program = find_program(engine)
    if program is None:
        raise ServiceError(f"there is no program {engine} in the system's directories; install {_PACKAGES[engine]}")
    return asking((program,))


def asking(command: tuple[str, ...]) -> Ask:
    """As `command_line`, for a program with options of its own."""
    environment = {**ENVIRONMENT, "HOME": pwd.getpwuid(0).pw_dir}
    name = command[0].rpartition("/")[2]

    def ask(arguments: Sequence[str], seconds: float) -> Said:
        try:
            ended = run_bounded(
                (*command, *arguments),
                environment,
                seconds,
                limit_bytes=_OUTPUT_LIMIT_BYTES,
                errors_apart=True,
                outside=name not in _CLIENTS,
            )
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            raise ServiceError(f"{name} could not be run: {getattr(error, 'strerror', None) or error}") from error
        if ended.timed_out:
            raise ServiceError(f"{name} {arguments[0]} did not end within {seconds:.0f} s")
        if ended.exit_code is None:
            raise ServiceError(f"{name} {arguments[0]} was ended by a signal")
        if ended.cut:
            raise ServiceError(f"{name} {arguments[0]} printed more than {_OUTPUT_LIMIT_BYTES >> 20} MiB")
        return Said(ended.exit_code, ended.output, ended.errors)

    return ask


class Engine:
    """One engine. Everything raises ServiceError with what it said."""

    def __init__(self, name: str, ask: Ask | None = None) -> None:
        """`ask`: how to reach its command line; None: it is looked for at each call, since it may be installed later."""
        self.name = name
        self._given = ask

    def look(self, container: str) -> ContainerFacts | None:
        """The container of that name; None: there is none."""
        said = self._ask(("inspect", "--type", "container", container), _LOOK_SECONDS)
        if said.code != 0:
            # That there is none, or that the engine does not answer: it says so in words that change.
            return next(iter(self.named((container,))), None)
        return next((one for one in self._parsed(said) if one.name == container), None)

    def named(self, names: Collection[str]) -> tuple[ContainerFacts, ...]:
        """Those containers that there are, running or not."""
        shortest = min(names, key=len)
        listed = self._done(
            ("ps", "--all", "--no-trunc", "--filter", f"name={shortest}", "--format", "{{.ID}} {{.Names}}"),
            _LOOK_SECONDS,
        )
        ids = parse_names(listed.output.decode("utf-8", "replace"))
        wanted = [ids[name] for name in names if name in ids]
        if not wanted:
            return ()
        said = self._done(("inspect", "--type", "container", *wanted), _LOOK_SECONDS)
        return tuple(one for one in self._parsed(said) if one.name in names)

    def ids(self) -> dict[str, str]:
        """Ids by name of all containers that run."""
        listed = self._done(("ps", "--no-trunc", "--format", "{{.ID}} {{.Names}}"), _LOOK_SECONDS)
        return parse_names(listed.output.decode("utf-8", "replace"))

    def create(self, name: str, labels: Sequence[str], words: Sequence[str]) -> None:
        """Make a container without starting it, of an image that is here already."""
        tags = [part for label in labels for part in ("--label", label)]
        self._done(("create", "--pull", "never", "--name", name, *tags, *words), _CREATE_SECONDS)

    def set_policy(self, container: str, policy: str) -> None:
        """Give it another restart policy (podman from version 5.1 on)."""
        self._done(("update", f"--restart={policy}", container), _CHANGE_SECONDS)

    def stop(self, container: str) -> None:
        """Ask it to end and kill it after `STOP_SECONDS`; it is not started again by its restart policy."""
        # Not --time: docker 28 calls it --timeout.
        self._done(("stop", "-t", str(STOP_SECONDS), container), _STOP_SECONDS)

    def rename(self, container: str, to: str) -> None:
        """Give it another name."""
        self._done(("rename", container, to), _CHANGE_SECONDS)

    def start(self, container: str) -> None:
        """Start it."""
        self._done(("start", container), _CHANGE_SECONDS)

    def remove(self, container: str) -> None:
        """Remove it; one that runs is not removed, and volumes stay."""
        self._done(("rm", container), _CHANGE_SECONDS)

    def _ask(self, arguments: Sequence[str], seconds: float) -> Said:
        ask = self._given if self._given is not None else command_line(self.name)
        return ask(arguments, seconds)

    def _done(self, arguments: Sequence[str], seconds: float) -> Said:
        said = self._ask(arguments, seconds)
        if said.code != 0:
            text = " ".join(" ".join(printable_lines(said.errors)).split())[:_SAID_CHARACTERS]
            raise ServiceError(f"{self.name} {arguments[0]} failed with code {said.code}{f': {text}' if text else ''}")
        return said

    def _parsed(self, said: Said) -> tuple[ContainerFacts, ...]:
        try:
            return parse_containers(said.output)
        except ValueError as error:
            raise ServiceError(f"{self.name}: {error}") from error
