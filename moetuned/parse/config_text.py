"""Config files' text to a checked `Config`: every problem at once, each with file, line, key path, value and cure."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence

import msgspec

from moetuned.parse.config_check import check
from moetuned.parse.config_problem import ConfigError, Problem
from moetuned.parse.config_shape import shape
from moetuned.parse.config_sound import sound_config
from moetuned.parse.config_yaml import ListNode, MapNode, Node, merged, read_tree
from moetuned.schema.config import Config

__all__ = ["ConfigError", "FurtherCheck", "Problem", "check", "load", "load_with_warnings"]

FurtherCheck = Callable[[Config], Iterable[Problem]]
"""A check that needs what is not known here, e.g. the machine; its problems have a path and no file."""

_INDEX = re.compile(r"\[(\d+)\]")


def load(sources: Sequence[tuple[str, str]], known_sysctls: Collection[str] | None = None) -> Config:
    """The config of `sources`, (name, text) pairs; later files overlay earlier ones, maps merged, lists replaced.

    No sources, or empty ones, are the default config, which changes nothing. Raises ConfigError.
    """
    return load_with_warnings(sources, known_sysctls)[0]


def load_with_warnings(
    sources: Sequence[tuple[str, str]],
    known_sysctls: Collection[str] | None = None,
    known_kinds: Collection[str] | None = None,
    further: Sequence[FurtherCheck] = (),
) -> tuple[Config, tuple[Problem, ...]]:
    """As `load`, with what is allowed but surely not meant. `known_kinds`: of backends; None: not checked."""
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
        config = sound_config(tree)
    said = [*check(config, known_sysctls, known_kinds), *(problem for each in further for problem in each(config))]
    found = [_located(problem, tree) for problem in said]
    errors = problems + [problem for problem in found if problem.severity == "error"]
    if errors:
        # What is missing from a half-read config would be warned of in vain.
        warnings = [problem for problem in found if problem.severity == "warning"] if not problems else []
        files = [file for file, _ in sources]
        raise ConfigError(_ordered(errors, files), _ordered(warnings, files))
    return config, tuple(found)


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
