"""What is wrong with a configuration, as data: file, line, key path, value, and what is allowed or to be done."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

_SHOWN_CHARACTERS = 60


class Problem(msgspec.Struct, frozen=True):
    """One problem. `value` is printable, None when there is none to show; `line` counts from 1, None when unknown.

    A warning does not keep the daemon from starting; an error does.
    """

    file: str
    path: str
    value: str | None
    hint: str
    line: int | None = None
    severity: Literal["error", "warning"] = "error"

    def __str__(self) -> str:
        """One line for people, e.g. "moetuned.yaml:3: watch.interval: '1 parsec' is no duration; write e.g. 1s"."""
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        parts = [part for part in (place, self.path) if part]
        text = self.hint if self.value is None else f"{self.value}: {self.hint}"
        return ": ".join([*parts, text])


class ConfigError(Exception):
    """The configuration cannot be used; `problems` says all that is wrong with it, in file order where known.

    `warnings`: what else looks like a mistake, where enough of it could be read to tell.
    """

    def __init__(self, problems: Iterable[Problem], warnings: Iterable[Problem] = ()) -> None:
        self.problems: tuple[Problem, ...] = tuple(problems)
        self.warnings: tuple[Problem, ...] = tuple(warnings)
        super().__init__("\n".join(str(problem) for problem in self.problems))


def shown(value: object) -> str:
    """A value from outside as it may be printed: quoted when text, escaped, and cut short."""
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 1] + "…"


def key_path(steps: Iterable[str | int]) -> str:
    """Key path as people write it: ("backends", 0, "name") is "backends[0].name"."""
    path = ""
    for step in steps:
        if isinstance(step, int):
            path += f"[{step}]"
        else:
            path += f".{step}" if path else step
    return path


def any_of(names: Iterable[object]) -> str:
    """Alternatives as people write them: "a, b or c"."""
    words = [str(name) for name in names]
    return "".join(words) if len(words) < 2 else f"{', '.join(words[:-1])} or {words[-1]}"
