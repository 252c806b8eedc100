"""The commented sample config and the reference page, made from the schema so that neither can fall behind it.

In the sample a line that begins with "# " is prose, and one that begins with "#" and no blank is a key that is off:
taking that one character away turns it on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec
from msgspec import inspect

from moetuned.parse.config_problem import any_of
from moetuned.schema.config import Config

_WIDTH = 100
_INSTALLED: Mapping[str, str] = {
    "tuning.profile": "moe-offload",
    "alerts": "- kind: exec\n  directory: /etc/moetuned/hooks.d\n  on: [thrash_begin, memory_near_limit]",
}
"""What the installed file says that the defaults do not."""

_EXAMPLES: Mapping[str, str] = {
    "tuning.sysctl": "{vm.vfs_cache_pressure: 50}",
    "tuning.thp": "never",
    "tuning.thp_defrag": "never",
    "tuning.khugepaged_defrag": "0",
    "tuning.lru_gen_min_ttl_ms": "1000",
    "tuning.read_ahead": "128",
    "tuning.scheduler": "none",
    "tuning.nr_requests": "64",
    "tuning.swap": "{file: /var/lib/moetuned/swapfile, size: 8GiB, zram: auto, priority: 10}",
    "backends": """\
- name: glm
  kind: llama-server
  model: /models/glm-00001-of-00007.gguf
  supervise:
    by: process
    command: [llama-server, -m, "{model}", -c, "{context}", --cache-ram, "{prompt_cache_mib}",
              --parallel, "1", --no-repack, --metrics, --port, "8080"]
    environment: {OMP_NUM_THREADS: "8"}
    log: /var/log/moetuned-glm.log
    limits: {core: 0, memlock: unlimited, open_files: 4096}
  url: http://127.0.0.1:8080
  context: {preferred: 16384, minimum: 2048}
  prompt_cache_mib: 2048
  memory_low: 8GiB
  memory_min: 4GiB
  io_weight: 500""",
    "metrics.textfile": "/var/lib/prometheus/node-exporter/moetuned.prom",
    "warm.rate": "1GiB",
    "relief.minimum_context": "2048",
    "warm.prompts": "default",
}
"""Values to show for keys whose default says nothing, such as an empty list."""

_HEAD = """\
# Configuration of moetuned: what it tunes, which backends it looks after, whom it tells.
#
# Every key is optional; without any, moetuned watches what runs and changes nothing. A line that begins with
# "# " explains; take the # from a line that begins with "#" and a key to turn that key on. Files in conf.d beside
# this one are read after it, in the order of their names: maps are merged, lists are replaced.
#
# Check it with:   moetunectl config check
# Put it to use:   systemctl reload moetuned
"""

_PAGE_HEAD = """\
# Configuration reference

<!-- Made by `make docs` from moetuned/schema/config.py; edit that file. -->

moetuned reads `/etc/moetuned/moetuned.yaml`, then `/etc/moetuned/conf.d/*.yaml` in the order of their names: maps are
merged, lists are replaced. Every key is optional unless marked *required*; unknown keys are errors. How to write a
config, with examples: [Configure](../configure.md).

- *size*: a number of bytes, or e.g. `512MiB`, `16GiB` (K, M, G and T are powers of 1024).
- *duration*: a number of seconds, or e.g. `500ms`, `1s`, `5m`, `2h`.
"""


def sample_config() -> str:
    """The sample config: every section, every key with what it is for, its default, and a working choice of values."""
    lines = [_HEAD]
    for field in _fields(inspect.type_info(Config)):
        lines += [*_sample_section(field), ""]
    return "\n".join(lines)


def _sample_section(field: inspect.Field) -> Iterator[str]:
    name = field.encode_name
    yield from _prose(_description(field.type), "# ")
    kinds = _structs(field.type)
    if _list_type(field.type) is not None:
        example = _INSTALLED.get(name) or _EXAMPLES[name]
        off = name not in _INSTALLED
        shared = _shared(kinds)
        if shared:
            yield "# Keys of every item:"
            for each in shared.values():
                yield from _key_prose(each, "#   ")
        for kind in kinds:
            yield from _item_prose(kind, shared)
        lines = [f"{name}:", *(f"  {line}" for line in example.split("\n"))]
        yield from (_off(line) if off else line for line in lines)
        return
    yield f"{name}:"
    for each in _fields(kinds[0]):
        path = f"{name}.{each.encode_name}"
        default = _default_text(each)
        value = _INSTALLED.get(path) or _EXAMPLES.get(path, default)
        note = "" if default in (value, "unset") else f" Default: {default}."
        yield from _prose(_description(each.type) + note, "  # ")
        yield f"  {'' if path in _INSTALLED else '#'}{each.encode_name}: {value}"


def _off(line: str) -> str:
    """The line as a comment that stays in its column when the # is taken away."""
    words = line.lstrip(" ")
    return f"{line[: len(line) - len(words)]}#{words}"


def _shared(kinds: list[inspect.StructType]) -> dict[str, inspect.Field]:
    """The keys that mean the same in each of several kinds of items; none where there is one kind."""
    if len(kinds) < 2:
        return {}
    described = [{field.encode_name: _description(field.type) for field in _fields(kind)} for kind in kinds]
    return {
        field.encode_name: field
        for field in _fields(kinds[-1])
        if all(each.get(field.encode_name) == described[-1][field.encode_name] for each in described)
    }


def _item_prose(kind: inspect.StructType, shared: Mapping[str, inspect.Field]) -> Iterator[str]:
    """What the keys of a list's items are for, without those that all kinds share."""
    tag = f" ({kind.tag_field}: {kind.tag})" if kind.tag_field else ""
    yield from _prose(f"Keys of an item{tag}{f' - {_first_line(kind)}' if shared else ':'}", "# ", hanging=True)
    for each in _fields(kind):
        if each.encode_name in shared:
            continue
        yield from _key_prose(each, "#   ")
        for inner in _structs(each.type):
            margin = "#     "
            if inner.tag_field:
                yield from _prose(f"{inner.tag_field}: {inner.tag} - {_first_line(inner)}", margin, hanging=True)
                margin = "#       "
            for key in _fields(inner):
                yield from _key_prose(key, margin)


def _key_prose(field: inspect.Field, margin: str) -> Iterator[str]:
    text = f"{field.encode_name}: {_description(field.type)}{' Required.' if field.required else ''}"
    return _prose(text, margin, hanging=True)


def _prose(text: str, margin: str, *, hanging: bool = False) -> Iterator[str]:
    """Comment lines of at most `_WIDTH` characters."""
    line = margin
    for word in text.split():
        if len(line) + len(word) >= _WIDTH and line.strip("# "):
            yield line.rstrip()
            line = margin + ("  " if hanging else "")
        line += word + " "
    yield line.rstrip()


class Key(NamedTuple):
    """A key of the config. `default` is YAML; `place` is the section of its own that a map or a list of maps has. Texts have marks."""

    name: str
    type: str
    required: bool
    default: str
    about: str
    place: str | None = None


class Section(NamedTuple):
    """A map of the config: where it is ("" for the whole) and its keys."""

    place: str
    about: str
    keys: tuple[Key, ...]


def sections() -> Iterator[Section]:
    """Every map of the config, from the outermost on: for the reference page and the man page."""
    return _sections(inspect.type_info(Config), ())


def reference_page() -> str:
    """docs/reference/config.md: a table for each map of the config."""
    return "\n".join([_PAGE_HEAD, *(line for section in sections() for line in _page(section))])


def _sections(info: inspect.Type, path: tuple[str, ...]) -> Iterator[Section]:
    kinds = _structs(info)
    shared = _shared(kinds)
    if shared:
        own = tuple(_key(field, path) for field in shared.values())
        yield Section(f"{'.'.join(path)} (every kind)", "What every kind has.", own)
    for kind in kinds:
        tag = f" ({kind.tag_field}: {kind.tag})" if kind.tag_field else ""
        yield Section(f"{'.'.join(path)}{tag}", _first_line(kind), tuple(_keys(kind, path, shared)))
        for field in _fields(kind):
            step = f"{field.encode_name}[]" if _list_type(field.type) is not None else field.encode_name
            yield from _sections(field.type, (*path, step))


def _keys(kind: inspect.StructType, path: tuple[str, ...], shared: Mapping[str, inspect.Field]) -> Iterator[Key]:
    if kind.tag_field is not None:
        yield Key(kind.tag_field, f"`{kind.tag}`", True, "", "Says that this is an item of this kind.")
    for field in _fields(kind):
        if field.encode_name not in shared:
            yield _key(field, path)


def _key(field: inspect.Field, path: tuple[str, ...]) -> Key:
    place = None
    if _structs(field.type):
        place = ".".join((*path, field.encode_name)) + ("[]" if _list_type(field.type) is not None else "")
    default = "" if field.required else _default_text(field)
    return Key(field.encode_name, _type_text(field.type), field.required, default, _description(field.type), place)


def _page(section: Section) -> Iterator[str]:
    if section.place:
        yield f"## {section.place}"
        yield ""
    yield section.about
    yield ""
    if section.keys:
        yield "| key | type | default | what it is |"
        yield "|---|---|---|---|"
    for key in section.keys:
        default = "*required*" if key.required else "see there" if key.place else f"`{key.default}`"
        text = key.about.replace("|", "\\|") + (f" See `{key.place}`." if key.place else "")
        yield f"| `{key.name}` | {key.type} | {default} | {text} |"
    yield ""


def _type_text(info: inspect.Type) -> str:
    """A type as a reader of the page understands it."""
    if isinstance(info, inspect.Metadata):
        note = str((info.extra_json_schema or {}).get("description", ""))
        return f"*{note}*" if note in ("size", "duration") else _type_text(info.type)
    if isinstance(info, inspect.UnionType):
        if {type(each) for each in info.types} == {inspect.StrType, inspect.IntType, inspect.FloatType}:
            return "*duration*"
        options = [each for each in info.types if not isinstance(each, inspect.NoneType)]
        return " or ".join(dict.fromkeys(_type_text(each) for each in options))
    if isinstance(info, inspect.LiteralType):
        return any_of(f"`{_yaml(value)}`" for value in info.values)
    if isinstance(info, inspect.EnumType):
        return any_of(f"`{member.value}`" for member in info.cls)
    if isinstance(info, inspect.ListType):
        return f"list of {_type_text(info.item_type)}"
    if isinstance(info, inspect.DictType):
        return f"map of {_type_text(info.value_type)}"
    if isinstance(info, inspect.IntType):
        return "whole number" + (f" {info.ge} to {info.le}" if info.le is not None else "")
    names: dict[type[inspect.Type], str] = {inspect.StructType: "map", inspect.BoolType: "`true` or `false`"}
    return names.get(type(info), "text")


def _fields(info: inspect.Type) -> tuple[inspect.Field, ...]:
    return info.fields if isinstance(info, inspect.StructType) else ()


def _structs(info: inspect.Type) -> list[inspect.StructType]:
    """The struct types that a field's type holds, directly, in a list or as alternatives."""
    if isinstance(info, inspect.StructType):
        return [info]
    if isinstance(info, inspect.Metadata):
        return _structs(info.type)
    if isinstance(info, inspect.ListType):
        return _structs(info.item_type)
    if isinstance(info, inspect.UnionType):
        return [struct for each in info.types for struct in _structs(each)]
    return []


def _list_type(info: inspect.Type) -> inspect.ListType | None:
    """The list type of a field that holds structs in a list."""
    bare = info.type if isinstance(info, inspect.Metadata) else info
    return bare if isinstance(bare, inspect.ListType) and _structs(bare) else None


def _description(info: inspect.Type) -> str:
    if isinstance(info, inspect.Metadata) and info.extra_json_schema:
        return str(info.extra_json_schema.get("description", ""))
    raise ValueError(f"a key of the config has no Meta(description=…): {info}")


def _first_line(kind: inspect.StructType) -> str:
    return (kind.cls.__doc__ or "").strip().split("\n")[0]


def _default_text(field: inspect.Field) -> str:
    """The default as YAML; "unset" for None."""
    if field.required:
        return "none"
    if field.default_factory is not msgspec.NODEFAULT:
        return _yaml(field.default_factory())
    return "unset" if field.default is None else _yaml(field.default)


def _yaml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, StrEnum):
        return str(value.value)
    if isinstance(value, msgspec.Struct):
        return "see there"
    if isinstance(value, list):
        return f"[{', '.join(map(_yaml, value))}]"
    return str(value)
