from enum import StrEnum
from typing import Annotated, Literal

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta

from moetuned.parse.config_problem import ConfigError
from moetuned.parse.config_shape import shape
from moetuned.parse.config_text import load_with_warnings
from moetuned.parse.config_yaml import read_tree

Size = Annotated[str | int, Meta(description="size")]


class Colour(StrEnum):
    RED = "red"
    ON = "on"


class Left(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="by", tag="left"):
    words: Annotated[list[str], Meta(min_length=1, max_length=3)]
    environment: dict[str, str] = {}


class Right(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="by", tag="right"):
    pass


class Inner(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    count: Annotated[int, Meta(ge=1, le=9)] = 1
    floor: Annotated[int, Meta(ge=0)] = 0
    ratio: float = 0.5


class Whole(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: Annotated[str, Meta(pattern=r"^[a-z0-9]+$", description="A name.")] = "x"
    size: str | int = 0
    wait: str | int | float = "1s"
    colour: Colour = Colour.RED
    choice: Literal["always", "never"] | None = None
    listen: str | Literal[False] = "here"
    budget: Size | Literal["auto"] = "auto"
    flag: bool = True
    maybe: str | None = None
    said: Annotated[
        Annotated[str, Meta(pattern="^[0-9]+$", extra={"allowed": "must be digits, e.g. 7"})] | None,
        Meta(description="Digits."),
    ] = None
    inner: Inner = Inner()
    side: Left | Right = Right()
    items: Annotated[list[Inner], Meta(max_length=2)] = []
    table: dict[str, int | str] = {}


def read(text):
    return shape(read_tree("f", text), Whole)


def problems(text):
    with pytest.raises(ConfigError) as caught:
        read(text)
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("name: off", "name", "off"),
        ("name: 010", "name", "010"),
        ("name: 2024", "name", "2024"),
        ("size: 5", "size", 5),
        ("size: '5'", "size", "5"),
        ("size: 1e3", "size", "1e3"),
        ("size: 010", "size", "010"),
        ("wait: 1.5", "wait", 1.5),
        ("wait: 1e1", "wait", 10.0),
        ("wait: 1:30", "wait", "1:30"),
        ("colour: on", "colour", Colour.ON),
        ("colour: 'red'", "colour", Colour.RED),
        ("choice: never", "choice", "never"),
        ("choice: ~", "choice", None),
        ("listen: off", "listen", False),
        ("listen: false", "listen", False),
        ("listen: 'off'", "listen", "off"),
        ("listen: on", "listen", "on"),
        ("budget: 16GiB", "budget", "16GiB"),
        ("flag: no", "flag", False),
        ("flag: TRUE", "flag", True),
        ("maybe:", "maybe", None),
        ("maybe: ''", "maybe", ""),
        ("inner:", "inner", Inner()),
        ("items:", "items", []),
        ("inner: {ratio: 2}", "inner", Inner(ratio=2.0)),
        ("side: {by: left, words: [-np, 1, off, 1e3]}", "side", None),
        ("side: {by: left, words: [-np, 1, off], environment: {A: 8, B: no}}", "side",
         Left(["-np", "1", "off"], {"A": "8", "B": "no"})),
        ("table: {a.b: 1, c: on, d: 1.5}", "table", {"a.b": 1, "c": "on", "d": "1.5"}),
    ],
)  # fmt: skip
def test_the_schema_decides_what_a_plain_word_means(text, field, value):
    if value is None and field == "side":
        assert problems(text) == ["f:1: side.words: 4 items: at most 3 are allowed"]
    else:
        assert getattr(read(text), field) == value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nmae: x", "f:1: nmae: unknown key; did you mean name?"),
        ("Name: x", "f:1: Name: unknown key; did you mean name?"),
        ("zzz: x", "f:1: zzz: unknown key; allowed: name, size, wait"),
        ("name: UP", r"f:1: name: UP: does not match ^[a-z0-9]+$"),
        ('name: "up\\n"', "does not match ^[a-z0-9]+$"),
        ("said: x", "f:1: said: x: must be digits, e.g. 7"),
        ("name:", "f:1: name: no value: must be text; write a value or leave the key out"),
        ("name: [a]", "f:1: name: a list: must be text, one value"),
        ("maybe: {model}", 'f:1: maybe: a map: braces make a map in YAML; write "{model}" in quotes'),
        ("maybe: {a: b}", "a colon makes a map in YAML; write the text in quotes"),
        ("colour: blue", "f:1: colour: blue: not one of the allowed: red or on"),
        ("colour: reed", "did you mean red?"),
        ("choice: sometimes", "f:1: choice: sometimes: not one of the allowed: always or never"),
        ("flag: maybe", "f:1: flag: maybe: must be true or false"),
        ("flag: 'true'", "must be true or false; take the quotes away"),
        ("inner: {count: 0}", "f:1: inner.count: 0: must be between 1 and 9"),
        ("inner: {count: 10}", "must be between 1 and 9"),
        ("inner: {floor: -1}", "f:1: inner.floor: -1: must be 0 or more"),
        ("inner: {count: '3'}", "must be a whole number between 1 and 9; take the quotes away"),
        ("inner: {count: 010}", "leading zeros are not allowed"),
        ("inner: {count: 1:30}", "digits with colons are no number here"),
        ("inner: {count: 1e0}", "without a point or an exponent"),
        ("inner: {count: true}", "inner.count: true: must be a whole number"),
        ("inner: {ratio: 1e999}", "inner.ratio: 1e999: must be a number"),
        ("inner: {count: 999999999999999999999999999999999999999999999}", "must be a whole number"),
        ("inner: 5", "f:1: inner: 5: must be keys with values, e.g. count: …"),
        ("items: {count: 1}", "f:1: items: a map: must be a list"),
        ("items: [{}, {}, {}]", "f:1: items: 3 items: at most 2 are allowed"),
        ("items: [{cuont: 1}]", "f:1: items[0].cuont: unknown key; did you mean count?"),
        ("side: {words: [a]}", "f:1: side.by: is missing; allowed: left or right"),
        ("side: {by: lefft}", "f:1: side.by: lefft: not one of the allowed: left or right; did you mean left?"),
        ("side: {by: left}", "f:1: side.words: is missing"),
        ("side: {by: left, words: []}", "f:1: side.words: 0 items: at least 1 needed"),
        ("side: {by: right, words: [a]}", "f:1: side.words: unknown key; allowed: by"),
        ("table: 3", "f:1: table: 3: must be keys with values"),
        ('name: "a\\0b"', "must not hold a NUL character"),
    ],
)
def test_each_mistake_is_named_with_what_is_allowed(text, expected):
    assert any(expected in problem for problem in problems(text)), problems(text)


def test_all_mistakes_of_all_sections_are_reported_at_once():
    found = problems("nmae: x\nflag: 3\ninner: {count: 0, floor: x}\nitems: [{count: z}, 5]\nside: {by: up}\n")
    assert [problem.split(": ")[0] for problem in found] == ["f:1", "f:2", "f:3", "f:3", "f:4", "f:4", "f:5"]


def test_values_of_environment_variables_are_not_shown():
    found = problems('side: {by: left, words: [a], environment: {API_KEY: "s3cr3t\\0"}}')
    assert len(found) == 1
    assert "s3cr3t" not in found[0]
    assert "API_KEY" in found[0]


_SCALARS = st.none() | st.booleans() | st.integers(-3, 12) | st.sampled_from(["red", "on", "auto", "always", "x", "é"])
_DATA = st.dictionaries(
    st.sampled_from([*Whole.__struct_fields__, "other"]),
    _SCALARS
    | st.dictionaries(st.sampled_from(["count", "floor", "ratio", "by", "words", "zzz"]), _SCALARS | st.just(["a"]))
    | st.lists(_SCALARS | st.dictionaries(st.sampled_from(["count", "floor"]), _SCALARS, max_size=2), max_size=3),
    max_size=4,
)


@given(_DATA)
def test_what_msgspec_takes_is_taken_as_the_same_value(data):
    try:
        expected = msgspec.convert(data, Whole)
    except msgspec.ValidationError:
        return
    assert read(yaml.safe_dump(data, allow_unicode=True)) == expected


@given(_DATA)
def test_any_data_is_a_value_or_problems_with_a_path(data):
    found = ()
    try:
        value = read(yaml.safe_dump(data, allow_unicode=True))
    except ConfigError as error:
        found = error.problems
    else:
        assert isinstance(value, Whole)
    assert all(problem.path and problem.line for problem in found)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("tuning: {read_ahead: 128KiB}", "must be a whole number between 4 and 65536 or keep; write it without a unit"),
        ("tuning: {read_ahead: large}", "must be a whole number between 4 and 65536 or keep"),
        ("tuning: {sysctl: {vm: {swappiness: 10}}}", "sysctls are written with their dots: vm.swappiness: 10"),
        ("tuning: {sysctl: {vm: {}}}", "one value"),
    ],
)
def test_what_is_said_of_values_of_tuning(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match="tuning") as caught:
        load_with_warnings([("x.yaml", text)])
    assert says in str(caught.value)
