"""Asks a llama.cpp program which flags it knows. The answer is kept for as long as the file is the same (inode and mtime)."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import subprocess
import tempfile

import msgspec

from moetuned.parse.llama_help import ProgramHelp, parse_help

HELP_SECONDS = 20.0
HELP_LIMIT_BYTES = 1 << 20
_FEWEST_FLAGS = 10
_answers: dict[tuple[int, int, int], ProgramHelp] = {}


class BackendFlags(msgspec.Struct, frozen=True):
    """What a program knows; `known` None: `unknown` says why in one sentence."""

    program: str
    known: ProgramHelp | None
    unknown: str | None = None


def ask_flags(program: str) -> BackendFlags:
    """Run `program --help`, at most 20 seconds and 1 MiB of it. Never raises.

    `program` is a path the user named, or one from PATH; no shell is involved.
    """
    try:
        status = os.stat(program)
    except OSError as error:
        return BackendFlags(program, None, f"{program}: {error.strerror}")
    key = (status.st_dev, status.st_ino, status.st_mtime_ns)
    if key not in _answers:
        text, problem = run_briefly([program, "--help"], HELP_SECONDS, HELP_LIMIT_BYTES)
        if problem is not None:
            return BackendFlags(program, None, problem)
        known = parse_help(text)
        if len(known.flags) < _FEWEST_FLAGS or not (known.knows("-m") or known.knows("--model")):
            return BackendFlags(program, None, f"the output of {program} --help is not that of a llama.cpp program")
        _answers[key] = known
    return BackendFlags(program, _answers[key])


def find_program(name: str, beside: str | None = None) -> str | None:
    """Path of a llama.cpp program: beside another one, else on PATH; None when there is none."""
    if beside is not None:
        for place in (beside, os.path.realpath(beside)):
            candidate = os.path.join(os.path.dirname(place), name)
            if os.path.isfile(candidate) and os.access(candidate, os.X_OK):
                return candidate
    return shutil.which(name)


def run_briefly(arguments: list[str], seconds: float, limit_bytes: int) -> tuple[str, str | None]:
    """Output (both streams) of a short-lived program, and why there is none, one sentence.

    Its output goes to a file without a name, so one that talks without end costs no memory; the libraries beside the
    program are found even when it was moved.
    """
    program = arguments[0]
    environment = dict(os.environ)
    libraries = [os.path.dirname(os.path.realpath(program)), environment.get("LD_LIBRARY_PATH", "")]
    environment["LD_LIBRARY_PATH"] = ":".join(each for each in libraries if each)
    with tempfile.TemporaryFile() as output:
        try:
            child = subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            return "", f"{program} cannot be run: {getattr(error, 'strerror', None) or error}"
        try:
            with contextlib.suppress(ProcessLookupError):
                resource.prlimit(child.pid, resource.RLIMIT_FSIZE, (limit_bytes, limit_bytes))
            code = child.wait(seconds)
        except subprocess.TimeoutExpired:
            return "", f"{program} did not answer within {seconds:.0f} s"
        finally:
            if child.returncode is None:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
        output.seek(0)
        text = output.read(limit_bytes).decode("utf-8", "replace")
    if code != 0 and not text.strip():
        how = f"ended with code {code}" if code > 0 else f"was ended by signal {-code}"
        return "", f"{program} {how} and said nothing"
    return text, None
