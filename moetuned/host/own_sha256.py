"""SHA-256 without OpenSSL. To import `hashlib` loads all of libcrypto: measured (Debian 12, Python 3.11), 3.5 MiB more are resident.

Python's own implementation makes the same hashes at about half the speed and keeps the interpreter's lock meanwhile, so give it pieces of
`PIECE_BYTES`. It is a private module of another name in each version; where there is none, as in builds that leave it out, hashlib serves.
"""

from __future__ import annotations

import importlib
from typing import Protocol, cast

PIECE_BYTES = 1 << 17


class Digest(Protocol):
    """What is used of a hash object."""

    def update(self, data: bytes, /) -> None:
        """Add to what is hashed."""
        ...

    def hexdigest(self) -> str:
        """The hash so far, 64 characters."""
        ...


def sha256(data: bytes = b"") -> Digest:
    """A hash of SHA-256 that has begun with `data`."""
    for name in ("_sha2", "_sha256", "hashlib"):  # since Python 3.12, until 3.11, always
        try:
            return cast("Digest", importlib.import_module(name).sha256(data))
        except (ImportError, AttributeError):
            continue
    raise ImportError("this Python has no SHA-256")
