from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.parse.swap_header import HEADER_BYTES, is_blank, swap_uuid

UUID = uuid.UUID("11111111-2222-3333-4444-555555555555")


def header(page: int) -> bytes:
    body = b"\0" * 1024 + b"\1\0\0\0" + b"\xff\x3f\0\0" + b"\0" * 4 + UUID.bytes + b"moetuned".ljust(16, b"\0")
    return body.ljust(page - 10, b"\0") + b"SWAPSPACE2"


@pytest.mark.parametrize("page", [4096, 16384, 65536])
def test_the_signature_of_any_page_size(page: int) -> None:
    assert swap_uuid(header(page).ljust(HEADER_BYTES, b"\0")) == str(UUID)
    assert swap_uuid(header(page)) == str(UUID)


@pytest.mark.parametrize("head", [b"", b"SWAPSPACE2", b"\0" * HEADER_BYTES, header(4096)[:-1], b"\0" + header(4096)])
def test_no_signature(head: bytes) -> None:
    assert swap_uuid(head) is None


def test_an_old_signature_without_a_uuid_is_none() -> None:
    assert swap_uuid(b"\0" * (4096 - 10) + b"SWAP-SPACE") is None


def test_blank() -> None:
    assert is_blank(b"")
    assert is_blank(b"\0" * HEADER_BYTES)
    assert not is_blank(b"\0" * 100 + b"\1")
    assert not is_blank(header(4096))


@given(st.binary(max_size=5000))
def test_any_bytes_are_read_without_an_error(head: bytes) -> None:
    found = swap_uuid(head)
    assert found is None or str(uuid.UUID(found)) == found
