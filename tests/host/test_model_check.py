from __future__ import annotations

import os
from pathlib import Path

import pytest
from fakes.gguf_bytes import F32, TensorSpec, Typed, gguf_bytes, moe_metadata, moe_tensors, write_parts

from moetuned.host.model_check import SMALLEST_HOLE_BYTES, check_model, hole_problem


def problems(path: Path) -> list[tuple[str, str]]:
    """Kind and sentence of everything found."""
    check = check_model(str(path))
    found = [problem for part in check.parts for problem in part.problems] + list(check.problems)
    assert all("\n" not in problem.sentence for problem in found)
    return [(problem.kind, problem.sentence) for problem in found]


def only(path: Path) -> tuple[str, str]:
    (found,) = problems(path)
    return found


@pytest.fixture
def parts(tmp_path: Path) -> list[Path]:
    return write_parts(tmp_path)


def test_a_whole_model_from_any_part(parts: list[Path]):
    for path in parts:
        check = check_model(str(path))
        assert [part.path for part in check.parts] == [str(one) for one in parts]
        assert [part.size_bytes for part in check.parts] == [one.stat().st_size for one in parts]
        assert not any(part.problems or part.notes for part in check.parts)
        assert check.problems == ()


def test_every_missing_part_is_named(parts: list[Path]):
    parts[0].unlink()
    parts[2].unlink()
    assert [
        (kind, path.name in sentence) for (kind, sentence), path in zip(problems(parts[1]), parts[::2], strict=True)
    ] == [
        ("missing", True),
        ("missing", True),
    ]
    assert "of 3 parts" in problems(parts[1])[0][1]


@pytest.mark.parametrize("ending", [".part", ".incomplete", ".crdownload"])
def test_a_part_still_downloading_under_another_name(parts: list[Path], ending: str):
    parts[1].rename(f"{parts[1]}{ending}")
    kind, sentence = only(parts[0])
    assert kind == "unfinished"
    assert f"{parts[1].name}{ending} is there; let the download finish" in sentence


def test_a_part_whose_space_was_reserved(parts: list[Path]):
    Path(f"{parts[1]}.aria2").touch()
    kind, sentence = only(parts[0])
    assert kind == "unfinished"
    assert f"{parts[1].name} is still downloading" in sentence


def test_every_truncated_part_is_named(parts: list[Path]):
    for path in parts[1:]:
        os.truncate(path, path.stat().st_size - 1)
    found = problems(parts[0])
    assert [kind for kind, _ in found] == ["short", "short"]
    assert "1 bytes short" in found[0][1]
    assert parts[2].name in found[1][1]


def test_a_part_cut_off_inside_its_header(parts: list[Path]):
    os.truncate(parts[1], 40)
    kind, sentence = only(parts[0])
    assert kind == "unreadable"
    assert sentence.startswith(f"{parts[1].name}: it ends after 40 bytes, inside its own header")


def test_swapped_parts(parts: list[Path]):
    parts[1].rename(parts[1].parent / "x")
    parts[2].rename(parts[1])
    (parts[1].parent / "x").rename(parts[2])
    found = problems(parts[0])
    assert [kind for kind, _ in found] == ["name", "name"]
    assert f"{parts[1].name} is by its header part 3 of 3" in found[0][1]
    assert f"{parts[2].name} is by its header part 2 of 3" in found[1][1]


def test_renamed_to_something_else(parts: list[Path]):
    target = parts[0].parent / "model.gguf"
    parts[0].rename(target)
    kind, sentence = only(target)
    assert kind == "name"
    assert "is part 1 of 3 of a split model by its header" in sentence


def test_joined_with_cat(parts: list[Path]):
    target = parts[0].parent / "joined.gguf"
    target.write_bytes(b"".join(path.read_bytes() for path in parts))
    kind, sentence = only(target)
    assert kind == "joined"
    assert f"joined.gguf: another GGUF file begins at byte {parts[0].stat().st_size}" in sentence
    assert "llama-gguf-split --merge" in sentence


def test_a_wrong_count(tmp_path: Path):
    paths = write_parts(tmp_path, parts=3)
    for index, path in enumerate(paths[:2]):
        path.rename(tmp_path / f"m-{index + 1:05}-of-00002.gguf")
    found = problems(tmp_path / "m-00001-of-00002.gguf")
    assert [kind for kind, _ in found] == ["name", "name"]
    assert "one of 3 parts, but its name says one of 2 parts" in found[0][1]


def test_a_part_of_another_model(parts: list[Path], tmp_path: Path):
    other = tmp_path / "other"
    other.mkdir()
    wrong = write_parts(other, parts=3)[1]
    raw = wrong.read_bytes().replace(b"blk.0.", b"blk.7.")
    parts[1].write_bytes(raw)
    assert problems(parts[0]) == []  # Nothing but the content tells: names of tensors may be any.
    parts[1].write_bytes(parts[2].read_bytes().replace(b"split.no", b"split.xx"))
    assert only(parts[0])[0] == "name"


def test_parts_that_hold_too_few_tensors_together(tmp_path: Path):
    paths = write_parts(tmp_path)
    metadata = {"split.no": Typed("u16", 1), "split.count": Typed("u16", 3), "split.tensors.count": Typed("i32", 12)}
    paths[1].write_bytes(gguf_bytes(metadata, [TensorSpec("x", (32,))]))
    kind, sentence = only(paths[0])
    assert kind == "mixed"
    assert "hold 9 tensors and not the 12 they promise" in sentence


def test_extents_that_overlap_or_lie_past_the_end(tmp_path: Path):
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf_bytes(moe_metadata(), [TensorSpec("a", (64,)), TensorSpec("b", (64,), F32, 32)]))
    assert "its tensors 'a' and 'b' overlap" in only(path)[1]
    path.write_bytes(
        gguf_bytes(moe_metadata(), [TensorSpec("a", (64,)), TensorSpec("b", (64,), F32, 1 << 40)], with_data=False)
    )
    kind, sentence = only(path)
    assert kind == "extents"
    assert "'b' would begin at byte" in sentence


def test_bytes_behind_the_last_tensor_are_told_and_no_error(tmp_path: Path):
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf_bytes(moe_metadata(), moe_tensors()) + bytes(100))
    check = check_model(str(path))
    assert check.parts[0].problems == ()
    assert "100 bytes lie behind its last tensor" in check.parts[0].notes[0]


def sparse_model(path: Path, hole_bytes: int) -> None:
    """Written up to a hole of that size in the middle of the second tensor."""
    elements = 3 * SMALLEST_HOLE_BYTES // 4
    raw = gguf_bytes({}, [TensorSpec("first", (16,)), TensorSpec("second", (elements,))], with_data=False)
    start = -(-len(raw) // 4096) * 4096
    with path.open("wb") as file:
        file.write(raw)
        file.write(b"x" * (start + 4096 - len(raw)))
        file.seek(hole_bytes, os.SEEK_CUR)
        file.write(b"x" * (4 * elements))
        file.truncate(-(-len(raw) // 32) * 32 + 64 + 4 * elements)


def test_a_hole_in_a_tensor_is_an_unfinished_download(tmp_path: Path):
    path = tmp_path / "m.gguf"
    sparse_model(path, 2 * SMALLEST_HOLE_BYTES)
    check = check_model(str(path))
    assert check.parts[0].problems == ()
    found = hole_problem(check.parts[0])
    if path.stat().st_blocks * 512 >= path.stat().st_size:
        pytest.skip("this file system keeps no holes")
    assert found is not None
    assert found.kind == "holes"
    assert "m.gguf has 2.0 MiB that were never written" in found.sentence
    assert "first in the tensor 'second'" in found.sentence


def test_small_holes_may_be_blocks_of_zeros(tmp_path: Path):
    path = tmp_path / "m.gguf"
    sparse_model(path, 64 << 10)
    assert hole_problem(check_model(str(path)).parts[0]) is None


def test_a_file_without_holes(parts: list[Path]):
    assert hole_problem(check_model(str(parts[0])).parts[0]) is None


def test_a_renamed_part_is_known_by_its_header(parts: list[Path]):
    parts[1].rename(parts[1].with_name("renamed.gguf"))
    kind, sentence = only(parts[0])
    assert kind == "missing"
    assert "m-00002-of-00003.gguf" in sentence
    assert "renamed.gguf is by its header part 2" in sentence
    assert "give it its old name back" in sentence


def test_the_name_of_a_part_that_is_still_downloading(parts: list[Path]):
    moved = parts[1].rename(parts[1].with_name(parts[1].name + ".part"))
    kind, sentence = only(moved)
    assert kind == "unfinished"
    assert "m-00002-of-00003.gguf" in sentence


def test_a_tensor_of_unknown_type_has_no_known_end(tmp_path: Path):
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf_bytes({}, [TensorSpec("odd", (32,), 99), TensorSpec("a", (32,))]))
    (part,) = check_model(str(path)).parts
    assert part.problems == ()
    assert "'odd' has the unknown type 99" in part.notes[0]
