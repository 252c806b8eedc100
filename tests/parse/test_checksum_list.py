from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.parse.checksum_list import (
    Checksum,
    ChecksumListError,
    find_checksum,
    is_sha256,
    parse_checksums,
    parse_download_metadata,
)

A, B = "a" * 64, "b" * 64


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{A}  m.gguf\n{B} *dir/n.gguf\n", [("m.gguf", A), ("dir/n.gguf", B)]),
        (f"# made by hand\n\n{A.upper()}  with two  spaces.gguf\n", [("with two  spaces.gguf", A)]),
        (f"\ufeff{A}  m.gguf\r\n", [("m.gguf", A)]),
        (f"\\{A}  new\\nline\\\\.gguf\n", [("new\nline\\.gguf", A)]),
        (f"SHA256 (m (1).gguf) = {A}\n", [("m (1).gguf", A)]),
        (f"{A}\n", [(None, A)]),
    ],
)
def test_lines(text: str, expected: list[tuple[str | None, str]]):
    assert [(one.name, one.sha256) for one in parse_checksums(text)] == expected


def test_answers_of_the_hub():
    siblings = [
        {"rfilename": "README.md", "size": 7},
        {"rfilename": "Q4/m.gguf", "size": 9, "lfs": {"sha256": A, "size": 9, "pointerSize": 134}},
    ]
    tree = [
        {"type": "directory", "oid": "0" * 40, "path": "Q4"},
        {"type": "file", "oid": "1" * 40, "size": 9, "path": "Q4/m.gguf", "lfs": {"oid": A, "size": 9}},
    ]
    wanted = (Checksum("Q4/m.gguf", A, 9),)
    assert parse_checksums(json.dumps({"id": "x/y", "siblings": siblings})) == wanted
    assert parse_checksums(json.dumps(tree)) == wanted


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "holds no sums"),
        ("hello world\n", "line 1 is no line of sha256sum"),
        (f"{A}  m.gguf\n{'c' * 32}  n.gguf\n", "line 2 is a sum of another kind"),
        (f"{'c' * 128}  n.gguf\n", "another kind"),
        (f"{A}\n{B}\n", "not all of them have a file's name"),
        ("{", "Hugging Face Hub"),
        ('{"siblings": 7}', "Hugging Face Hub"),
        ('{"layers": []}', "Hugging Face Hub"),
        ('{"siblings": [{"rfilename": "m.gguf"}]}', "?blobs=true"),
        ("[" * 100_000, "Hugging Face Hub"),
        ('{"a":' * 100_000, "Hugging Face Hub"),
    ],
)
def test_what_is_no_list_gets_a_sentence(text: str, expected: str):
    with pytest.raises(ChecksumListError) as caught:
        parse_checksums(text)
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_entry_with_most_of_the_path_in_common():
    sums = (Checksum("m.gguf", A), Checksum("Q8/m.gguf", B), Checksum("other.gguf", "c" * 64))
    assert find_checksum(sums, "/models/Q8/m.gguf") == sums[1]
    assert find_checksum(sums, "/models/m.gguf") == sums[0]
    assert find_checksum(sums[1:], "/models/m.gguf") == sums[1]
    assert find_checksum(sums, "/models/x.gguf") is None
    assert find_checksum((Checksum("./Q8//m.gguf", B),), "/Q8/m.gguf") == Checksum("./Q8//m.gguf", B)
    assert find_checksum((Checksum(None, A),), "/any.gguf") == Checksum(None, A)


def test_entries_that_contradict_each_other():
    with pytest.raises(ChecksumListError, match=r"different things of m\.gguf"):
        find_checksum((Checksum("Q4/m.gguf", A), Checksum("Q8/m.gguf", B)), "/models/m.gguf")
    assert find_checksum((Checksum("Q4/m.gguf", A), Checksum("Q8/m.gguf", A)), "/models/m.gguf") is not None


def test_metadata_of_a_download():
    commit = "0123456789abcdef0123456789abcdef01234567"
    assert parse_download_metadata(f"{commit}\n{A}\n1712656091.123\n") == A
    assert parse_download_metadata(f"{commit}\n{'d' * 40}\n1712656091.123\n") is None
    assert parse_download_metadata("") is None
    assert parse_download_metadata(f"{A}\n{A}\n") is None


def test_sums():
    assert is_sha256(A)
    assert not is_sha256(A + "\n")
    assert not is_sha256("SHA256SUMS")


@given(st.text())
def test_any_text_is_a_list_or_refused(text: str):
    for whole in (text, f"{A}  {text}", "{" + text, "[" + text):
        with suppress(ChecksumListError):
            assert all(is_sha256(one.sha256) for one in parse_checksums(whole))


@given(st.text(st.characters(blacklist_categories=["Cs", "Cc", "Zl", "Zp"]), min_size=1).filter(str.strip))
def test_every_name_that_sha256sum_writes_is_read_back(name: str):
    mark = "\\" if "\\" in name else ""
    written = name.replace("\\", "\\\\")
    assert parse_checksums(f"{mark}{A}  {written}\n") == (Checksum(name, A),)
