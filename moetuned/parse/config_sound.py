"""The parts of a broken config that have the right types, so that the checks across keys can speak of them too.

A key is left out, and so has its default, when its value has a wrong type; so is what could only be judged together
with it. Nothing is made up that a check would then complain about.
"""

from __future__ import annotations

from typing import Any

import msgspec

from moetuned.parse.config_problem import ConfigError
from moetuned.parse.config_shape import shape
from moetuned.parse.config_yaml import ListNode, MapNode, Node, ScalarNode
from moetuned.schema.alert import Alert, ExecAlert
from moetuned.schema.config import Backend, Config

_TOGETHER = frozenset({"limits"})
"""Sections whose keys are compared with each other: half of one says nothing."""
_COMMAND_NEEDS = frozenset({"model", "prompt_cache_mib", "context"})
"""Keys of a backend that its command is judged by."""


def sound_config(tree: MapNode) -> Config:
    """The config of all keys that can be read. Items of lists keep their places; one that cannot be read is empty."""
    config = Config()
    for section, node in tree.entries.items():
        part = _section(section, node)
        if part is None and section == "backends" and isinstance(node, ListNode):
            part = [_backend(index, item) for index, item in enumerate(node.items)]
        elif part is None and section == "alerts" and isinstance(node, ListNode):
            part = [_alert(index, item) for index, item in enumerate(node.items)]
        elif part is None and isinstance(node, MapNode) and section not in _TOGETHER:
            part = _map(section, node)
        if part is not None:
            config = msgspec.structs.replace(config, **{section: part})
    return config


def _section(section: str, node: Node) -> Any:
    """The section's value; None when it has a problem, or when there is no such section."""
    try:
        config = shape(MapNode({section: node}, {section: node.line}, node.file, node.line), Config)
    except ConfigError:
        return None
    return getattr(config, section)


def _map(section: str, node: MapNode) -> Any:
    part: Any = getattr(Config(), section, None)
    for key, value in node.entries.items():
        one = _section(section, _with(node, {key: value}))
        if one is not None:
            part = msgspec.structs.replace(part, **{key: getattr(one, key)})
    return part


def _with(node: MapNode, entries: dict[str, Node]) -> MapNode:
    return MapNode(entries, {key: node.lines.get(key, node.line) for key in entries}, node.file, node.line)


def _backend(index: int, item: Node) -> Backend:
    """The backend with the keys that can be read. A name that cannot be is one that no other backend can have."""
    backend = Backend(name=f"\0{index}")
    if not isinstance(item, MapNode):
        return backend
    broken: set[str] = set()
    for key, value in item.entries.items():
        named = {"name": ScalarNode("x", plain=False, file=item.file, line=item.line), key: value}
        one = _section("backends", ListNode([_with(item, named)], item.file, item.line))
        if one is None:
            broken.add(key)
        else:
            backend = msgspec.structs.replace(backend, **{key: getattr(one[0], key)})
    if broken & _COMMAND_NEEDS:
        backend = msgspec.structs.replace(backend, supervise=Backend(name="x").supervise)
    return backend


def _alert(index: int, item: Node) -> Alert:
    one = _section("alerts", ListNode([item], item.file, item.line))
    alert: Alert = ExecAlert(directory=f"/\0{index}") if one is None else one[0]
    return alert
