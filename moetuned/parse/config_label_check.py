"""Labels that a config adds to alerts: what Prometheus takes for a name and a value, and none that moetuned sets itself."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from moetuned.parse.config_problem import Problem, key_path, shown

MOST_LABELS = 16
VALUE_CHARACTERS = 200
OWN_NAMES = frozenset({"alertname", "severity", "backend"})
_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]{0,62}")


def check_labels(path: tuple[str | int, ...], labels: Mapping[str, str]) -> Iterator[Problem]:
    """All problems of `labels` of the sink at `path`."""
    if len(labels) > MOST_LABELS:
        yield Problem("", key_path((*path, "labels")), f"{len(labels)} labels", f"at most {MOST_LABELS} are allowed")
    for name, value in labels.items():
        where = key_path((*path, "labels", name))
        if _NAME.fullmatch(name) is None or name.startswith("__"):
            yield Problem("", where, None, "is no label's name: letters, digits and _, not a digit first, not __ first")
        elif name in OWN_NAMES:
            yield Problem(
                "", where, None, "is set by moetuned and must be the same for begin and end; choose another name"
            )
        if not value or len(value) > VALUE_CHARACTERS or not value.isprintable():
            yield Problem("", where, shown(value), f"must be one line of 1 to {VALUE_CHARACTERS} characters")
