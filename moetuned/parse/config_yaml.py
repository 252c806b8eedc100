"""YAML text to a tree that remembers where each value stands; bounded, and without YAML's surprises.

Keys and plain scalars stay text here: what `on`, `off`, `no`, `010` or `1:30` mean is decided by the type the schema
wants (`parse.config_shape`), not by YAML 1.1's guesses. Anchors' aliases, merge keys and tags are refused: a config
needs none, and they are how a small file becomes a large or executable one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import yaml

from moetuned.parse.config_problem import ConfigError, Problem, key_path, shown

LIMIT_CHARACTERS = 1 << 20
LIMIT_DEPTH = 16
_LIMIT_PROBLEMS = 100
_PLACEHOLDERS = ("model", "context", "prompt_cache_mib", "slots", "checkpoints", "cache_type")
_TEXT_TAGS = (None, "!", "tag:yaml.org,2002:str")
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class ScalarNode(msgspec.Struct, frozen=True):
    """A single value as written; `plain` when it had no quotes."""

    text: str
    plain: bool
    file: str
    line: int


class ListNode(msgspec.Struct, frozen=True):
    """A list."""

    items: list[Node]
    file: str
    line: int


class MapNode(msgspec.Struct, frozen=True):
    """Keys with values. `lines` has the line of each key."""

    entries: dict[str, Node]
    lines: dict[str, int]
    file: str
    line: int


Node = ScalarNode | ListNode | MapNode


def is_null(node: Node) -> bool:
    """Whether the node is YAML's null: nothing, ~ or null without quotes."""
    return isinstance(node, ScalarNode) and node.plain and node.text in ("", "~", "null", "Null", "NULL")


class _Open(msgspec.Struct):
    """A map or list whose end has not come yet; `key` is the one that waits for its value."""

    node: MapNode | ListNode
    key: str | None = None


class _Builder:
    """Builds the tree from parser events. Explicit stack: depth is bounded, so nothing recurses."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.root: Node | None = None
        self.documents = 0
        self.stack: list[_Open] = []
        self.problems: list[Problem] = []

    def problem(self, line: int, value: str | None, hint: str, step: str | None = None) -> None:
        steps: list[str | int] = [
            (opened.key or "") if isinstance(opened.node, MapNode) else len(opened.node.items)
            for opened in self.stack
            if opened.key is not None or isinstance(opened.node, ListNode)
        ]
        path = key_path([*steps, step] if step is not None else steps)
        self.problems.append(Problem(self.file, path, value, hint, line))
        if len(self.problems) >= _LIMIT_PROBLEMS:
            raise ConfigError(self.problems)

    def add(self, node: Node) -> None:
        """Put a value where the stack says it belongs."""
        if not self.stack:
            if self.root is None:
                self.root = node
            return
        top = self.stack[-1]
        if isinstance(top.node, ListNode):
            top.node.items.append(node)
            return
        assert top.key is not None
        if top.key not in top.node.entries:
            top.node.entries[top.key] = node
        top.key = None

    def take_key(self, event: Any, line: int) -> bool:
        """Whether the event is a key of the open map; if so it is noted."""
        if not self.stack or not isinstance(self.stack[-1].node, MapNode) or self.stack[-1].key is not None:
            return False
        top = self.stack[-1]
        node = self.stack[-1].node
        assert isinstance(node, MapNode)
        if not isinstance(event, yaml.ScalarEvent):
            self.problem(line, None, "a key must be a word; a list or map cannot be one")
            raise ConfigError(self.problems)
        key = str(event.value)
        if key == "<<":
            self.problem(line, None, "merge keys are not supported; write the values out", key)
        elif key in node.entries:
            first = node.lines[key]
            self.problem(line, None, f"given twice in this file (first in line {first}); keep one of them", key)
        node.lines.setdefault(key, line)
        top.key = key
        return True

    def event(self, event: Any) -> None:
        """Take the parser's next event."""
        line = event.start_mark.line + 1
        if isinstance(event, yaml.DocumentStartEvent):
            self.documents += 1
            if self.documents > 1:
                self.problem(line, None, "a second document begins here (---); a config file has one")
                raise ConfigError(self.problems)
        elif isinstance(event, yaml.AliasEvent):
            self.problem(line, f"*{event.anchor}", "aliases are not supported; write the value out")
            raise ConfigError(self.problems)
        elif isinstance(event, yaml.NodeEvent):
            self.node_event(event, line)
        elif isinstance(event, yaml.CollectionEndEvent):
            self.add(self.stack.pop().node)

    def node_event(self, event: Any, line: int) -> None:
        """Take a scalar or the beginning of a map or list."""
        if event.tag not in _TEXT_TAGS:
            self.problem(line, shown(event.tag), "tags are not supported; write the plain value")
        if self.take_key(event, line):
            return
        if isinstance(event, yaml.ScalarEvent):
            plain = bool(event.implicit[0]) and event.tag is None
            self.add(ScalarNode(str(event.value), plain, self.file, line))
            return
        if len(self.stack) >= LIMIT_DEPTH:
            self.problem(line, None, f"nested deeper than {LIMIT_DEPTH} levels; no key needs that")
            raise ConfigError(self.problems)
        mapping = isinstance(event, yaml.MappingStartEvent)
        node = MapNode({}, {}, self.file, line) if mapping else ListNode([], self.file, line)
        self.stack.append(_Open(node))


def read_tree(file: str, text: str) -> MapNode:
    """The tree of one file; `file` is only its name. An empty file is an empty map.

    Raises ConfigError with every problem up to the first that makes the rest unreadable.
    """
    if len(text) > LIMIT_CHARACTERS:
        raise ConfigError([Problem(file, "", None, f"larger than {LIMIT_CHARACTERS >> 20} MiB; this is no config")])
    builder = _Builder(file)
    try:
        for event in yaml.parse(text.removeprefix("\ufeff"), Loader=_LOADER):
            builder.event(event)
    except (yaml.YAMLError, RecursionError, UnicodeError) as error:
        raise ConfigError([*builder.problems, _syntax_problem(file, text, error)]) from None
    root = builder.root
    if root is None or is_null(root):
        root = MapNode({}, {}, file, 1)
    if not isinstance(root, MapNode):
        builder.problems.append(Problem(file, "", None, "must be keys with values, e.g. tuning: …", root.line))
    if builder.problems or not isinstance(root, MapNode):
        raise ConfigError(builder.problems)
    return root


def _syntax_problem(file: str, text: str, error: Exception) -> Problem:
    mark = getattr(error, "problem_mark", None)
    said = getattr(error, "problem", None) or getattr(error, "reason", None) or "cannot be read"
    line = None if mark is None else mark.line + 1
    lines = text.split("\n")
    at = lines[line - 1] if line is not None and line <= len(lines) else ""
    hint = f"is not YAML: {said}"
    if "\t" in at[: len(at) - len(at.lstrip())]:
        hint += "; indent with spaces, not tabs"
    elif any(f"{{{word}}}" in at for word in _PLACEHOLDERS):
        hint += '; put placeholders in quotes, e.g. "{model}"'
    return Problem(file, "", None, hint, line)


def merged(trees: Sequence[MapNode]) -> MapNode:
    """Later trees over earlier ones: maps are merged key by key, everything else is replaced.

    A key without a value (null) never replaces a map or a list: a section whose lines are all comments says nothing.
    """
    result = trees[0] if trees else MapNode({}, {}, "", 1)
    for tree in trees[1:]:
        result = _overlaid(result, tree)
    return result


def _overlaid(below: MapNode, above: MapNode) -> MapNode:
    entries, lines = dict(below.entries), dict(below.lines)
    for key, node in above.entries.items():
        old = entries.get(key)
        if is_null(node) and isinstance(old, MapNode | ListNode):
            continue
        both_maps = isinstance(old, MapNode) and isinstance(node, MapNode)
        entries[key] = _overlaid(old, node) if both_maps else node  # type: ignore[arg-type]
        lines[key] = above.lines[key]
    return MapNode(entries, lines, above.file, above.line)
