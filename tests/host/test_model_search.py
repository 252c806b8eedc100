"""Models are found where people keep them, each once, and what would make the search long or wrong ends it or is passed over."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from moetuned.host import model_search
from moetuned.host.model_search import homes_to_look_in, in_private_tmp, search, unreadable_for_others, usual_places

GGUF = b"GGUF" + bytes(32 << 10)


def make(path: Path, data: bytes = GGUF) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def names(place: Path) -> list[str]:
    return [os.path.relpath(each.path, place) for each in search([str(place)]).models]


def test_the_largest_first_and_only_models(tmp_path: Path) -> None:
    make(tmp_path / "a.gguf")
    make(tmp_path / "deep/er/b.gguf", GGUF * 2)
    make(tmp_path / "notes.txt")
    make(tmp_path / "page.gguf", b"<html>" * 9999)
    make(tmp_path / "mmproj-a.gguf")
    make(tmp_path / "tiny.gguf", b"GGUF")
    make(tmp_path / "blobs/sha256-0123")
    make(tmp_path / "blobs/sha256-4567", b"{}" * 9999)
    os.mkfifo(tmp_path / "pipe.gguf")
    (tmp_path / "gone.gguf").symlink_to(tmp_path / "nowhere")
    assert names(tmp_path) == ["deep/er/b.gguf", "a.gguf", "blobs/sha256-0123"]


def test_a_split_model_is_one(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        make(tmp_path / f"glm-0000{number}-of-00003.gguf")
    (found,) = search([str(tmp_path)]).models
    assert found.path.endswith("glm-00001-of-00003.gguf")
    assert found.size_bytes == 3 * len(GGUF)


def test_two_names_of_one_model(tmp_path: Path) -> None:
    """As in the cache of Hugging Face: a link in a snapshot to a blob of any name."""
    blob = make(tmp_path / "hub/blobs/abc")
    link = tmp_path / "hub/snapshots/1/m.gguf"
    link.parent.mkdir(parents=True)
    link.symlink_to(blob)
    (tmp_path / "other").mkdir()
    (tmp_path / "other/m.gguf").symlink_to(blob)
    found = search([str(tmp_path / "hub"), str(tmp_path / "other")])
    assert [each.path for each in found.models] == [str(link)]
    assert [each.found for each in found.looked] == [1, 1]


def test_links_to_directories_are_not_followed(tmp_path: Path) -> None:
    make(tmp_path / "else/m.gguf")
    (tmp_path / "place").mkdir()
    (tmp_path / "place/loop").symlink_to(tmp_path)
    assert names(tmp_path / "place") == []


def test_it_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path / "1/2/3/4/5/6/m.gguf")
    assert names(tmp_path) == []
    for number in range(30):
        make(tmp_path / f"n{number}.gguf")
    monkeypatch.setattr(model_search, "MOST_NAMES", 10)
    (looked,) = search([str(tmp_path)]).looked
    assert looked.note is not None
    assert "more than 10 names" in looked.note


def test_a_place_that_does_not_answer_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path / "m.gguf")
    release = threading.Event()
    real = os.path.isdir
    monkeypatch.setattr(os.path, "isdir", lambda path: release.wait(60) if path == "/dead" else real(path))
    found = search(["/dead", str(tmp_path)], 0.05)
    release.set()
    assert [(each.place, each.note) for each in found.looked] == [
        ("/dead", "did not answer within 0 s"),
        (str(tmp_path), None),
    ]
    assert len(found.models) == 1


def test_what_may_not_be_read_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.scandir

    def scandir(path: str) -> object:
        if path.endswith("closed"):
            raise PermissionError(13, "Permission denied", path)
        return real(path)

    (tmp_path / "closed").mkdir()
    monkeypatch.setattr(os, "scandir", scandir)
    (looked,) = search([str(tmp_path)]).looked
    assert looked.note == f"{tmp_path}/closed: Permission denied"
    assert search([str(tmp_path / "none")]).looked == ()


def test_where_it_looks() -> None:
    places = usual_places({"LLAMA_CACHE": "/c", "HF_HOME": "/hf/", "OLLAMA_MODELS": "relative"}, ["/home/ann"])
    assert places[:2] == ("/c", "/hf/hub")
    assert {"/home/ann/.cache/llama.cpp", "/home/ann/models", "/models", "/srv"} <= set(places)
    assert "relative/blobs" not in places
    assert os.path.expanduser("~") in homes_to_look_in({"SUDO_USER": "nobody-of-this-name"})


def test_what_a_user_of_its_own_cannot_read(tmp_path: Path) -> None:
    path = make(tmp_path / "home/ann/m.gguf")
    for directory in (tmp_path / "home/ann", tmp_path / "home", tmp_path):
        directory.chmod(0o755)
    path.chmod(0o644)
    closed = unreadable_for_others(str(path))
    assert closed is None or not closed.startswith(str(tmp_path)), "what is above is pytest's"
    (tmp_path / "home/ann").chmod(0o750)
    assert unreadable_for_others(str(path)) == str(tmp_path / "home/ann")
    path.chmod(0o640)
    assert unreadable_for_others(str(path)) == str(path)
    assert unreadable_for_others(str(tmp_path / "none")) == str(tmp_path / "none")


def test_a_way_over_a_directory_that_only_its_owner_may_enter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.stat
    monkeypatch.setattr(os, "stat", lambda path: real(path if str(path).startswith(str(tmp_path)) else "/"))
    path = make(tmp_path / "open/m.gguf")
    path.chmod(0o644)
    for directory in (tmp_path / "open", tmp_path):
        directory.chmod(0o755)
    closed = tmp_path / "closed"
    closed.mkdir(0o700)
    (closed / "m.gguf").symlink_to("../open/m.gguf")
    (closed / "all").symlink_to(tmp_path / "open")
    (tmp_path / "open/by-link.gguf").symlink_to(closed / "m.gguf")
    for name in ("closed/m.gguf", "closed/all/m.gguf", "open/by-link.gguf"):
        assert unreadable_for_others(str(tmp_path / name)) == str(closed)
    closed.chmod(0o711)
    assert unreadable_for_others(str(tmp_path / "open/by-link.gguf")) is None


def test_what_a_unit_with_a_tmp_of_its_own_does_not_find(tmp_path: Path) -> None:
    assert in_private_tmp("/tmp/m.gguf")
    assert in_private_tmp("/var/tmp/deep/m.gguf")
    assert not in_private_tmp("/models/tmp/m.gguf")
