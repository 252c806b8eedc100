"""The flags that a llama.cpp program knows, from its own `--help`: builds differ, and an unknown flag stops the server."""

from __future__ import annotations

import re

import msgspec

_ENTRY = re.compile(r"^[ *]{0,12}(-{1,2}[A-Za-z][\w-]*(?:,\s*-{1,2}[A-Za-z][\w-]*)*)(?:[ =](\S[^\n]*))?")
_DESCRIPTION = re.compile(r"\s{2,}")
_CHOICE = re.compile(r"^\s+- ([a-z][a-z0-9+_]*):")
_LONGEST_LINE = 400


class HelpFlag(msgspec.Struct, frozen=True):
    """One flag: all its spellings, what it calls its value ("" for a switch), and the words it lists for it."""

    spellings: tuple[str, ...]
    value: str
    choices: tuple[str, ...] = ()


class ProgramHelp(msgspec.Struct, frozen=True):
    """Every flag by each of its spellings."""

    flags: dict[str, HelpFlag]

    def knows(self, spelling: str) -> bool:
        """Whether the program lists this spelling."""
        return spelling in self.flags

    def takes(self, spelling: str, word: str) -> bool:
        """Whether the flag lists `word` as a value."""
        flag = self.flags.get(spelling)
        return flag is not None and (word in flag.choices or word in re.split(r"[^\w+]+", flag.value))


def parse_help(text: str) -> ProgramHelp:
    """Flags of a help text; lines that are no entry are descriptions. Empty when there is none."""
    entries: list[tuple[tuple[str, ...], str, list[str]]] = []
    for line in text.splitlines():
        line = line[:_LONGEST_LINE]
        entry = _ENTRY.match(line)
        if entry is not None:
            entries.append((tuple(re.split(r",\s*", entry[1])), _value(line[entry.end(1) :]), []))
        elif entries and (choice := _CHOICE.match(line)) is not None:
            entries[-1][2].append(choice[1])
    flags: dict[str, HelpFlag] = {}
    for spellings, value, choices in entries:
        for spelling in spellings:
            flags.setdefault(spelling, HelpFlag(spellings, value, tuple(choices)))
    return ProgramHelp(flags)


def _value(rest: str) -> str:
    """The value's name stands one blank behind the spellings, the description two or more."""
    if rest[:1] not in (" ", "=") or rest[:2] == "  ":
        return ""
    return _DESCRIPTION.split(rest[1:], maxsplit=1)[0].strip()
