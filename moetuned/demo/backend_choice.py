"""Which backend the demo runs: a llama-server that is there, else the pip wheel's llama.cpp, else the stand-in."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys

import msgspec

KINDS = ("llama-server", "wheel", "stand-in")
_HELP_SECONDS = 60.0


class ChoiceError(Exception):
    """The backend that was asked for is not to be had; the text says what to do."""


class Choice(msgspec.Struct, frozen=True):
    """A backend. `command` holds the config's placeholders; `real`: it is a llama.cpp, not the stand-in."""

    name: str
    kind: str
    command: tuple[str, ...]
    real: bool


def choose(wanted: str, port: int, threads: int) -> Choice:
    """The backend `wanted` ("auto" or one of KINDS) listening on `port`. Raises ChoiceError."""
    if wanted in ("auto", "llama-server") and (program := _llama_server()) is not None:
        return Choice("llama-server", "llama-server", (program, *_flags(program, port, threads)), real=True)
    if wanted in ("auto", "wheel") and importlib.util.find_spec("xllamacpp") is not None:
        command = (sys.executable, "-m", "moetuned.xllamacpp_server", *_all_flags(port, threads))
        return Choice("the wheel's llama.cpp", "xllamacpp", command, real=True)
    if wanted in ("auto", "stand-in"):
        command = (sys.executable, "-m", "moetuned.simulator", "serve", *_all_flags(port, threads))
        return Choice("the stand-in (a load generator, no language model)", "simulator", command, real=False)
    if wanted == "llama-server":
        raise ChoiceError("there is no llama-server on PATH; put it there, or name it in LLAMA_SERVER")
    raise ChoiceError("the Python package xllamacpp is not installed; run: .venv/bin/pip install '.[wheel-backend]'")


def _llama_server() -> str | None:
    named = os.environ.get("LLAMA_SERVER")
    if named:
        if not os.access(named, os.X_OK) or os.path.isdir(named):
            raise ChoiceError(f"LLAMA_SERVER names {named}, which is no program")
        return os.path.abspath(named)
    return shutil.which("llama-server")


def _all_flags(port: int, threads: int) -> tuple[str, ...]:
    return (
        *("-m", "{model}", "-c", "{context}", "-np", "1", "-t", str(threads)),
        *("--host", "127.0.0.1", "--port", str(port), "--metrics"),
        *("--cache-ram", "{prompt_cache_mib}", "--no-repack"),
    )


def _flags(program: str, port: int, threads: int) -> tuple[str, ...]:
    """The flags without those that this build does not know: its --help is asked."""
    try:
        answer = subprocess.run(
            [program, "--help"], stdin=subprocess.DEVNULL, capture_output=True, timeout=_HELP_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ChoiceError(f"{program} --help does not answer: {error}") from error
    known = (answer.stdout + answer.stderr).decode("utf-8", "replace")
    if "--ctx-size" not in known:
        raise ChoiceError(f"{program} --help does not look like llama-server's (code {answer.returncode})")
    flags = list(_all_flags(port, threads))
    for flag, values in (("--metrics", 0), ("--cache-ram", 1), ("--no-repack", 0)):
        if flag not in known:
            at = flags.index(flag)
            del flags[at : at + 1 + values]
    return tuple(flags)
