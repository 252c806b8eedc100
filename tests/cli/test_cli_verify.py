from __future__ import annotations

import hashlib
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from fakes.gguf_bytes import TensorSpec, Typed, gguf_bytes, moe_metadata, moe_tensors

from moetuned.cli import verify
from moetuned.host import file_hash, model_hash, sha256_state
from moetuned.host.file_hash import Follow
from moetuned.host.model_hash import ModelHash
from moetuned.host.sha256_state import HashState, can_resume


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "moetuned"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "models" / "m.gguf"
    path.parent.mkdir()
    path.write_bytes(gguf_bytes(moe_metadata(), moe_tensors()))
    return path


@pytest.fixture
def split(tmp_path: Path) -> list[Path]:
    tensors = moe_tensors(2)
    directory = tmp_path / "split"
    directory.mkdir()
    paths = []
    for index in range(3):
        metadata = {
            "split.no": Typed("u16", index),
            "split.count": Typed("u16", 3),
            "split.tensors.count": Typed("i32", 12),
        }
        path = directory / f"m-{index + 1:05}-of-00003.gguf"
        path.write_bytes(
            gguf_bytes(metadata | (moe_metadata() if index == 0 else {}), tensors[4 * index : 4 * index + 4])
        )
        paths.append(path)
    return paths


def sum_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def write_sums(*paths: Path, name: str = "SHA256SUMS") -> Path:
    target = paths[0].parent / name
    target.write_text("".join(f"{sum_of(path)}  {path.name}\n" for path in paths))
    return target


def run(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(verify.command, [str(one) for one in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


def as_json(*arguments: object) -> tuple[int, dict[str, Any]]:
    code, out, _ = run(*arguments, "--json")
    return code, json.loads(out)


def test_without_sums_it_says_that_the_content_was_not_compared(model: Path):
    code, out, _ = run(model)
    assert code == 0
    assert "was not compared: nothing beside the model says" in out
    assert out.endswith("Nothing wrong was found.\n")


def test_sums_are_found_and_named(split: list[Path], cache: Path):
    sums = write_sums(*split)
    code, out, _ = run(split[1])
    assert code == 0
    assert f"3 of 3 parts equal, SHA-256 from {sums}" in out
    assert out.endswith("Nothing is wrong.\n")
    assert os.listdir(cache) == []


def test_json(split: list[Path]):
    write_sums(*split)
    code, found = as_json(split[0])
    assert code == 0
    assert (found["ok"], found["content_compared"]) == (True, True)
    assert [part["content"] for part in found["parts"]] == ["equal"] * 3
    assert [part["sha256"] for part in found["parts"]] == [sum_of(path) for path in split]
    assert found["read_bytes"] == found["size_bytes"] == sum(path.stat().st_size for path in split)
    assert found["tensors"] == 12


def test_a_flipped_bit_only_the_sum_sees(split: list[Path]):
    write_sums(*split)
    raw = bytearray(split[1].read_bytes())
    raw[-1] ^= 1
    split[1].write_bytes(raw)
    code, found = as_json(split[0])
    assert code == 1
    assert [part["content"] for part in found["parts"]] == ["equal", "different", "equal"]
    (problem,) = found["parts"][1]["problems"]
    assert problem["kind"] == "content"
    assert problem["sentence"].startswith(f"{split[1].name} is damaged or another version")
    assert as_json(split[0], "--quick")[0] == 0


def test_what_is_already_known_to_be_wrong_is_not_read(split: list[Path]):
    write_sums(*split)
    os.truncate(split[2], split[2].stat().st_size - 1)
    code, found = as_json(split[0])
    assert code == 1
    assert [part["content"] for part in found["parts"]] == ["equal", "equal", "not_read"]
    assert found["parts"][2]["problems"][0]["kind"] == "short"
    assert found["read_bytes"] == split[0].stat().st_size + split[1].stat().st_size


def test_a_size_that_differs_from_the_manifest_needs_no_reading(model: Path):
    entry = {"rfilename": model.name, "lfs": {"sha256": sum_of(model), "size": model.stat().st_size + 1}}
    (model.parent / "manifest.json").write_text(json.dumps({"siblings": [entry]}))
    code, found = as_json(model)
    assert code == 1
    assert found["parts"][0]["problems"][0]["kind"] == "size"
    assert found["read_bytes"] == 0


def test_a_list_that_is_given_comes_first(model: Path, tmp_path: Path):
    write_sums(model)
    other = tmp_path / "list"
    other.write_text(f"{'0' * 64}  m.gguf\n")
    assert run(model)[0] == 0
    code, out, _ = run(model, "--sha256", other)
    assert code == 1
    assert f"should be {'0' * 64} by {other}" in out


def test_the_sum_itself_can_be_given(model: Path):
    assert run(model, "--sha256", sum_of(model).upper())[0] == 0
    assert run(model, "--sha256", "0" * 64)[0] == 1


def test_a_given_list_without_the_name(model: Path, tmp_path: Path):
    other = tmp_path / "list"
    other.write_text(f"{sum_of(model)}  original.gguf\n")
    code, out, _ = run(model, "--sha256", other)
    assert code == 0
    assert "m.gguf is not named in" in out
    assert "has the content of original.gguf" in out
    other.write_text(f"{'0' * 64}  original.gguf\n")
    assert run(model, "--sha256", other)[0] == 1


def test_a_part_that_the_list_beside_it_leaves_out(split: list[Path]):
    sums = write_sums(*split[:2])
    code, found = as_json(split[0])
    assert (code, found["content_compared"]) == (0, False)
    assert found["notes"] == [f"{split[2].name} is not in {sums}, so its content was not compared"]


def test_sums_are_printed_on_request(model: Path):
    code, out, _ = run(model, "--hash")
    assert code == 0
    assert f"\n{sum_of(model)}  m.gguf\n" in out


def test_what_lies_behind_the_last_tensor_is_told(model: Path):
    model.write_bytes(model.read_bytes() + bytes(100))
    code, found = as_json(model)
    assert code == 0
    assert "100 bytes lie behind its last tensor" in found["notes"][0]


def test_a_name_that_is_no_utf_8(model: Path):
    name = os.path.join(os.fsencode(model.parent), b"m\xff.gguf")
    os.rename(model, name)
    path = os.fsdecode(name)
    code, found = as_json(path, "--hash")
    assert (code, found["parts"][0]["path"]) == (0, path)
    code, out, _ = run(path, "--hash")
    assert code == 0
    assert out.startswith("m\\udcff.gguf: ")


@pytest.mark.parametrize("options", [[], ["--hash"], ["--quick"]])
def test_holes_count_where_no_sum_tells(model: Path, options: list[str]):
    raw = gguf_bytes({}, [TensorSpec("a", (1 << 20,))], with_data=False)
    model.write_bytes(raw)
    os.truncate(model, (4 << 20) + 4096)
    if model.stat().st_blocks * 512 >= 4 << 20:
        pytest.skip("this file system keeps no holes")
    code, found = as_json(model, *options)
    assert code == 1
    assert found["parts"][0]["problems"][0]["kind"] == "holes"
    assert found["read_bytes"] == 0
    assert as_json(model, "--sha256", sum_of(model))[0] == 0


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["{dir}/none.gguf"], "there is no such file"),
        (["{dir}"], "is a directory"),
        (["{dir}/m.gguf", "--sha256", "{dir}/none"], "none is neither a file nor a SHA-256 sum"),
        (["{dir}/m.gguf", "--sha256", "{dir}/m.gguf"], "m.gguf: "),
        (["{dir}/m.gguf", "--quick", "--hash"], "--quick reads no content"),
        (["{dir}/m.gguf", "--hash", "--resume", "{dir}/none/state"], "--resume"),
        (["{dir}/m.gguf", "--hash", "--resume", "{dir}/m.gguf"], "is no state of moetunectl verify"),
        (["{dir}/m.gguf", "--hash", "--restart", "--resume", "{dir}/m.gguf"], "is no state of moetunectl verify"),
    ],
)
def test_usage(model: Path, arguments: list[str], expected: str):
    before = model.read_bytes()
    code, _, err = run(*(one.replace("{dir}", str(model.parent)) for one in arguments))
    assert code == 2
    assert expected in err
    assert model.read_bytes() == before


def test_one_bare_sum_for_several_parts_is_refused(split: list[Path]):
    code, _, err = run(split[0], "--sha256", "0" * 64)
    assert code == 2
    assert "the model has 3 parts" in err


def test_a_missing_part_is_an_answer(split: list[Path]):
    split[1].unlink()
    code, out, _ = run(split[0])
    assert code == 1
    assert f"part {split[1].name} (of 3 parts) is missing" in out


def interrupt(monkeypatch: pytest.MonkeyPatch, after_bytes: int) -> None:
    """As Ctrl-C once so many bytes are hashed; the thread is held there, so that it is always the same place."""
    there, go_on = threading.Event(), threading.Event()
    plain, plain_stop = file_hash.hash_file, ModelHash.stop

    def held(path: str, follow: Follow, start: HashState | None = None) -> str | None:
        def following(done: int, state: HashState | None) -> bool:
            if not follow(done, state) or done < after_bytes:
                return done < after_bytes
            there.set()
            return not go_on.wait(60)

        return plain(path, following, start)

    def wait(_hashing: ModelHash, _seconds: float) -> bool:
        assert there.wait(60)
        raise KeyboardInterrupt

    def stop(hashing: ModelHash, seconds: float) -> None:
        go_on.set()
        plain_stop(hashing, seconds)

    monkeypatch.setattr(model_hash, "hash_file", held)
    monkeypatch.setattr(ModelHash, "wait", wait)
    monkeypatch.setattr(ModelHash, "stop", stop)


@pytest.mark.skipif(not can_resume(), reason="no libcrypto here whose hashes can be taken up again")
@pytest.mark.parametrize("named", [False, True])
def test_interrupted_it_goes_on_from_there(
    model: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: bool
):
    monkeypatch.setattr(file_hash, "PIECE_BYTES", 4096)
    options = ["--resume", tmp_path / "state"] if named else []
    write_sums(model)
    with monkeypatch.context() as patch:
        interrupt(patch, 8192)
        code, _, err = run(model, *options)
    assert code == 130
    assert "Interrupted after 8 KiB of 41 KiB. Run the same command again to go on from there." in err
    assert (tmp_path / "state").exists() == named
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache.parent))
    code, found = as_json(model, *options)
    assert code == 0
    assert found["read_bytes"] == model.stat().st_size - 8192
    assert "8 KiB were read by the interrupted run of" in found["notes"][0]
    assert not (tmp_path / "state").exists()
    assert as_json(model, *options)[1]["read_bytes"] == model.stat().st_size


def test_parts_that_were_finished_are_not_read_again(split: list[Path], cache: Path, monkeypatch: pytest.MonkeyPatch):
    write_sums(*split)
    monkeypatch.setattr(sha256_state, "_LIBRARIES", ())
    sha256_state._proven.cache_clear()
    try:
        with monkeypatch.context() as patch:
            interrupt(patch, 1)
            patch.setattr(model_hash, "hash_file", hold_at(split[1].name, model_hash.hash_file))
            code, _, err = run(split[0], "--jobs", "1")
        assert code == 130
        assert "parts that were finished are kept" in err
        monkeypatch.setenv("XDG_CACHE_HOME", str(cache.parent))
        code, found = as_json(split[0])
        assert code == 0
        assert [part["content"] for part in found["parts"]] == ["equal"] * 3
        assert found["read_bytes"] == split[1].stat().st_size + split[2].stat().st_size
    finally:
        sha256_state._proven.cache_clear()


def hold_at(name: str, inner: Any) -> Any:
    """Lets every file but that one through to the plain function."""

    def hashing(path: str, follow: Follow, start: HashState | None = None) -> str | None:
        return (inner if path.endswith(name) else file_hash.hash_file)(path, follow, start)

    return hashing


def test_a_changed_file_is_read_from_its_beginning(model: Path, cache: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(file_hash, "PIECE_BYTES", 4096)
    with monkeypatch.context() as patch:
        interrupt(patch, 8192)
        assert run(model, "--hash")[0] == 130
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache.parent))
    os.utime(model, ns=(1, 1))
    code, found = as_json(model, "--hash")
    assert (code, found["read_bytes"], found["parts"][0]["sha256"]) == (0, model.stat().st_size, sum_of(model))


def test_a_cache_that_cannot_be_used_is_told_and_no_obstacle(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    code, found = as_json(model, "--hash")
    assert code == 0
    assert "an interrupted run would begin again" in found["notes"][0]


def test_a_damaged_state_is_told_and_begun_again(model: Path, cache: Path, monkeypatch: pytest.MonkeyPatch):
    cache.mkdir(parents=True, mode=0o700)
    (cache / "state").write_text("{")
    monkeypatch.setattr(verify, "default_state_path", lambda _parts, _environment: str(cache / "state"))
    code, found = as_json(model, "--hash")
    assert (code, found["read_bytes"]) == (0, model.stat().st_size)
    assert "it is begun again" in found["notes"][0]


def test_quick_says_that_it_did_not_look_for_sums(model: Path):
    write_sums(model)
    code, out, _ = run(model, "--quick")
    assert code == 0
    assert "  content   was not read (--quick)\n" in out
    assert "nothing beside the model" not in out


def test_what_may_not_be_looked_at_is_not_called_absent(model: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(path: str) -> None:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "lstat", refuse)
    code, _, err = run(model)
    assert code == 4
    assert "Permission denied; run this as a user who may read it" in err


def test_extents_that_cannot_be_checked_are_not_called_right(model: Path):
    model.write_bytes(gguf_bytes({}, [TensorSpec("odd", (32,), 99), TensorSpec("a", (32,))]))
    code, out, _ = run(model)
    assert code == 0
    assert "every tensor lies inside its file" not in out
    assert "unknown type 99" in out
    assert as_json(model)[1]["extents_checked"] is False
