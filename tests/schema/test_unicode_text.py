"""Names that are no UTF-8, made fit to leave the program."""

from __future__ import annotations

import os

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from moetuned.schema.unicode_text import unicode_json, unicode_text


@given(st.text(st.characters(codec=None)) | st.text())
def test_any_text_becomes_one_that_can_be_written(text: str) -> None:
    found = unicode_text(text)
    assert len(found) == len(text)
    assert len(found.encode()) >= len(found)
    assert all(one == other or other == "\ufffd" for one, other in zip(text, found, strict=True))


def test_a_name_of_a_file() -> None:
    assert unicode_text(os.fsdecode(b"/m/\xff.gguf")) == "/m/\ufffd.gguf"
    assert unicode_text("/m/größe") == "/m/größe"


class _Named(msgspec.Struct, omit_defaults=True):
    path: str
    sizes: dict[str, int | None] = {}
    none: str | None = None


def test_json_of_what_is_in_it() -> None:
    told = _Named("/m/\udcff", {"\udcfe": None, "größe": 1})
    assert unicode_json([told]) == '[{"path":"/m/\ufffd","sizes":{"\ufffd":null,"größe":1}}]'.encode()
    assert unicode_json(_Named("a")) == msgspec.json.encode(_Named("a"))
