"""What was learned of a model, kept."""

from __future__ import annotations

import errno
import os
import stat
import zlib
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.host import durable_file
from moetuned.schema.heat import Heat, ModelStamp
from moetuned.state import heat_store
from moetuned.state.heat_store import file_name, load, remove_old, save

STAMP = ModelStamp((100, 200), (1, 2), "abcd")
PATHS = ("/models/a-00001-of-00002.gguf", "/models/a-00002-of-00002.gguf")
SHAPE = (2, 3)
HEAT = Heat(STAMP, 2, 3, (0, 5, 4, 0, 0, 5), 5, 0.0)


@pytest.fixture
def directory(tmp_path: Path) -> str:
    return str(tmp_path / "heat")


def keep(directory: str, heat: Heat = HEAT, paths: tuple[str, ...] = PATHS, at: float = 7.5) -> Path:
    assert save(paths, heat, at, restore_interrupted=False, directory=directory)
    return Path(directory, file_name(paths))


def test_what_is_kept_comes_back(directory: str) -> None:
    path = keep(directory)
    assert load(PATHS, STAMP, SHAPE, directory) == (msgspec.structs.replace(HEAT, saved_wall_seconds=7.5), None)
    assert stat.S_IMODE(os.stat(directory).st_mode) == 0o700
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(directory) == [path.name]


def test_a_large_model_takes_little_room(directory: str) -> None:
    layers, experts = 60, 256
    last_used = tuple(1_000_000 + cell % 50 for cell in range(layers * experts))
    path = keep(directory, Heat(STAMP, layers, experts, last_used, 1_000_050, 0.0))
    assert path.stat().st_size < 80_000


def test_nothing_kept_yet(directory: str) -> None:
    assert load(PATHS, STAMP, SHAPE, directory) == (None, None)


def test_what_cannot_be_read_says_why_and_names_its_path_once(directory: str) -> None:
    path = keep(directory)
    os.unlink(path)
    os.symlink("/etc/hostname", path)
    path_is_link = load(PATHS, STAMP, SHAPE, directory)[1] or ""
    os.unlink(path)
    os.mkfifo(path)
    no_file = load(PATHS, STAMP, SHAPE, directory)[1] or ""
    for why in (path_is_link, no_file):
        assert "cannot be read" in why
        assert why.count(str(path)) == 1


def test_that_paging_out_does_nothing_is_kept_without_any_use_and_taken_back(directory: str) -> None:
    nothing = msgspec.structs.replace(HEAT, last_used=(0,) * 6, stayed=True)
    keep(directory, nothing)
    kept, _ = load(PATHS, STAMP, SHAPE, directory)
    assert kept is not None
    assert kept.stayed
    keep(directory, msgspec.structs.replace(nothing, stayed=False))
    kept, _ = load(PATHS, STAMP, SHAPE, directory)
    assert kept is not None
    assert not kept.stayed


def test_what_an_earlier_version_kept_is_read(directory: str) -> None:
    path = keep(directory)
    body = msgspec.msgpack.decode(path.read_bytes()[len(heat_store._MAGIC) + 4 :])
    del body["heat"]["stayed"]
    raw = msgspec.msgpack.encode(body)
    path.write_bytes(heat_store._MAGIC + zlib.crc32(raw).to_bytes(4, "big") + raw)
    kept, why = load(PATHS, STAMP, SHAPE, directory)
    assert why is None
    assert kept is not None
    assert (kept.last_used, kept.stayed) == (HEAT.last_used, False)


@pytest.mark.parametrize(
    "other",
    [
        ModelStamp((100, 201), (1, 2), "abcd"),
        ModelStamp((100, 200), (1, 3), "abcd"),
        ModelStamp((100, 200), (1, 2), "abce"),
    ],
)
def test_another_file_under_the_same_name_is_another_model(directory: str, other: ModelStamp) -> None:
    keep(directory)
    heat, why = load(PATHS, other, SHAPE, directory)
    assert heat is None
    assert "another file" in (why or "")
    keep(directory, msgspec.structs.replace(HEAT, model=other))
    assert load(PATHS, other, SHAPE, directory)[0] is not None
    assert load(PATHS, STAMP, SHAPE, directory)[0] is None


def test_another_shape_is_not_used(directory: str) -> None:
    keep(directory)
    assert load(PATHS, STAMP, (3, 2), directory) == (None, "what was learned is of a model of another shape")


def test_nothing_is_kept_after_an_interrupted_restore_or_when_nothing_is_known(directory: str) -> None:
    assert not save(PATHS, HEAT, 1.0, restore_interrupted=True, directory=directory)
    nothing = msgspec.structs.replace(HEAT, last_used=(0,) * 6)
    assert not save(PATHS, nothing, 1.0, restore_interrupted=False, directory=directory)
    assert not os.path.exists(directory)
    path = keep(directory)
    before = path.read_bytes()
    assert not save(PATHS, HEAT, 99.0, restore_interrupted=True, directory=directory)
    assert path.read_bytes() == before


def test_an_empty_file_is_damaged_and_none_is_not(directory: str) -> None:
    assert load(PATHS, STAMP, SHAPE, directory) == (None, None)
    keep(directory).write_bytes(b"")
    assert "damaged" in (load(PATHS, STAMP, SHAPE, directory)[1] or "")


@given(cut=st.integers(0, 400), flip=st.none() | st.tuples(st.integers(0, 400), st.integers(1, 255)))
def test_damage_is_unknown_and_the_next_save_replaces_it(
    cut: int, flip: tuple[int, int] | None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = str(tmp_path_factory.mktemp("state") / "heat")
    path = keep(directory)
    whole = path.read_bytes()
    raw = bytearray(whole[: len(whole) - 1 - cut % (len(whole) - 1)] if flip is None else whole)
    if flip is not None:
        raw[flip[0] % len(raw)] ^= flip[1]
    path.write_bytes(raw)
    heat, why = load(PATHS, STAMP, SHAPE, directory)
    assert heat is None
    assert "damaged" in (why or "")
    keep(directory)
    assert load(PATHS, STAMP, SHAPE, directory)[0] is not None


@given(st.binary(max_size=200))
def test_no_content_does_harm(raw: bytes) -> None:
    checked = heat_store._MAGIC + zlib.crc32(raw).to_bytes(4, "big") + raw
    assert heat_store._decode(raw) is None
    assert heat_store._decode(checked) is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"last_used": (0, 6, 0, 0, 0, 0)},
        {"last_used": (-1, 0, 0, 0, 0, 0)},
        {"last_used": (1,)},
        {"layers": 0, "last_used": ()},
        {"look": -1},
        {"look": 1 << 60},
        {"saved_wall_seconds": float("inf")},
    ],
)
def test_a_heat_that_contradicts_itself_is_damage(directory: str, wrong: dict[str, object]) -> None:
    path = keep(directory)
    heat = msgspec.structs.replace(HEAT, **wrong)
    body = msgspec.msgpack.encode({"paths": [b"/a"], "heat": heat})
    path.write_bytes(heat_store._MAGIC + zlib.crc32(body).to_bytes(4, "big") + body)
    assert load(PATHS, STAMP, SHAPE, directory)[0] is None
    good = msgspec.msgpack.encode({"paths": [b"/a"], "heat": HEAT})
    path.write_bytes(heat_store._MAGIC + zlib.crc32(good).to_bytes(4, "big") + good)
    assert load(PATHS, STAMP, SHAPE, directory)[0] == HEAT


def test_what_contradicts_itself_is_not_written(directory: str) -> None:
    with pytest.raises(ValueError, match="contradict"):
        save(PATHS, msgspec.structs.replace(HEAT, layers=9), 1.0, restore_interrupted=False, directory=directory)
    assert not os.path.exists(directory)


def test_a_file_that_is_too_large_a_link_or_a_directory_is_a_sentence(directory: str, tmp_path: Path) -> None:
    path = keep(directory)
    with path.open("r+b") as file:
        file.truncate(heat_store.LIMIT_BYTES + 1)
    heat, why = load(PATHS, STAMP, SHAPE, directory)
    assert heat is None
    assert "larger than" in (why or "")
    path.unlink()
    path.symlink_to(tmp_path)
    assert "cannot be read" in (load(PATHS, STAMP, SHAPE, directory)[1] or "")
    keep(directory)
    assert not path.is_symlink()


def test_a_full_disk_leaves_what_was_kept(directory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = keep(directory)
    before = path.read_bytes()

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(durable_file.os, "pwrite", full)
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        keep(directory, msgspec.structs.replace(HEAT, look=9))
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert os.listdir(directory) == [path.name]


def test_it_is_on_the_disk_before_it_has_its_name(directory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(directory)
    done: list[str] = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(
        durable_file.os, "fsync", lambda one: (done.append(os.readlink(f"/proc/self/fd/{one}")), fsync(one))[1]
    )
    monkeypatch.setattr(durable_file.os, "replace", lambda *both: (done.append("replace"), replace(*both))[1])
    path = keep(directory)
    at = done.index("replace")
    assert any(one.startswith(f"{path}.") for one in done[:at])
    assert os.path.realpath(directory) in done[at:]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: gives a directory to somebody else")
def test_a_directory_of_somebody_else_is_not_written_into(directory: str) -> None:
    os.mkdir(directory)
    os.chown(directory, 65534, 65534)
    with pytest.raises(OSError, match="must belong to"):
        keep(directory)
    assert os.listdir(directory) == []


def test_above_the_limit_the_oldest_of_models_that_are_gone_are_removed(directory: str, tmp_path: Path) -> None:
    there = tmp_path / "there.gguf"
    there.touch()
    names = []
    for number in range(6):
        path = keep(directory, paths=(str(there) if number == 0 else f"/gone/{number}.gguf",))
        os.utime(path, (number, number))
        names.append(path.name)
    Path(directory, names[3]).write_bytes(b"damaged")
    os.utime(Path(directory, names[3]), (3, 3))
    assert remove_old(directory, most=6) == ()
    assert set(remove_old(directory, most=3)) == set(names[1:4])
    assert set(remove_old(directory, most=0)) == set(names[4:])
    assert os.listdir(directory) == [names[0]]


def test_what_unfinished_saves_left_is_removed_and_nothing_else(directory: str) -> None:
    path = keep(directory)
    left = f"{path.name}.99999999.new"
    for name in (left, f"{path.name}.{os.getpid()}.new", "notes.txt"):
        Path(directory, name).touch()
    assert remove_old(directory) == (left,)
    assert sorted(os.listdir(directory)) == sorted((path.name, f"{path.name}.{os.getpid()}.new", "notes.txt"))
    assert remove_old(directory + "/none") == ()


def test_names_are_of_the_paths_alone_whatever_bytes_they_have() -> None:
    assert file_name(PATHS) != file_name(PATHS[:1])
    assert file_name(["/a\udcff"]) != file_name(["/a\ufffd"])
    assert heat_store._NAME.fullmatch(file_name(["/a\udcff"]))
