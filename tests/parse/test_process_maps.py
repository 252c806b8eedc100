"""Mapped files."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moetuned.parse.process_maps import mapped_files

TEXT = """55d0-55d1 r--p 00000000 fe:00 131 /usr/bin/llama-server
7f00-7f10 r--s 00000000 fe:00 99   /models/with space/a-00001-of-00002.gguf
7f10-7f20 r--s 00100000 fe:00 99   /models/with space/a-00001-of-00002.gguf
7f20-7f30 r--s 00000000 fe:00 98   /models/a-00002-of-00002.gguf
7f30-7f40 r--s 00000000 fe:00 97   /models/old.gguf (deleted)
7f40-7f50 rw-p 00000000 00:00 0
7f50-7f60 rw-p 00000000 00:00 0    [heap]
7f60-7f70 r--s 00000000 fe:00 97
"""


def test_each_file_once_in_order_without_deleted_ones() -> None:
    assert mapped_files(TEXT, ".gguf") == (
        "/models/with space/a-00001-of-00002.gguf",
        "/models/a-00002-of-00002.gguf",
    )


@given(st.text())
def test_any_text_gives_absolute_paths(text: str) -> None:
    assert all(path.startswith("/") and path.endswith(".gguf") for path in mapped_files(text, ".gguf"))


def test_a_file_whose_name_looks_like_another_line_is_one_file() -> None:
    name = "/tmp/a\u20287f00-7f01 r--p 00000000 08:01 9 /etc/b.gguf"
    assert mapped_files(f"7f10-7f20 r--p 00000000 08:01 5 {name}\n", ".gguf") == (name,)
