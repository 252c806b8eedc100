from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.host import sha256_state
from moetuned.host.sha256_state import HashState, Sha256, can_resume


def digest(raw: bytes, start: HashState | None = None) -> str:
    sha256 = Sha256(start)
    sha256.update(memoryview(bytearray(raw)))
    return sha256.hexdigest()


needs_libcrypto = pytest.mark.skipif(not can_resume(), reason="no libcrypto here whose hashes can be taken up again")


@needs_libcrypto
@given(st.binary(max_size=2000), st.integers(0, 31))
def test_taken_up_anywhere_it_comes_to_the_same_end(raw: bytes, blocks: int):
    cut = min(blocks * 64, len(raw) // 64 * 64)
    first = Sha256()
    first.update(memoryview(bytearray(raw[:cut])))
    state = first.state()
    assert state is not None
    assert state.done_bytes == cut
    assert digest(raw[cut:], state) == hashlib.sha256(raw).hexdigest()


@needs_libcrypto
def test_lengths_beyond_what_32_bits_hold():
    state = HashState(5 << 30, Sha256().state().words)
    later = Sha256(state)
    later.update(memoryview(bytearray(64)))
    assert later.state().done_bytes == (5 << 30) + 64
    # The length is hashed too, so it must make a difference.
    assert later.hexdigest() != digest(bytes(64), HashState(1 << 30, state.words))


@needs_libcrypto
def test_between_blocks_there_is_no_state():
    sha256 = Sha256()
    sha256.update(memoryview(bytearray(65)))
    assert sha256.state() is None
    assert sha256.done_bytes == 65


@needs_libcrypto
@pytest.mark.parametrize(
    "state", [HashState(63, "0" * 64), HashState(64, "0" * 62), HashState(-64, "0" * 64), HashState(64, "g" * 64)]
)
def test_what_is_no_state_is_refused(state: HashState):
    with pytest.raises(ValueError):  # noqa: PT011 any sentence
        Sha256(state)


@pytest.fixture
def without_libcrypto(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sha256_state, "_LIBRARIES", ("libcrypto-that-is-not-there.so",))
    sha256_state._proven.cache_clear()
    yield
    sha256_state._proven.cache_clear()


@pytest.mark.usefixtures("without_libcrypto")
def test_without_libcrypto_hashlib_is_used():
    assert not can_resume()
    assert digest(b"abc") == hashlib.sha256(b"abc").hexdigest()
    sha256 = Sha256()
    sha256.update(memoryview(bytearray(64)))
    assert (sha256.state(), sha256.done_bytes) == (None, 64)
    with pytest.raises(ValueError, match="cannot be taken up"):
        Sha256(HashState(64, "0" * 64))


@needs_libcrypto
def test_a_library_that_hashes_wrongly_is_not_used(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sha256_state, "_ended", lambda _library, _context: "0" * 64)
    sha256_state._proven.cache_clear()
    try:
        assert not can_resume()
    finally:
        sha256_state._proven.cache_clear()
