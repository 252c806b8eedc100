from __future__ import annotations

from typing import Any

import pytest
from fakes.gguf_bytes import TensorSpec, Typed, gguf_bytes
from hypothesis import given
from hypothesis import strategies as st

from moetuned.gguf.header import Header, parse_header
from moetuned.gguf.split_files import Part, SplitName, missing_part, part_names, split_name, wrong_part, wrong_parts


def part(name: str, number: int, count: int, tensors: int = 2, total: int | None = None, **more: Any) -> Part:
    """Part `number` (from 0) of `count`, each with `tensors` tensors."""
    metadata = {
        "split.no": Typed("u16", number),
        "split.count": Typed("u16", count),
        "split.tensors.count": Typed("i32", tensors * count if total is None else total),
    }
    if number == 0:
        metadata["general.architecture"] = "qwen3moe"
    metadata.update({key.replace("__", "."): value for key, value in more.items()})
    raw = gguf_bytes(metadata, [TensorSpec(f"blk.{number}.t{i}.weight", (32, 4)) for i in range(tensors)])
    header = parse_header(raw, len(raw))
    assert isinstance(header, Header)
    return Part(name, len(raw), header)


def whole(count: int = 3) -> list[Part]:
    return [part(name, index, count) for index, name in enumerate(part_names(f"m-00001-of-{count:05}.gguf"))]


def renamed(one: Part, name: str) -> Part:
    return Part(name, one.size_bytes, one.header)


def sentence(parts: list[Part]) -> str:
    wrong = wrong_part(parts)
    assert wrong is not None
    assert "\n" not in wrong
    return wrong


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("glm-00003-of-00007.gguf", SplitName("glm", 3, 7)),
        ("a-00001-of-00002-00001-of-00003.gguf", SplitName("a-00001-of-00002", 1, 3)),
        ("-00001-of-00001.gguf", SplitName("", 1, 1)),
        ("glm.gguf", None),
        ("glm-00000-of-00007.gguf", None),
        ("glm-00008-of-00007.gguf", None),
        ("glm-00001-of-99999.gguf", None),
        ("glm-1-of-7.gguf", None),
        ("glm-00003-of-00007.gguf.part", None),
        ("glm-0000３-of-00007.gguf", None),
    ],
)
def test_split_name(name: str, expected: SplitName | None):
    assert split_name(name) == expected


@given(st.text(max_size=20), st.integers(1, 1024), st.data())
def test_any_part_finds_all(prefix: str, count: int, data: st.DataObject):
    number = data.draw(st.integers(1, count))
    names = part_names(f"{prefix}-{number:05}-of-{count:05}.gguf")
    assert len(set(names)) == len(names) == count
    assert all(part_names(name) == names for name in (names[0], names[-1]))
    assert names[number - 1] == f"{prefix}-{number:05}-of-{count:05}.gguf"


def test_a_name_without_the_rule_stands_alone():
    assert part_names("model.gguf") == ("model.gguf",)


def test_missing_part():
    names = part_names("m-00001-of-00003.gguf")
    assert missing_part(names, [*names, "other"]) is None
    assert missing_part(names, [names[0], names[2]]) == (
        "part m-00002-of-00003.gguf (of 3 parts) is missing; download it into the same directory"
    )
    assert "and 1 more of 3 parts" in (missing_part(names, [names[0]]) or "")
    downloading = missing_part(names, [names[0], names[1] + ".incomplete", names[2]]) or ""
    assert "still downloading" in downloading
    assert names[1] + ".incomplete" in downloading
    other = missing_part(names, [names[0], "M (1)-00002-of-00003.gguf", names[2]]) or ""
    assert "M (1)-00002-of-00003.gguf is there; if it was renamed" in other


def test_whole_models_are_right():
    assert wrong_part(whole(1)) is None
    assert wrong_part(whole(3)) is None
    unsplit = gguf_bytes({"general.architecture": "llama"}, [TensorSpec("a", (4,))])
    header = parse_header(unsplit, len(unsplit))
    assert isinstance(header, Header)
    assert wrong_part([Part("a.gguf", len(unsplit), header)]) is None


def test_one_part_renamed_to_a_plain_name_or_joined():
    assert "part 2 of 3 of a split model" in sentence([renamed(whole()[1], "model.gguf")])


def test_parts_that_changed_places():
    first, second, third = whole()
    wrong = sentence([first, renamed(third, second.name), renamed(second, third.name)])
    assert wrong.startswith("m-00002-of-00003.gguf is by its header part 3 of 3")


def test_part_of_a_model_with_another_count():
    parts = whole()
    parts[1] = part(parts[1].name, 1, 4, total=6)
    assert "one of 4 parts, but its name says one of 3 parts" in sentence(parts)


def test_a_whole_model_named_like_a_part():
    parts = whole()
    raw = gguf_bytes({"general.architecture": "llama"}, [TensorSpec("a", (4,))])
    header = parse_header(raw)
    assert isinstance(header, Header)
    parts[2] = Part(parts[2].name, len(raw), header)
    assert "a model of its own, but its name says one of 3 parts" in sentence(parts)


def test_mixed_models():
    parts = whole()
    parts[1] = part(parts[1].name, 1, 3, total=99)
    assert "a model of 99 tensors and m-00001-of-00003.gguf to one of 6" in sentence(parts)
    parts[1] = part(parts[1].name, 1, 3, general__architecture="llama")
    assert "the parts are mixed" in sentence(parts)


def test_the_same_tensor_twice_and_too_few_tensors():
    parts = whole()
    doubled = part(parts[0].name, 0, 3)
    parts[1] = Part(parts[1].name, doubled.size_bytes, part_with_tensors_of(doubled, number=1))
    assert "that m-00001-of-00003.gguf holds too" in sentence(parts)
    parts[1] = part(whole()[1].name, 1, 3, tensors=1, total=6)
    assert "hold 5 tensors and not the 6 they promise" in sentence(parts)


def part_with_tensors_of(other: Part, number: int) -> Header:
    raw = gguf_bytes(
        {
            "split.no": Typed("u16", number),
            "split.count": Typed("u16", 3),
            "split.tensors.count": Typed("i32", 6),
        },
        [TensorSpec(tensor.name, tensor.shape) for tensor in other.header.tensors],
    )
    header = parse_header(raw)
    assert isinstance(header, Header)
    return header


def test_truncated_or_still_downloading():
    parts = whole()
    parts[2] = Part(parts[2].name, parts[2].size_bytes - 100, parts[2].header)
    wrong = sentence(parts)
    assert wrong.startswith("m-00003-of-00003.gguf has ")
    assert "(100 bytes short): it is still downloading or was cut off" in wrong


def test_a_tensor_far_past_the_end_is_damage_and_no_download():
    raw = gguf_bytes({}, [TensorSpec("a", (4,)), TensorSpec("b", (4,), offset=1 << 40)], with_data=False)
    header = parse_header(raw)
    assert isinstance(header, Header)
    assert "'b' would begin at byte" in sentence([Part("m.gguf", 4096, header)])


def test_a_longer_file_is_right():
    parts = whole(1)
    assert wrong_part([Part(parts[0].name, parts[0].size_bytes + 4096, parts[0].header)]) is None


def test_the_first_thing_wrong_with_every_part():
    parts = whole(4)
    short = Part(parts[1].name, parts[1].size_bytes - 1, parts[1].header)
    swapped = renamed(parts[0], parts[3].name)
    found = list(wrong_parts([parts[0], short, None, swapped]))
    assert [(one.index, one.kind) for one in found] == [(1, "short"), (3, "name")]
    assert list(wrong_parts(parts)) == []


def test_all_parts_together_are_judged_only_when_each_is_right():
    parts = whole()
    parts[1] = part(parts[1].name, 1, 3, tensors=1, total=6)
    assert [(one.index, one.kind) for one in wrong_parts(parts)] == [(None, "mixed")]
    assert list(wrong_parts([parts[0], parts[1], None])) == []
