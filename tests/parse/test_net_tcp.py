"""Listening sockets."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.parse.net_tcp import listening_inodes

CASES = Path(__file__).parent / "net_tcp"
FOUND = {
    "linux-6.18-tcp.txt": {31415},
    "linux-5.15-tcp6.txt": {5551, 5552},
    "cut-tcp.txt": {77},
    "none-tcp.txt": set(),
}


@pytest.mark.parametrize("path", sorted(CASES.iterdir()), ids=lambda path: path.name)
def test_cases(path: Path) -> None:
    assert listening_inodes(path.read_text(), 8080) == FOUND[path.name]
    assert listening_inodes(path.read_text(), 8081) == set()


@pytest.mark.parametrize("inode", ["0", "-5", "x", "9" * 21, "٣"])
def test_no_inode_is_none(inode: str) -> None:
    line = "0: 0100007F:1F90 00000000:0000 0A 0:0 0:0 0 0 0 " + inode
    assert listening_inodes(line, 8080) == set()


@given(st.text() | st.lists(st.text(alphabet="0A:F19 \n")).map(" ".join), st.integers(-5, 70000))
def test_any_text_is_survived(text: str, port: int) -> None:
    assert all(inode > 0 for inode in listening_inodes(text, port))
