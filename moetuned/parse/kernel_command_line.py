"""Settings that the kernel command line decides (Documentation/admin-guide/kernel-parameters.txt, lib/cmdline.c).

`transparent_hugepage=` (mm/huge_memory.c) and `transparent_hugepage_shmem=` (mm/shmem.c, 6.13), `sysctl.*=` (fs/proc/proc_sysctl.c,
5.8), and the parameters of zswap, which is built in. The multi-gen LRU has none; `elevator=` has no effect any more (block/elevator.c).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

_THP = "/sys/kernel/mm/transparent_hugepage"
_CHOICES = {
    "transparent_hugepage": (f"{_THP}/enabled", frozenset({"always", "madvise", "never"})),
    "transparent_hugepage_shmem": (
        f"{_THP}/shmem_enabled",
        frozenset({"always", "within_size", "advise", "never", "deny", "force"}),
    ),
}
_SYSCTL = re.compile(r"sysctl[./](.+)")
_ZSWAP = re.compile(r"zswap\.([a-z0-9_]+)")


class Decided(msgspec.Struct, frozen=True):
    """The value that the command line gives a setting, and the words that do: `sysctl.vm.swappiness=10`."""

    value: str
    words: str


def decided_settings(command_line: str) -> dict[str, Decided]:
    """The text of /proc/cmdline to the kernel files it decides. The last word on a file wins, one that is no choice is ignored."""
    found: dict[str, Decided] = {}
    for words, name, value in _parameters(command_line):
        path = _path(name, value)
        if path is not None:
            found[path] = Decided(value, words)
    return found


def _parameters(command_line: str) -> Iterator[tuple[str, str, str]]:
    """(the words, name, value) of each `name=value` before ` -- `, behind which all is init's."""
    for words in _words(command_line):
        if words == "--":
            return
        text = words[1:].removesuffix('"') if words.startswith('"') else words
        name, equals, value = text.partition("=")
        if equals:
            yield words, name, value.removeprefix('"').removesuffix('"') if value.startswith('"') else value


def _words(command_line: str) -> Iterator[str]:
    """Words between white space; what is in double quotes is not cut (next_arg in lib/cmdline.c)."""
    word, quoted = "", False
    for character in command_line:
        if character.isspace() and not quoted:
            if word:
                yield word
            word = ""
            continue
        quoted ^= character == '"'
        word += character
    if word:
        yield word


def _path(name: str, value: str) -> str | None:
    known = _CHOICES.get(name.replace("-", "_"))  # the kernel takes a dash for an underscore
    if known is not None:
        return known[0] if value in known[1] else None
    if (sysctl := _SYSCTL.fullmatch(name)) and value:
        return "/proc/sys/" + sysctl[1].replace(".", "/")
    if zswap := _ZSWAP.fullmatch(name.replace("-", "_")):
        return f"/sys/module/zswap/parameters/{zswap[1]}"
    return None
