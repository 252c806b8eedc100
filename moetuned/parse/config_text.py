"""Config files' text to a checked `Config`: every problem at once, each with file, line, key path, value and cure."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

import msgspec

from moetuned.parse.config_check import check
from moetuned.parse.config_problem import ConfigError, Problem
from moetuned.parse.config_shape import shape
from moetuned.parse.config_yaml import ListNode, MapNode, Node, merged, read_tree
from moetuned.schema.config import Config

__all__ = ["ConfigError", "Problem", "check", "load", "load_with_warnings"]

_INDEX = re.compile(r"\[(\d+)\]")


def load(sources: Sequence[tuple[str, str]], known_sysctls: Collection[str] | None = None) -> Config:
    """The config of `sources`, (name, text) pairs; later files overlay earlier ones, maps merged, lists replaced.

    No sources, or empty ones, are the default config, which changes nothing. Raises ConfigError.
    """
    return load_with_warnings(sources, known_sysctls)[0]


def load_with_warnings(
    sources: Sequence[tuple[str, str]], known_sysctls: Collection[str] | None = None
) -> tuple[Config, tuple[Problem, ...]]:
    """As `load`, with what is allowed but surely not meant."""
    trees: list[MapNode] = []
    problems: list[Problem] = []
    for file, text in sources:
        try:
            trees.append(read_tree(file, text))
        except ConfigError as error:
            problems += error.problems
    tree = merged(trees)
    config = Config()
    try:
        config = shape(tree, Config)
    except ConfigError as error:
        problems += error.problems
        config = _sound_sections(tree)
    found = [_located(problem, tree) for problem in check(config, known_sysctls)]
    errors = problems + [problem for problem in found if problem.severity == "error"]
    if errors:
        raise ConfigError(_ordered(errors, [file for file, _ in sources]))
    return config, tuple(found)


def _sound_sections(tree: MapNode) -> Config:
    """The config of those top-level sections that have the right types, so that they too can be checked."""
    config = Config()
    for key, node in tree.entries.items():
        try:
            part = shape(MapNode({key: node}, {key: tree.lines[key]}, tree.file, tree.line), Config)
        except ConfigError:
            continue
        config = msgspec.structs.replace(config, **{key: getattr(part, key)})
    return config


def _located(problem: Problem, tree: MapNode) -> Problem:
    """The problem with the file and line of its key, or of the nearest key above it that is written down."""
    node: Node = tree
    line, rest = tree.line, problem.path
    while rest:
        step = _step(node, rest)
        if step is None:
            break
        node, line, rest = step
    return msgspec.structs.replace(problem, file=node.file, line=line if node.file else None)


def _step(node: Node, path: str) -> tuple[Node, int, str] | None:
    """The node that the beginning of `path` names, its line, and the rest of the path; keys may hold dots."""
    if isinstance(node, ListNode):
        match = _INDEX.match(path)
        if match is None or int(match[1]) >= len(node.items):
            return None
        item = node.items[int(match[1])]
        return item, item.line, path[match.end() :].removeprefix(".")
    if isinstance(node, MapNode):
        fitting = [key for key in node.entries if path == key or path.startswith((f"{key}.", f"{key}["))]
        if fitting:
            key = max(fitting, key=len)
            return node.entries[key], node.lines[key], path[len(key) :].removeprefix(".")
    return None


def _ordered(problems: list[Problem], files: list[str]) -> list[Problem]:
    order = {file: number for number, file in enumerate(files)}
    return sorted(problems, key=lambda problem: (order.get(problem.file, -1), problem.line or 0))
