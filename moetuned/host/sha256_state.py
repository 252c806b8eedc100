"""SHA-256 whose state can be kept in a file and taken up again, so that hashing 400 GB need not begin again.

Python's hashlib does not give its state away. libcrypto's older interface (`SHA256_Init`, `SHA256_Update`, `SHA256_Final`; deprecated
since OpenSSL 3.0, still there and as fast) keeps it in the public struct of `openssl/sha.h`: at a multiple of 64 bytes it is eight words
and a length (FIPS 180-4, section 6.2). It is used only after it has proved itself against hashlib; where it cannot, hashlib
is used and the state is None.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import struct

import msgspec

BLOCK_BYTES = 64
_LIBRARIES = ("libcrypto.so.3", "libcrypto.so.1.1")


class HashState(msgspec.Struct, frozen=True):
    """Where a hash stands after `done_bytes`, a multiple of 64. `words` are the eight words as 64 hex digits."""

    done_bytes: int
    words: str


class _Context(ctypes.Structure):
    """SHA256_CTX of openssl/sha.h, with room behind it."""

    _fields_ = (
        ("words", ctypes.c_uint32 * 8),
        ("low_bits", ctypes.c_uint32),
        ("high_bits", ctypes.c_uint32),
        ("block", ctypes.c_uint32 * 16),
        ("pending_bytes", ctypes.c_uint),
        ("digest_bytes", ctypes.c_uint),
        ("room", ctypes.c_ubyte * 128),
    )


class Sha256:
    """A hash that goes on from `state` (None: from the beginning). Raises ValueError for a state that is none."""

    def __init__(self, state: HashState | None = None) -> None:
        self._library = _proven()
        self._done_bytes = 0
        if self._library is None:
            if state is not None:
                raise ValueError("the state of a hash cannot be taken up here")
            self._plain = hashlib.sha256()
            return
        self._context = _begun(self._library, state)
        self._done_bytes = 0 if state is None else state.done_bytes

    @property
    def done_bytes(self) -> int:
        """Bytes hashed so far, those before the state included."""
        return self._done_bytes

    def update(self, buffer: memoryview) -> None:
        """Hash `buffer` too; writable memory, which is not copied. Other threads run meanwhile."""
        if self._library is None:
            self._plain.update(buffer)
        else:
            _update(self._library, self._context, buffer)
        self._done_bytes += len(buffer)

    def state(self) -> HashState | None:
        """Where it stands; None between blocks or where it cannot be known."""
        if self._library is None or self._done_bytes % BLOCK_BYTES:
            return None
        return HashState(self._done_bytes, struct.pack(">8I", *self._context.words).hex())

    def hexdigest(self) -> str:
        """The hash of all that was given; nothing can be added afterwards."""
        return self._plain.hexdigest() if self._library is None else _ended(self._library, self._context)


def can_resume() -> bool:
    """Whether states can be kept and taken up on this machine."""
    return _proven() is not None


@functools.cache
def _proven() -> ctypes.CDLL | None:
    """libcrypto, if a hash that was interrupted in it comes to the same end as hashlib's."""
    for name in _LIBRARIES:
        try:
            library = ctypes.CDLL(name)
            for function in ("SHA256_Init", "SHA256_Update", "SHA256_Final"):
                getattr(library, function).restype = ctypes.c_int
        except (OSError, AttributeError):
            continue
        library.SHA256_Update.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
        if _proves_itself(library):
            return library
    return None


def _proves_itself(library: ctypes.CDLL) -> bool:
    message = bytearray(range(256)) * 3
    first = _begun(library, None)
    _update(library, first, memoryview(message)[:320])
    if first.pending_bytes or first.low_bits != 320 * 8:
        return False
    taken_up = _begun(library, HashState(320, struct.pack(">8I", *first.words).hex()))
    _update(library, taken_up, memoryview(message)[320:])
    return _ended(library, taken_up) == hashlib.sha256(message).hexdigest()


def _begun(library: ctypes.CDLL, state: HashState | None) -> _Context:
    context = _Context()
    library.SHA256_Init(ctypes.byref(context))
    if state is None:
        return context
    raw = bytes.fromhex(state.words)
    if len(raw) != 32 or state.done_bytes < 0 or state.done_bytes % BLOCK_BYTES or state.done_bytes >= 1 << 60:
        raise ValueError("this is no state of SHA-256")
    context.words[:] = struct.unpack(">8I", raw)
    bits = state.done_bytes * 8
    context.low_bits, context.high_bits = bits & 0xFFFFFFFF, bits >> 32
    return context


def _update(library: ctypes.CDLL, context: _Context, buffer: memoryview) -> None:
    if buffer:
        memory = (ctypes.c_ubyte * len(buffer)).from_buffer(buffer)
        library.SHA256_Update(ctypes.byref(context), memory, len(buffer))


def _ended(library: ctypes.CDLL, context: _Context) -> str:
    digest = (ctypes.c_ubyte * 32)()
    library.SHA256_Final(digest, ctypes.byref(context))
    return bytes(digest).hex()
