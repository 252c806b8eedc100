"""Words of a command or an assignment list in a unit file: quotes and escapes undone, and where in the text each word stands.

As systemd does it (extract_first_word of src/basic/extract-word.c; systemd.service(5), "Command lines"): quotes may begin anywhere in a
word, escapes count in quotes of both kinds, and `%` and `$` count in quotes, too. Where a text is not one that systemd takes, or
is one of the odd escapes, there is no guess but an error.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_BLANKS = " \t\n\r"
_ESCAPES = {
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    "\\": "\\",
    '"': '"',
    "'": "'",
    "s": " ",
}
_WHOLE_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}|\$([A-Za-z_][A-Za-z0-9_]*)")
_IN_WORD = re.compile(r"\$\$|\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class WordsError(ValueError):
    """A text that cannot be taken apart with certainty; the text is the end of the sentence "it …"."""


class Word(NamedTuple):
    """`text[start:end]` is the word as it is written, `decoded` without quotes and escapes; specifiers and variables are still in it."""

    start: int
    end: int
    decoded: str


def split_words(text: str) -> tuple[Word, ...]:
    """Raises WordsError."""
    found: list[Word] = []
    position = 0
    while True:
        while position < len(text) and text[position] in _BLANKS:
            position += 1
        if position >= len(text):
            return tuple(found)
        found.append(_word(text, position))
        position = found[-1].end


def _word(text: str, start: int) -> Word:
    if re.match(r"\\;(?=[ \t\n\r]|$)", text[start:]):
        return Word(start, start + 2, ";")
    decoded: list[str] = []
    quote, position = "", start
    while position < len(text):
        letter = text[position]
        if letter == "\\":
            follows = text[position + 1 : position + 2]
            if follows not in _ESCAPES:
                raise WordsError(f"has an escape in it that moetuned does not undo (\\{follows})")
            decoded.append(_ESCAPES[follows])
            position += 2
            continue
        if quote:
            if letter == quote:
                quote = ""
            else:
                decoded.append(letter)
        elif letter in "'\"":
            quote = letter
        elif letter in _BLANKS:
            break
        else:
            decoded.append(letter)
        position += 1
    if quote:
        raise WordsError(f"has a quote in it that does not end ({quote})")
    return Word(start, position, "".join(decoded))


def literal(decoded: str) -> str | None:
    """The word that the program gets, None where a specifier or a variable decides."""
    if "%" in decoded.replace("%%", "") or splits(decoded):
        return None
    if any(match[0] != "$$" for match in _IN_WORD.finditer(decoded)):
        return None
    return decoded.replace("%%", "%").replace("$$", "$")


def splits(decoded: str) -> bool:
    """Whether it may become several words, or none: `$NAME` alone."""
    return len(decoded) > 1 and decoded[0] == "$" and decoded[1] not in "${"


def whole_variable(decoded: str) -> str | None:
    """The variable that alone gives the word (`${NAME}`, `$NAME`); None where it is anything else."""
    match = _WHOLE_VARIABLE.fullmatch(decoded)
    return None if match is None else match[1] or match[2]


def variables_in(decoded: str) -> tuple[str, ...]:
    """Names of the variables whose values go into the word, each as often as it stands there."""
    alone = whole_variable(decoded)
    if alone is not None:
        return (alone,)
    return tuple(match[1] for match in _IN_WORD.finditer(decoded) if match[1])
