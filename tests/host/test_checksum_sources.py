from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from moetuned.host import checksum_sources
from moetuned.host.checksum_sources import SourceError, expected_of, find_expected, read_list

A, B, C = "a" * 64, "b" * 64, "c" * 64
PART = "m-00001-of-00002.gguf"


def found(path: Path) -> tuple[str, str] | None:
    one, notes = find_expected(str(path))
    assert notes == ()
    return None if one is None else (one.sha256, os.path.relpath(one.source, path.parent))


@pytest.mark.parametrize(
    "name", [f"{PART}.sha256", "m.gguf.sha256", "m.sha256", "SHA256SUMS", "sha256sums.txt", "checksums.sha256"]
)
def test_lists_beside_a_part(tmp_path: Path, name: str):
    (tmp_path / name).write_text(f"{A}  {PART}\n{B}  m-00002-of-00002.gguf\n")
    assert found(tmp_path / PART) == (A, name)


def test_a_bare_sum_is_the_files_own(tmp_path: Path):
    (tmp_path / "m.gguf.sha256").write_text(A)
    assert found(tmp_path / "m.gguf") == (A, "m.gguf.sha256")


def test_the_nearest_list_that_names_the_file_counts(tmp_path: Path):
    (tmp_path / "SHA256SUMS").write_text(f"{B}  m.gguf\n")
    assert found(tmp_path / "m.gguf") == (B, "SHA256SUMS")
    (tmp_path / "m.gguf.sha256").write_text(f"{C}  other.gguf\n")
    assert found(tmp_path / "m.gguf") == (B, "SHA256SUMS")
    (tmp_path / "m.gguf.sha256").write_text(f"{A}  m.gguf\n")
    assert found(tmp_path / "m.gguf") == (A, "m.gguf.sha256")


@pytest.mark.parametrize("name", ["m.gguf.json", "manifest.json", "huggingface.json"])
def test_an_answer_of_the_hub(tmp_path: Path, name: str):
    (tmp_path / name).write_text(
        json.dumps({"siblings": [{"rfilename": "Q4/m.gguf", "lfs": {"sha256": A, "size": 7}}]})
    )
    one, _ = find_expected(str(tmp_path / "m.gguf"))
    assert one is not None
    assert (one.sha256, one.size_bytes) == (A, 7)


def test_metadata_of_a_download_into_a_directory(tmp_path: Path):
    metadata = tmp_path / ".cache/huggingface/download/UD-Q4" / f"{PART}.metadata"
    metadata.parent.mkdir(parents=True)
    metadata.write_text(f"{'0' * 40}\n{A}\n1712656091.1\n")
    assert found(tmp_path / "UD-Q4" / PART) == (A, os.path.join("..", os.path.relpath(metadata, tmp_path)))
    assert found(tmp_path / PART) is None


def test_the_hubs_cache_names_files_by_their_sum(tmp_path: Path):
    blob = tmp_path / "blobs" / A
    blob.parent.mkdir()
    blob.write_bytes(b"x")
    link = tmp_path / "snapshots" / "m.gguf"
    link.parent.mkdir()
    link.symlink_to(f"../blobs/{A}")
    one, _ = find_expected(str(link))
    assert one is not None
    assert one.sha256 == A
    assert str(blob) in one.source


def test_nothing_there(tmp_path: Path):
    assert found(tmp_path / "m.gguf") is None


def test_a_list_that_cannot_be_used_is_named_and_the_next_one_taken(tmp_path: Path):
    (tmp_path / "m.gguf.sha256").write_text("hello\n")
    (tmp_path / "SHA256SUMS").write_text(f"{A}  m.gguf\n")
    one, notes = find_expected(str(tmp_path / "m.gguf"))
    assert one is not None
    assert one.sha256 == A
    assert len(notes) == 1
    assert notes[0].startswith(f"{tmp_path}/m.gguf.sha256: line 1")


def test_contradictions_and_unreadable_lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "SHA256SUMS"
    path.write_text(f"{A}  Q4/m.gguf\n{B}  Q8/m.gguf\n")
    with pytest.raises(SourceError, match=r"SHA256SUMS: says different things of m\.gguf"):
        expected_of("/m.gguf", read_list(str(path)), str(path))
    with pytest.raises(SourceError, match="none: cannot be read: No such file"):
        read_list(str(tmp_path / "none"))
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(SourceError, match="no regular file"):
        read_list(str(tmp_path / "fifo"))
    monkeypatch.setattr(checksum_sources, "LIMIT_BYTES", 10)
    with pytest.raises(SourceError, match="longer than"):
        read_list(str(path))
