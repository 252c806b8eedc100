"""A config's tree to plain values of the schema's types, with every problem found, not only the first.

The schema decides what a plain scalar means: where text is wanted, `off`, `8080` and `1e3` are text; where a number is
wanted, only decimal digits are a number. So YAML 1.1's guesses (off is false, 010 is 8, 1:30 is 90) never happen.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from moetuned.parse.close_match import close_match
from moetuned.parse.config_problem import ConfigError, Problem, any_of, key_path, shown
from moetuned.parse.config_yaml import ListNode, MapNode, Node, ScalarNode, is_null

_Config = TypeVar("_Config", bound=msgspec.Struct)
_Path = tuple[str | int, ...]

_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9_]*)")
_FLOAT = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?")
_BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_INTEGER_LIMIT = 1 << 62
_LONGEST_NUMBER = 30
_SECRET_KEYS = frozenset({"environment"})
_SECRET_OF_ALERTS = frozenset({"url", "urls", "proxy", "click", "headers_file", "token_file"})
"""The path of a webhook's URL lets its holder in; somebody may write a password into it, or a token where its file belongs."""
_NOT_KNOWN = object()


def shape(tree: MapNode, kind: type[_Config]) -> _Config:
    """The tree as a value of the struct type `kind`. Raises ConfigError with every problem of every section."""
    shaper = _Shaper()
    values = shaper.any(tree, inspect.type_info(kind), ())
    if shaper.problems:
        raise ConfigError(shaper.problems)
    try:
        return msgspec.convert(values, type=kind)
    except msgspec.ValidationError as error:
        # Only a rule that this module does not know yet comes here: still an error, with msgspec's own words.
        raise ConfigError([Problem(tree.file, "", None, str(error), tree.line)]) from None


class _Shaper:
    """Walks tree and schema together and collects problems."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def problem(self, node: Node, path: _Path, value: str | None, hint: str, line: int | None = None) -> None:
        if value is not None and _is_secret(path):
            value = "(its value is not shown)"
        self.problems.append(Problem(node.file, key_path(path), value, hint, line or node.line))

    def any(self, node: Node, info: inspect.Type, path: _Path) -> object:
        """The node's value as `info` wants it; after a problem, anything."""
        options = _options(info)
        containers = [each for each in options if isinstance(each, _CONTAINERS)]
        if not containers:
            return self.scalar(node, options, path, _allowed_words(info))
        if is_null(node):
            if any(isinstance(each, inspect.NoneType) for each in options):
                return None
            node = _empty_like(node, containers[0])
        structs = [each for each in containers if isinstance(each, inspect.StructType)]
        if structs:
            return self.struct(node, structs, path)
        if isinstance(containers[0], inspect.ListType):
            return self.list(node, containers[0], path)
        assert isinstance(containers[0], inspect.DictType)
        return self.dict(node, containers[0], path)

    def struct(self, node: Node, kinds: Sequence[inspect.StructType], path: _Path) -> object:
        if not isinstance(node, MapNode):
            example = next((field.encode_name for kind in kinds for field in kind.fields), kinds[0].tag_field)
            self.problem(node, path, _shown_node(node), f"must be keys with values, e.g. {example}: …")
            return None
        kind = self.tagged(node, kinds, path)
        if kind is None:
            return None
        fields = {field.encode_name: field for field in kind.fields}
        names = [*fields] if kind.tag_field is None else [kind.tag_field, *fields]
        values: dict[str, object] = {} if kind.tag_field is None else {kind.tag_field: kind.tag}
        for key, value in node.entries.items():
            if key in fields:
                if is_null(value) and not fields[key].required and _is_container(fields[key].type):
                    continue
                values[key] = self.any(value, fields[key].type, (*path, key))
            elif key != kind.tag_field:
                self.problem(value, (*path, key), None, _unknown_key(key, names), node.lines[key])
        for name, field in fields.items():
            if field.required and name not in values:
                self.problem(node, (*path, name), None, f"is missing; {_description(field.type)}")
        return values

    def tagged(self, node: MapNode, kinds: Sequence[inspect.StructType], path: _Path) -> inspect.StructType | None:
        """Which of several structs the map is, by its tag field."""
        if kinds[0].tag_field is None:
            return kinds[0]
        field, allowed = kinds[0].tag_field, [str(kind.tag) for kind in kinds]
        tag = node.entries.get(field)
        if tag is None:
            self.problem(node, (*path, field), None, f"is missing; allowed: {any_of(allowed)}")
            return None
        text = tag.text if isinstance(tag, ScalarNode) else None
        for kind in kinds:
            if text == kind.tag:
                return kind
        self.problem(tag, (*path, field), _shown_node(tag), _not_allowed(text or "", allowed))
        return None

    def list(self, node: Node, info: inspect.ListType, path: _Path) -> object:
        if not isinstance(node, ListNode):
            hint = "must be a list, e.g. [a, b]"
            if path[-1:] == ("command",):
                hint = "must be a list, one word an item, e.g. [llama-server, -m, /models/a.gguf]; no shell splits it"
            self.problem(node, path, _shown_node(node), hint)
            return None
        count = len(node.items)
        if info.max_length is not None and count > info.max_length:
            self.problem(node, path, f"{count} items", f"at most {info.max_length} are allowed")
        if info.min_length is not None and count < info.min_length:
            self.problem(node, path, f"{count} items", f"at least {info.min_length} needed")
        return [self.any(item, info.item_type, (*path, index)) for index, item in enumerate(node.items)]

    def dict(self, node: Node, info: inspect.DictType, path: _Path) -> object:
        if not isinstance(node, MapNode):
            self.problem(node, path, _shown_node(node), "must be keys with values, e.g. name: value")
            return None
        allowed = _words(info.key_type)
        for key, value in node.entries.items():
            if allowed and key not in allowed:
                self.problem(value, (*path, key), None, f"unknown key: {_not_allowed(key, allowed)}", node.lines[key])
        return {key: self.any(value, info.value_type, (*path, key)) for key, value in node.entries.items()}

    def scalar(self, node: Node, options: Sequence[inspect.Type], path: _Path, allowed: str | None) -> object:
        if not isinstance(node, ScalarNode):
            self.problem(node, path, _shown_node(node), _dotted(node, path) or _no_scalar(node, options))
            return None
        value = _value(node, options)
        if value is _NOT_KNOWN:
            self.problem(node, path, _as_written(node), _wanted(node, options))
        elif isinstance(value, str) and "\0" in value:
            self.problem(node, path, _as_written(node), "must not hold a NUL character")
        elif (broken := _broken_limit(value, options, allowed)) is not None:
            self.problem(node, path, _as_written(node), broken)
        return None if value is _NOT_KNOWN else value


def _is_secret(path: _Path) -> bool:
    """Whether what is written there may be a secret: problems are in the log and in the status, which others read."""
    in_an_alert = path[:1] == ("alerts",) and (len(path) <= 2 or path[2] in _SECRET_OF_ALERTS)
    return in_an_alert or bool(_SECRET_KEYS & set(path))


_CONTAINERS = (inspect.StructType, inspect.ListType, inspect.DictType)


def _options(info: inspect.Type) -> list[inspect.Type]:
    """The alternatives of a type, with unions flattened and notes taken off."""
    if isinstance(info, inspect.Metadata):
        return _options(info.type)
    if isinstance(info, inspect.UnionType):
        return [option for each in info.types for option in _options(each)]
    return [info]


def _allowed_words(info: inspect.Type) -> str | None:
    """What the schema says in words of a pattern; None where it says nothing."""
    if isinstance(info, inspect.UnionType):
        return next((words for each in info.types if (words := _allowed_words(each)) is not None), None)
    if not isinstance(info, inspect.Metadata):
        return None
    words = (info.extra or {}).get("allowed")
    return str(words) if words is not None else _allowed_words(info.type)


def _is_container(info: inspect.Type) -> bool:
    return any(isinstance(option, _CONTAINERS) for option in _options(info))


def _description(info: inspect.Type) -> str:
    if isinstance(info, inspect.Metadata) and info.extra_json_schema:
        return str(info.extra_json_schema.get("description", "it is needed"))
    return "it is needed"


def _empty_like(node: Node, info: inspect.Type) -> Node:
    if isinstance(info, inspect.ListType):
        return ListNode([], node.file, node.line)
    return MapNode({}, {}, node.file, node.line)


def _value(node: ScalarNode, options: Sequence[inspect.Type]) -> Any:
    """What the scalar means to the first alternative that can read it; `_NOT_KNOWN` when none can.

    Alternatives are tried from the narrowest to text, so that 5 for "text or number" is a number.
    """
    for words in (_words(option) for option in options):
        if node.text in words:
            return node.text
    if not node.plain:
        return node.text if _has(options, inspect.StrType) else _NOT_KNOWN
    if is_null(node) and _has(options, inspect.NoneType):
        return None
    boolean = _BOOLEANS.get(node.text.lower())
    if boolean is not None and (_has(options, inspect.BoolType) or _has_literal(options, boolean)):
        return boolean
    number = _number(node.text, options)
    if number is not None:
        return number
    return node.text if _has(options, inspect.StrType) and not is_null(node) else _NOT_KNOWN


def _number(text: str, options: Sequence[inspect.Type]) -> int | float | None:
    if len(text) > _LONGEST_NUMBER:
        return None
    if _INTEGER.fullmatch(text):
        value = int(text)
        if _has(options, inspect.IntType) and abs(value) < _INTEGER_LIMIT:
            return value
        return float(value) if _has(options, inspect.FloatType) else None
    if _FLOAT.fullmatch(text) and _has(options, inspect.FloatType):
        number = float(text)
        return number if abs(number) < float(_INTEGER_LIMIT) else None
    return None


def _has(options: Sequence[inspect.Type], kind: type[inspect.Type]) -> bool:
    return any(isinstance(option, kind) for option in options)


def _has_literal(options: Sequence[inspect.Type], value: bool) -> bool:
    return any(value is each for option in options if isinstance(option, inspect.LiteralType) for each in option.values)


def _words(option: inspect.Type) -> list[str]:
    """The words an alternative allows: of an enumeration or of literals."""
    if isinstance(option, inspect.EnumType):
        return [str(member.value) for member in option.cls if isinstance(member, StrEnum)]
    if isinstance(option, inspect.LiteralType):
        return [value for value in option.values if isinstance(value, str)]
    return []


def _broken_limit(value: object, options: Sequence[inspect.Type], allowed: str | None) -> str | None:
    """Which limit of its own type the value breaks, as a sentence; None when it keeps all. `allowed`: a pattern in words."""
    for option in options:
        if isinstance(option, inspect.IntType | inspect.FloatType) and type(value) in (int, float):
            assert isinstance(value, int | float)
            too_small = option.ge is not None and value < option.ge
            if too_small or (option.le is not None and value > option.le):
                return f"must be {_range(option)}"
        if isinstance(option, inspect.StrType) and isinstance(value, str) and option.pattern is not None:
            words = [word for each in options for word in _words(each)]
            # fullmatch: to search, "$" is also before a newline at the end.
            if value not in words and re.fullmatch(option.pattern, value) is None:
                return allowed or f"does not match {option.pattern}"
    return None


def _range(option: inspect.IntType | inspect.FloatType) -> str:
    if option.ge is not None and option.le is not None:
        return f"between {option.ge} and {option.le}"
    return f"{option.ge} or more" if option.ge is not None else f"{option.le} or less"


def _unknown_key(key: str, names: Sequence[str]) -> str:
    near = close_match(key.lower().replace("-", "_"), names)
    if near:
        return f"unknown key; did you mean {near}?"
    return f"unknown key; allowed: {any_of(names)}" if names else "unknown key; no key is allowed here"


_OTHER_WORDS = {("podman", "docker"): "by: docker, engine: podman"}
"""What somebody writes, beside what is allowed, and how it is written instead."""


def _not_allowed(text: str, allowed: Sequence[str]) -> str:
    near = close_match(text.lower(), allowed)
    hint = f"; did you mean {near}?" if near else ""
    for (word, beside), cure in _OTHER_WORDS.items():
        if text == word and beside in allowed:
            hint = f"; write {cure}"
    return f"not one of the allowed: {any_of(allowed)}{hint}"


def _no_scalar(node: MapNode | ListNode, options: Sequence[inspect.Type]) -> str:
    if isinstance(node, MapNode) and len(node.entries) == 1 and _has(options, inspect.StrType):
        key, value = next(iter(node.entries.items()))
        if is_null(value):
            return f'braces make a map in YAML; write "{{{key}}}" in quotes'
        return "a colon makes a map in YAML; write the text in quotes"
    return f"must be {any_of(_names(options))}, one value"


def _dotted(node: Node, path: _Path) -> str | None:
    """How a sysctl that was written as nested keys is written; None where this is none."""
    if not isinstance(node, MapNode) or path[:2] != ("tuning", "sysctl") or not node.entries:
        return None
    key, value = next(iter(node.entries.items()))
    name = ".".join(map(str, (*path[2:], key)))
    return (
        f"sysctls are written with their dots: {name}: {_as_written(value) if isinstance(value, ScalarNode) else '…'}"
    )


def _wanted(node: ScalarNode, options: Sequence[inspect.Type]) -> str:
    words = [word for option in options for word in _words(option)]
    if words and not (_has(options, inspect.StrType) or _has(options, inspect.IntType)):
        return _not_allowed(node.text, words)
    hint = f"must be {any_of(_names(options))}"
    if _has(options, inspect.IntType) and re.fullmatch(r"[0-9]+ ?[A-Za-z]+", node.text):
        return f"{hint}; write it without a unit"
    if is_null(node):
        return f"{hint}; write a value or leave the key out"
    if not node.plain and (_number(node.text, options) is not None or node.text.lower() in _BOOLEANS):
        return f"{hint}; take the quotes away"
    if re.fullmatch(r"[-+]?0[0-9]+", node.text):
        return f"{hint}; leading zeros are not allowed (YAML would read them as octal)"
    if re.fullmatch(r"[0-9]+(:[0-9]+)+", node.text):
        return f"{hint}; digits with colons are no number here"
    if _has(options, inspect.IntType) and _FLOAT.fullmatch(node.text):
        return f"{hint}; write it with digits only, without a point or an exponent"
    return hint


def _names(options: Sequence[inspect.Type]) -> list[str]:
    """What the alternatives are called in a message."""
    names: list[str] = []
    for option in options:
        if isinstance(option, inspect.StrType):
            names.append("text")
        elif isinstance(option, inspect.IntType):
            names.append(f"a whole number {_range(option)}" if option.ge is not None else "a whole number")
        elif isinstance(option, inspect.FloatType):
            names.append("a number")
        elif isinstance(option, inspect.BoolType):
            names += ["true", "false"]
        elif isinstance(option, inspect.LiteralType):
            names += [str(value).lower() if isinstance(value, bool) else str(value) for value in option.values]
        elif isinstance(option, inspect.EnumType):
            names += _words(option)
    return names


def _as_written(node: ScalarNode) -> str:
    if is_null(node):
        return "no value"
    return (
        node.text if node.plain and len(node.text) < _LONGEST_NUMBER and node.text.isprintable() else shown(node.text)
    )


def _shown_node(node: Node) -> str:
    if isinstance(node, ScalarNode):
        return _as_written(node)
    return "a list" if isinstance(node, ListNode) else "a map"
