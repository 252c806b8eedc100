"""A backend that a script of the user's restarts: whatever runs it, the script knows how.

The script gets the values in its arguments, where the config has their placeholders, and all of them in its environment
(MOETUNED_CONTEXT, MOETUNED_PROMPT_CACHE_MIB, MOETUNED_SLOTS, MOETUNED_CHECKPOINTS, MOETUNED_CACHE_TYPE, MOETUNED_MODEL,
MOETUNED_BACKEND). It runs as root in /, so only root may be able to write it or to put another in its place. It does not tell which process is
the backend: that is found by looking for it. It is ended with all it started, as far as that stayed in its process group, when it takes too
long.
"""

from __future__ import annotations

import logging
import os
import pwd
import re
import subprocess
from collections.abc import Mapping, Sequence

import msgspec

from moetuned.decide.launch_command import fill, used_names
from moetuned.host.bounded_program import SYSTEM_PATH, Ended, printable_lines, run_bounded
from moetuned.host.processes import ProcessHandle, ProcessIdentity
from moetuned.host.service import VALUES, Keeper, ServiceError, ServiceState
from moetuned.host.trusted_path import distrust
from moetuned.schema.container import ScriptRecord

log = logging.getLogger(__name__)

_VALUE = re.compile(r"[A-Za-z0-9_]{1,32}")


class Script:
    """A `host.service.Service`."""

    def __init__(
        self,
        backend: str,
        command: Sequence[str],
        model: str | None,
        preferred: Mapping[str, str],
        keeper: Keeper[ScriptRecord],
        timeout_seconds: float,
    ) -> None:
        """`command`: the script's absolute path and its arguments, with placeholders; `preferred`: values before it first ran."""
        self._backend = backend
        self._command = tuple(command)
        self._model = model
        self._preferred = dict(preferred)
        self._keeper = keeper
        self._timeout_seconds = timeout_seconds

    @property
    def what(self) -> str:
        """For people: the script /usr/local/bin/restart-llama."""
        return f"the script {self._command[0]}"

    def look(self) -> ServiceState:
        """That nothing is told."""
        return ServiceState(None, pid_known=False)

    def settable(self) -> frozenset[str]:
        """Those whose placeholder occurs in the arguments: of what it only finds in its environment nobody knows whether it looks."""
        return used_names(self._command[1:], VALUES)

    def restart(self, values: Mapping[str, str]) -> None:
        """Run the script to its end. Raises ServiceError with the last line it said; ValueError for what is not settable."""
        if unknown := sorted(set(values) - self.settable()):
            raise ValueError(f"{self.what} cannot be given {', '.join(unknown)}")
        if wrong := sorted(name for name, value in values.items() if not _VALUE.fullmatch(value)):
            raise ValueError(f"{self.what} cannot be given {wrong[0]} {values[wrong[0]]!r}")
        self._check()
        record = self._read()
        # Of a run that was interrupted the values are taken: it may have come to its end.
        now = {**self._preferred, **record.values, **(record.trying or {}), **values}
        if missing := sorted(self.settable().difference(now)):
            raise ServiceError(f"{self.what} was not run: nobody says which {missing[0]} the backend is to have")
        self._write(msgspec.structs.replace(record, trying=now))
        try:
            self._run(now)
        except ServiceError:
            self._noted(msgspec.structs.replace(record, trying=None))
            raise
        self._noted(ScriptRecord(now))

    @property
    def told_to_end(self) -> bool:
        """Never: how long the old process may take is the script's matter, and so is whether it is ended at all."""
        return False

    def kill(self, main: ProcessIdentity) -> None:
        """Nothing: what belongs to the process is not known."""

    def hold(self, main: ProcessIdentity) -> list[ProcessHandle]:  # noqa: ARG002
        """None: whose the cgroup is that the process is in is not known."""
        return []

    def _check(self) -> None:
        program = self._command[0]
        try:
            # The directory too: where the name is a link, what it leads to is not all that counts.
            problem = distrust(program) or distrust(os.path.dirname(program))
        except OSError as error:
            raise ServiceError(f"{self.what} cannot be run: {error.strerror}") from error
        if problem is not None:
            raise ServiceError(f"{self.what} is not run: {problem}")

    def _run(self, now: Mapping[str, str]) -> None:
        filled = fill(self._command[1:], {**now, "model": self._model or ""})
        try:
            ended = run_bounded(
                (self._command[0], *filled), self._environment(now), self._timeout_seconds, outside=True
            )
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            raise ServiceError(f"{self.what} could not be run: {getattr(error, 'strerror', None) or error}") from error
        lines = printable_lines(ended.output)
        for line in lines:
            log.info("%s: %s: %s", self._backend, os.path.basename(self._command[0]), line)
        if ended.cut:
            log.warning("%s: %s said more than is kept", self._backend, self.what)
        if (failure := self._failure(ended)) is not None:
            raise ServiceError(f"{self.what} {failure}{f': {lines[-1]}' if lines else ''}")

    def _failure(self, ended: Ended) -> str | None:
        if ended.timed_out:
            return f"took longer than {self._timeout_seconds:g} s and was ended"
        if ended.exit_code is None:
            return "was ended by a signal"
        return None if ended.exit_code == 0 else f"ended with code {ended.exit_code}"

    def _environment(self, now: Mapping[str, str]) -> dict[str, str]:
        own = {**now, "model": self._model or "", "backend": self._backend}
        facts = {f"MOETUNED_{name.upper()}": value for name, value in own.items()}
        return {"PATH": SYSTEM_PATH, "LANG": "C.UTF-8", "HOME": pwd.getpwuid(os.geteuid()).pw_dir, **facts}

    def _read(self) -> ScriptRecord:
        try:
            return self._keeper.read()
        except OSError as error:
            raise ServiceError(f"{self.what} was not run: what it was last run with cannot be told: {error}") from error

    def _write(self, record: ScriptRecord) -> None:
        try:
            self._keeper.write(record)
        except OSError as error:
            raise ServiceError(f"{self.what} was not run: that cannot be recorded: {error}") from error

    def _noted(self, record: ScriptRecord) -> None:
        try:
            self._keeper.write(record)
        except OSError as error:
            log.warning("%s: what %s was run with cannot be recorded: %s", self._backend, self.what, error)
