"""The swap signature on a file or device: written by util-linux's mkswap, read here. Its UUID says whose swap it is."""

from __future__ import annotations

import os

from moetuned.host.system_program import run_program
from moetuned.parse.swap_header import HEADER_BYTES

LABEL = "moetuned"


class SwapError(OSError):
    """Something about swap that could not be done; the text is one sentence."""


def make_signature(path: str, uuid: str) -> None:
    """Make `path`, a file or device of its final size, a swap with this UUID (mkswap(8)). Raises OSError."""
    run_program("mkswap", ("-U", uuid, "-L", LABEL, path), "util-linux")


def read_head(descriptor: int) -> bytes:
    """The first bytes of an open file or device, as many as a swap signature can take. Raises OSError."""
    head = b""
    while len(head) < HEADER_BYTES:
        piece = os.pread(descriptor, HEADER_BYTES - len(head), len(head))
        if not piece:
            break
        head += piece
    return head
