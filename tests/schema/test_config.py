"""The configuration's types: every key is optional and described, nothing unknown is taken."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from msgspec import inspect

from moetuned.schema import config, supervise
from moetuned.schema.config import Backend, Config, Generic, Mode, Profile
from moetuned.schema.supervise import (
    SuperviseCommand,
    SuperviseContainer,
    SuperviseNone,
    SuperviseProcess,
    SuperviseUnit,
)

STRUCTS = [
    kind
    for module in (config, supervise)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind.__module__ == module.__name__
]
NEEDED = {
    ("Backend", "name"), ("Generic", "process"), ("SuperviseProcess", "command"), ("SuperviseUnit", "unit"),
    ("SuperviseContainer", "container"), ("SuperviseContainer", "run"), ("SuperviseCommand", "restart"),
}  # fmt: skip


def described(schema: Any) -> bool:
    return isinstance(schema, dict) and "description" in schema


def test_nothing_said_is_a_whole_config_that_changes_nothing() -> None:
    nothing = msgspec.convert({}, Config)
    assert nothing == Config()
    assert (nothing.tuning.profile, nothing.relief.mode) == (Profile.OBSERVE, Mode.OBSERVE)
    assert (nothing.tuning.sysctl, nothing.tuning.thp, nothing.tuning.read_ahead) == ({}, None, None)
    assert (nothing.backends, nothing.alerts) == ([], [])


def test_a_backend_is_watched_unless_it_is_said_how_to_start_it() -> None:
    assert msgspec.convert({"name": "glm"}, Backend).supervise == SuperviseNone()
    started = msgspec.convert({"name": "glm", "supervise": {"by": "process", "command": ["a"]}}, Backend)
    assert started.supervise == SuperviseProcess(["a"])


def test_only_what_cannot_be_guessed_must_be_said() -> None:
    needed = {
        (kind.__name__, field.name) for kind in STRUCTS for field in msgspec.structs.fields(kind) if field.required
    }
    assert needed == NEEDED


@pytest.mark.parametrize("kind", STRUCTS, ids=lambda kind: kind.__name__)
def test_a_key_that_is_not_known_is_refused(kind: type[msgspec.Struct]) -> None:
    values: dict[str, object] = {
        Backend: {"name": "glm"},
        SuperviseProcess: {"command": ["a"]},
        SuperviseUnit: {"unit": "a.service"},
        SuperviseContainer: {"container": "a", "run": ["a"]},
        SuperviseCommand: {"restart": ["/a"]},
        Generic: {"process": "a"},
    }.get(kind, {})
    tag = kind.__struct_config__.tag
    if tag is not None:
        values[kind.__struct_config__.tag_field] = tag
    msgspec.convert(values, kind)
    with pytest.raises(msgspec.ValidationError, match="no_such_key"):
        msgspec.convert({**values, "no_such_key": 1}, kind)


def keys() -> Iterator[Any]:
    _, components = msgspec.json.schema_components([Config])
    for name, schema in sorted(components.items()):
        for key, value in schema.get("properties", {}).items():
            if value != {"enum": [value.get("enum", [None])[0]]}:  # the tag that tells one kind from another
                yield pytest.param(value, id=f"{name}.{key}")


@pytest.mark.parametrize("schema", list(keys()))
def test_every_key_is_described(schema: Any) -> None:
    assert described(schema)
    assert schema["description"].endswith(".")


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ({"name": ""}, "name"),
        ({"name": "../etc"}, "name"),
        ({"name": "a b"}, "name"),
        ({"name": "a", "url": "http://192.0.2.1:8080"}, "url"),
        ({"name": "a", "url": "https://127.0.0.1"}, "url"),
        ({"name": "a", "url": "http://127.0.0.1.example:80/"}, "url"),
        ({"name": "a", "context": {"minimum": 8}}, "minimum"),
        ({"name": "a", "supervise": {"by": "process", "command": []}}, "command"),
        ({"name": "a", "supervise": {"by": "process", "command": "sh -c x"}}, "command"),
        ({"name": "a", "prompt_cache_mib": -1}, "prompt_cache_mib"),
    ],
)
def test_a_backend_that_cannot_be(values: dict[str, Any], word: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=word):
        msgspec.convert(values, Backend)


def patterns(info: Any) -> Iterator[tuple[str, str | None]]:
    """Every pattern within a type, with what is said of it in words."""
    if isinstance(info, inspect.Metadata):
        words = (info.extra or {}).get("allowed")
        for pattern, said in patterns(info.type):
            yield pattern, said or words
    elif isinstance(info, inspect.UnionType):
        for each in info.types:
            yield from patterns(each)
    elif isinstance(info, inspect.StrType) and info.pattern is not None:
        yield info.pattern, None


PATTERNS = [
    pytest.param(pattern, said, id=f"{kind.__name__}.{field.encode_name}")
    for kind in STRUCTS
    for field in inspect.type_info(kind).fields  # type: ignore[attr-defined]
    for pattern, said in patterns(field.type)
]


def test_there_are_patterns() -> None:
    assert len(PATTERNS) >= 3


@pytest.mark.parametrize(("pattern", "said"), PATTERNS)
def test_every_pattern_is_said_in_words_with_an_example_that_fits(pattern: str, said: str | None) -> None:
    assert said is not None
    words, _, examples = said.partition(", e.g. ")
    assert words.startswith("must be ")
    assert not set("^$\\?") & set(words)
    assert all(re.fullmatch(pattern, example) for example in examples.split(" or "))
