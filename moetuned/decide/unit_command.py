"""The one command of a service: what program it runs, where on it a setting's value stands, and the same with a variable in its place.

The text of a unit is never written anew from its parts: only the words of values are replaced, so quotes, specifiers and escapes of
all the rest stay as their owner wrote them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from moetuned.parse.exec_words import Word, WordsError, literal, split_words, splits, variables_in, whole_variable
from moetuned.parse.unit_file import ServiceText

_HARMLESS_PREFIXES = "-+!"
_UNKNOWN = "\ufffd"
"""Stands for a word that a specifier or a variable gives: no flag and no program looks like it."""


class CommandError(ValueError):
    """A command that cannot be understood with certainty; the text is one sentence that goes on from the unit's name: "it …"."""


class Value(msgspec.Struct, frozen=True):
    """A setting's value on the command: its place in the text, what has to stay before it in its word (`--flag=`), and what it is.

    `text` None: not known; `variable`: that one gives it, and nothing else on the command.
    """

    start: int
    end: int
    before: str
    text: str | None
    variable: str | None = None


class UnitCommand(msgspec.Struct, frozen=True):
    """`raw`: the value of ExecStart= as it is written; `argv`: the words, those that cannot be known as a placeholder."""

    raw: str
    words: tuple[Word, ...]
    argv: tuple[str, ...]


def read_command(service: ServiceText) -> UnitCommand:
    """Raises CommandError for a service that has not exactly one plain command."""
    if service.type == "oneshot":
        raise CommandError("is of type oneshot, which is not how a server runs")
    if not service.commands:
        raise CommandError("has no ExecStart=")
    if len(service.commands) > 1:
        raise CommandError("has more than one ExecStart=")
    raw = service.commands[0][1]
    try:
        words = split_words(raw)
    except WordsError as error:
        raise CommandError(f"has a command that {error}") from error
    if any(raw[word.start : word.end] == ";" for word in words):
        raise CommandError("has more than one command in its ExecStart=")
    program = words[0].decoded.lstrip(_HARMLESS_PREFIXES)
    if program[:1] in (":", "@", "|"):
        raise CommandError(f"has an ExecStart= that begins with {program[0]}, which changes how its words are read")
    return UnitCommand(raw, words, tuple(_known(text) for text in (program, *(word.decoded for word in words[1:]))))


def _known(decoded: str) -> str:
    text = literal(decoded)
    return _UNKNOWN if text is None else text


def uncertain_words(command: UnitCommand) -> tuple[str, ...]:
    """Words that may turn out to be flags: those of which a variable may make several, and unknown ones that follow no flag."""
    found = []
    for position, word in enumerate(command.words):
        follows_flag = (
            position > 0 and command.argv[position - 1].startswith("-") and "=" not in command.argv[position - 1]
        )
        unknown = command.argv[position] == _UNKNOWN and not _flag_of(word.decoded)
        if position > 0 and unknown and (splits(word.decoded) or not follows_flag):
            found.append(word.decoded)
    return tuple(found)


def _flag_of(decoded: str) -> str:
    """The spelling in a word `--flag=value`; "" where it is no such word."""
    flag, equals, _ = decoded.partition("=")
    return flag if equals and flag.startswith("-") and "$" not in flag and "%" not in flag else ""


def find_value(command: UnitCommand, spellings: Sequence[str]) -> Value | None:
    """The value of the last of these flags on the command; None where it is not there. Raises CommandError where it has none."""
    found: Value | None = None
    position = 1
    while position < len(command.words):
        word, text = command.words[position], command.argv[position]
        position += 1
        flag = _flag_of(word.decoded)
        if _is_one_of(flag, spellings):
            value = word.decoded[len(flag) + 1 :]
            found = _value(command, word, f"{flag}=", value)
        elif _is_one_of(text, spellings):
            if position >= len(command.words):
                raise CommandError(f"has {text} without a value on its command")
            found = _value(command, command.words[position], "", command.words[position].decoded)
            position += 1
    return found


def _value(command: UnitCommand, word: Word, before: str, decoded: str) -> Value:
    variable = whole_variable(decoded)
    if variable is not None and sum(list(variables_in(each.decoded)).count(variable) for each in command.words) != 1:
        variable = (
            None  # Another value would change with it. (A word `--flag=$NAME` stays as it is, and counts as none, too.)
        )
    return Value(word.start, word.end, before, literal(decoded), variable)


def _is_one_of(flag: str, spellings: Sequence[str]) -> bool:
    """llama.cpp takes underscores in long flags for hyphens."""
    return flag in spellings or (flag.startswith("--") and flag.replace("_", "-") in spellings)


def with_variables(command: UnitCommand, places: Iterable[tuple[Value, str]]) -> str:
    """The text with `${NAME}` in the place of each value."""
    text = command.raw
    for value, name in sorted(places, key=lambda each: -each[0].start):
        text = f"{text[: value.start]}{value.before}${{{name}}}{text[value.end :]}"
    return text


def environment_of(service: ServiceText) -> Mapping[str, str | None]:
    """Variables that Environment= sets; None for a value with a specifier. Raises CommandError."""
    found: dict[str, str | None] = {}
    for _, value in service.environment:
        try:
            words = split_words(value)
        except WordsError as error:
            raise CommandError(f"has an Environment= that {error}") from error
        for word in words:
            name, equals, _ = word.decoded.partition("=")
            if not equals:
                continue
            # `$` means nothing in Environment=, so only specifiers are looked for.
            known = literal(word.decoded.replace("$", "$$"))
            found[name] = None if known is None else known.partition("=")[2]
    return found
