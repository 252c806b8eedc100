"""Dropping pages."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import pytest
from fakes.cold_file import make_cold_file

from moetuned.host import page_drop
from moetuned.host.page_cache import PAGE_BYTES, resident_pages
from moetuned.host.page_drop import drop_pages

PAGES = 256


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = Path(make_cold_file(tmp_path / "m.gguf", PAGES * PAGE_BYTES))
    descriptor = os.open(path, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
    for page in range(PAGES):  # one by one, so that no folio is larger than a page
        os.pread(descriptor, 1, page * PAGE_BYTES)
    os.close(descriptor)
    return path


def resident(path: Path) -> list[int]:
    with path.open("rb") as opened:
        return [page for page, there in enumerate(resident_pages(opened.fileno(), 0, PAGES * PAGE_BYTES)) if there]


@pytest.mark.kernel
def test_all_of_it_goes(file: Path) -> None:
    assert len(resident(file)) == PAGES
    done: list[int] = []
    drop_pages(str(file), follow=done.append)
    assert resident(file) == []
    assert done == [PAGES * PAGE_BYTES]


@pytest.mark.kernel
def test_only_these_pages_go(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_drop, "PIECE_BYTES", 4 * PAGE_BYTES)
    drop_pages(str(file), [(10, 20), (30, 31)])
    assert resident(file) == [page for page in range(PAGES) if not 10 <= page < 20 and page != 30]


@pytest.mark.kernel
def test_what_is_mapped_stays(file: Path) -> None:
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        assert mapped[3 * PAGE_BYTES] >= 0
        drop_pages(str(file))
        assert 3 in resident(file)
    drop_pages(str(file))
    assert resident(file) == []


def test_pieces_cover_all_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "f"
    path.write_bytes(bytes(10 * PAGE_BYTES + 1))
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(page_drop, "PIECE_BYTES", 4 * PAGE_BYTES)
    monkeypatch.setattr(
        page_drop.os, "posix_fadvise", lambda _fd, start, length, _advice: asked.append((start, length))
    )
    drop_pages(str(path))
    assert [(start // PAGE_BYTES, length // PAGE_BYTES) for start, length in asked] == [(0, 4), (4, 4), (8, 3)]


def test_a_file_that_is_gone(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        drop_pages(str(tmp_path / "none"))
