"""A file of prompts: a YAML list of texts, bounded in size and count. Errors name the file and the line.

Every item is the text as it is written: `off`, `no`, `010` and `~` are these words, as everywhere in the config. Aliases and
tags are refused; so are maps and lists in the list, which are most often a text with a colon or brackets without quotes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from moetuned.parse.config_problem import ConfigError, Problem

LIMIT_BYTES = 256 << 10
LIMIT_PROMPTS = 256
LIMIT_CHARACTERS = 1000
"""Of one prompt: some 250 tokens. Builds without progress (`host.prompt_sender`) read a prompt to its end before they see it cancelled."""
_LIMIT_PROBLEMS = 20
_TEXT_TAGS = (None, "!", "tag:yaml.org,2002:str")
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def parse_prompts(file: str, text: str) -> tuple[str, ...]:
    """The prompts in order; `file` is only its name. Raises ConfigError; what is in the file is not in its messages."""
    if len(text) > LIMIT_BYTES:
        raise ConfigError([_problem(file, f"is larger than {LIMIT_BYTES >> 10} KiB; that is no list of short prompts")])
    prompts: list[str] = []
    problems: list[Problem] = []
    try:
        for line, found in _items(text):
            if isinstance(found, str) and (wrong := _wrong(found)) is None:
                prompts.append(found)
                continue
            problems.append(_problem(file, wrong if isinstance(found, str) else found.args[0], line))
            if not isinstance(found, str) or len(problems) >= _LIMIT_PROBLEMS:
                break
    except (yaml.YAMLError, UnicodeError) as error:
        mark = getattr(error, "problem_mark", None)
        said = getattr(error, "problem", None) or getattr(error, "reason", None) or "it cannot be read"
        problems.append(_problem(file, f"is not YAML: {said}", None if mark is None else mark.line + 1))
    if not problems and not prompts:
        problems.append(_problem(file, "holds no prompt; write a list of texts, or prompts: off in the config"))
    if len(prompts) > LIMIT_PROMPTS:
        problems.append(_problem(file, f"holds {len(prompts)} prompts; at most {LIMIT_PROMPTS} are sent"))
    if problems:
        raise ConfigError(problems)
    return tuple(prompts)


def _items(text: str) -> Iterator[tuple[int, str | ValueError]]:
    """Line and text of each item; a ValueError for what is no item, after which nothing can be told."""
    depth = 0
    events: Iterator[Any] = yaml.parse(text.removeprefix("\ufeff"), Loader=_LOADER)
    for event in events:
        line = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent):
            yield line, ValueError("aliases are not supported; write the text out")
        elif isinstance(event, yaml.SequenceStartEvent) and depth == 0:
            depth = 1
        elif isinstance(event, yaml.SequenceEndEvent):
            depth = 2
        elif isinstance(event, yaml.ScalarEvent) and depth == 1:
            if event.tag not in _TEXT_TAGS:
                yield line, ValueError("tags are not supported; write the plain text")
            else:
                yield line, str(event.value)
        elif isinstance(event, yaml.NodeEvent) and depth == 1:
            yield line, ValueError("must be a text; put one with a colon, brackets or braces in quotes")
        elif isinstance(event, yaml.NodeEvent) and not _is_nothing(event):
            what = "a second list begins here; a file has one" if depth == 2 else "must be a list of texts: - a prompt"
            yield line, ValueError(what)


def _is_nothing(event: Any) -> bool:
    return isinstance(event, yaml.ScalarEvent) and event.value == ""


def _wrong(prompt: str) -> str | None:
    if not prompt.strip():
        return "is empty; write a text or take the item out"
    if len(prompt) > LIMIT_CHARACTERS:
        return f"has {len(prompt)} characters; a prompt has at most {LIMIT_CHARACTERS}"
    if "\0" in prompt:
        return "must not hold a NUL character"
    try:
        prompt.encode()
    except UnicodeEncodeError:
        return "holds half a surrogate pair, which is no character"
    return None


def _problem(file: str, hint: str | None, line: int | None = None) -> Problem:
    return Problem(file, "", None, hint or "cannot be used", line)
