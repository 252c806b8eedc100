from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from moetuned.host.file_hash import FileStamp
from moetuned.host.sha256_state import HashState
from moetuned.host.verify_state import (
    PartState,
    VerifyState,
    default_state_path,
    load_state,
    prepare_directory,
    remove_state,
    save_state,
    usable,
)

STAMP = FileStamp(1, 2, 1000, 3, 4)
HALF = PartState(STAMP, HashState(640, "0" * 64))
WHOLE = PartState(STAMP, sha256="f" * 64)


def test_what_is_saved_is_loaded(tmp_path: Path):
    path = str(tmp_path / "state.json")
    assert load_state(path) is None
    save_state(path, 5.0, {"/a": HALF})
    save_state(path, 6.0, {"/a": HALF, "/b": WHOLE})
    assert load_state(path) == VerifyState(1, 6.0, {"/a": HALF, "/b": WHOLE})
    assert os.listdir(tmp_path) == ["state.json"]
    assert os.stat(path).st_mode & 0o777 == 0o600
    remove_state(path)
    remove_state(path)
    assert os.listdir(tmp_path) == []


def test_a_failed_write_leaves_the_old_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = str(tmp_path / "state.json")
    save_state(path, 5.0, {"/a": HALF})

    def refuse(_source: str, _target: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError, match="No space"):
        save_state(path, 6.0, {})
    assert load_state(path) == VerifyState(1, 5.0, {"/a": HALF})
    assert os.listdir(tmp_path) == ["state.json"]


@pytest.mark.parametrize("content", ["{", "[]", '{"version": 2, "began_at": 1, "parts": {}}', "GGUF", "[" * 100_000])
def test_what_is_no_state_is_refused(tmp_path: Path, content: str):
    path = tmp_path / "state.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=r"state\.json is"):
        load_state(str(path))


def test_a_link_is_not_followed(tmp_path: Path):
    (tmp_path / "link").symlink_to("elsewhere")
    with pytest.raises(OSError, match="Too many levels"):
        load_state(str(tmp_path / "link"))


def test_only_the_same_file_counts():
    state = VerifyState(1, 0.0, {"/a": HALF, "/b": WHOLE})
    assert usable(state, "/a", STAMP) == HALF
    assert usable(state, "/b", STAMP) == WHOLE
    assert usable(state, "/c", STAMP) is None
    assert usable(None, "/a", STAMP) is None
    for field in FileStamp.__struct_fields__:
        other = msgspec.structs.replace(STAMP, **{field: 999})
        assert usable(state, "/a", other) is None


@pytest.mark.parametrize(
    "part",
    [
        PartState(STAMP),
        PartState(STAMP, HashState(0, "0" * 64)),
        PartState(STAMP, HashState(63, "0" * 64)),
        PartState(STAMP, HashState(-64, "0" * 64)),
        PartState(STAMP, HashState(1024, "0" * 64)),
        PartState(STAMP, HashState(640, "0" * 63)),
        PartState(STAMP, HashState(640, "x" * 64)),
        PartState(STAMP, sha256="hello"),
    ],
)
def test_what_makes_no_sense_does_not_count(part: PartState):
    assert usable(VerifyState(1, 0.0, {"/a": part}), "/a", STAMP) is None


def test_where_it_is_kept(tmp_path: Path):
    cache = default_state_path(["/a"], {"XDG_CACHE_HOME": "/x", "HOME": "/h"})
    assert cache is not None
    assert cache.startswith("/x/moetuned/verify-")
    home = default_state_path(["/a"], {"XDG_CACHE_HOME": "relative", "HOME": "/h"})
    assert home is not None
    assert home.startswith("/h/.cache/moetuned/verify-")
    assert default_state_path(["/a"], {"HOME": "/h"}) == home
    assert default_state_path(["/b"], {"HOME": "/h"}) != home
    assert default_state_path(["/a"], {}) is None
    path = str(tmp_path / "cache/moetuned/verify.json")
    prepare_directory(path)
    assert os.stat(os.path.dirname(path)).st_mode & 0o777 == 0o700


def test_a_name_that_is_no_utf_8(tmp_path: Path):
    path, name = str(tmp_path / "state.json"), os.fsdecode(b"/models/m\xff.gguf")
    save_state(path, 1.0, {name: HALF})
    assert usable(load_state(path), name, STAMP) == HALF
