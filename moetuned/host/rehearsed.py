"""Has all that a config may need rehearsed in a short process of its own, which inherits every limit of this one, and reads what came of it."""

from __future__ import annotations

import os
import subprocess
import sys

import msgspec

import moetuned
from moetuned.host.bounded_program import SYSTEM_PATH, printable_lines, run_bounded
from moetuned.schema.capability import Capability, RehearsalFacts

PATIENCE_SECONDS = 40.0
"""More than all tries take: to start an interpreter takes long while memory is short."""
_ANSWER_BYTES = 4 << 20
_START = "import sys; sys.path.insert(0, sys.argv[1]); from moetuned.host.rehearsing import main; sys.exit(main())"


def rehearsed(facts: RehearsalFacts) -> tuple[Capability, ...]:
    """What came of each. Blocks for about half a second, at most 40 s. Raises OSError with why nothing is known."""
    above = os.path.dirname(os.path.dirname(os.path.abspath(moetuned.__file__)))
    try:
        ended = run_bounded(
            [sys.executable, "-I", "-c", _START, above],
            {"PATH": SYSTEM_PATH, "LANG": "C.UTF-8"},
            PATIENCE_SECONDS,
            msgspec.json.encode(facts),
            limit_bytes=_ANSWER_BYTES,
            errors_apart=True,
        )
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise OSError(
            f"no process could be started to rehearse: {getattr(error, 'strerror', None) or error}"
        ) from error
    if ended.timed_out:
        raise OSError(f"rehearsing took longer than {PATIENCE_SECONDS:g} s and was ended")
    try:
        return msgspec.json.decode(ended.output, type=tuple[Capability, ...])
    except (msgspec.MsgspecError, ValueError):
        said = printable_lines(ended.errors)
        how = "by a signal" if ended.exit_code is None else f"with code {ended.exit_code}"
        raise OSError(f"rehearsing ended {how}{f': {said[-1]}' if said else ''}") from None
