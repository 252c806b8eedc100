from __future__ import annotations

import os
from pathlib import Path

import pytest

from moetuned.host.program_search import find_program
from moetuned.host.swap_signature import make_signature, read_head
from moetuned.host.system_program import ProgramError
from moetuned.parse.swap_header import HEADER_BYTES, swap_uuid

UUID = "11111111-2222-3333-4444-555555555555"


def test_the_signature_has_the_uuid_it_was_given(tmp_path: Path) -> None:
    if find_program("mkswap") is None:
        pytest.skip("needs mkswap of util-linux")
    path = tmp_path / "file"
    path.write_bytes(b"\0" * (1 << 20))
    path.chmod(0o600)
    make_signature(str(path), UUID)
    with path.open("rb") as file:
        assert swap_uuid(read_head(file.fileno())) == UUID
    with pytest.raises(ProgramError, match="mkswap failed"):
        make_signature(str(tmp_path / "absent"), UUID)


def test_a_head_is_as_long_as_the_file_and_no_longer_than_a_page(tmp_path: Path) -> None:
    for size in (0, 10, HEADER_BYTES, HEADER_BYTES + 1):
        path = tmp_path / str(size)
        path.write_bytes(b"x" * size)
        descriptor = os.open(path, os.O_RDONLY)
        assert len(read_head(descriptor)) == min(size, HEADER_BYTES)
        os.close(descriptor)
