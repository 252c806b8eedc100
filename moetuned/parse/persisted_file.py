"""The header of a file that moetuned writes below /etc: who wrote it, how to take it away, and whether it was edited since."""

from __future__ import annotations

import hashlib
import re
from enum import StrEnum

_FIRST = "# Written by moetuned. Take it away with: sudo moetunectl "
_UNPERSIST = "tune unpersist"
_SEAL = re.compile(r"# Checksum of the lines below, sha256: ([0-9a-f]{64})")


class Standing(StrEnum):
    """What a file is to us: `ours` as we wrote it, `edited` since, or somebody else's (`foreign`)."""

    OURS = "ours"
    EDITED = "edited"
    FOREIGN = "foreign"


def with_header(body: str, undo: str = _UNPERSIST) -> str:
    """`body` (whole lines, `#` starts a comment) as a file of ours, that `moetunectl UNDO` takes away."""
    return f"{_FIRST}{undo}\n# Checksum of the lines below, sha256: {_checksum(body)}\n{body}"


def standing(text: str, undo: str = _UNPERSIST) -> Standing:
    """Whose file this is. A file without our first line, or without the checksum below it, is not known to be ours."""
    first, _, rest = text.partition("\n")
    seal, _, body = rest.partition("\n")
    if first != _FIRST + undo:
        return Standing.FOREIGN
    match = _SEAL.fullmatch(seal)
    return Standing.OURS if match is not None and match[1] == _checksum(body) else Standing.EDITED


def _checksum(body: str) -> str:
    return hashlib.sha256(body.encode("utf-8", "surrogatepass")).hexdigest()
