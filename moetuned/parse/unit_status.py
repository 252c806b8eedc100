"""What `systemctl show` prints of a unit: one `Property=value` a line (org.freedesktop.systemd1(5) says what each is)."""

from __future__ import annotations

import re

import msgspec

PROPERTIES = (
    "Id", "LoadState", "ActiveState", "Result", "Type", "Restart", "MainPID", "ExecMainCode", "ExecMainStatus",
    "ExecMainStartTimestampMonotonic", "ExecMainExitTimestampMonotonic", "ActiveExitTimestampMonotonic", "Job", "FragmentPath",
    "DropInPaths", "EnvironmentFiles", "NeedDaemonReload", "SubState", "NRestarts",
)  # fmt: skip
"""What is asked for. None of them can have a line break in it but paths that are not understood then."""
_IGNORE_ERRORS = re.compile(r"(.*) \(ignore_errors=(?:yes|no)\)")
_MOST_DIGITS = 20


class UnitStatus(msgspec.Struct, frozen=True):
    """Times are CLOCK_MONOTONIC microseconds; None: never, or not said.

    `main_code`: how the last main process ended, as waitid(2) says it (1: it exited, 2: a signal ended it, 3: the same with a core
    dump); `main_status`: its exit code or that signal. `job`: something is queued or under way for it. `drop_ins`: None where a path
    has something in it that cannot be told from the next one. `restarts`: how often systemd started it again by itself (Restart=).
    """

    name: str
    load_state: str
    active_state: str
    result: str
    type: str = ""
    restart: str = ""
    main_pid: int | None = None
    main_code: int | None = None
    main_status: int | None = None
    main_started_at: int | None = None
    main_exited_at: int | None = None
    left_active_at: int | None = None
    job: bool = False
    fragment: str | None = None
    drop_ins: tuple[str, ...] | None = ()
    environment_files: tuple[str, ...] = ()
    needs_reload: bool = False
    sub_state: str = ""
    restarts: int = 0


def parse_unit_status(text: str) -> UnitStatus | None:
    """None where it is not said what unit that is or what state it is in. Never raises."""
    values: dict[str, str] = {}
    files: list[str] = []
    for line in text.split("\n"):
        name, equals, value = line.partition("=")
        if not equals or name not in PROPERTIES:
            continue
        if name == "EnvironmentFiles":
            match = _IGNORE_ERRORS.fullmatch(value)
            files += [match[1] if match is not None else value] if value else []
        else:
            values.setdefault(name, value)
    if not all(values.get(name) for name in ("Id", "LoadState", "ActiveState")):
        return None
    return UnitStatus(
        name=values["Id"],
        load_state=values["LoadState"],
        active_state=values["ActiveState"],
        result=values.get("Result", ""),
        type=values.get("Type", ""),
        restart=values.get("Restart", ""),
        main_pid=_positive(values.get("MainPID")),
        main_code=_positive(values.get("ExecMainCode")),
        main_status=_number(values.get("ExecMainStatus")),
        main_started_at=_positive(values.get("ExecMainStartTimestampMonotonic")),
        main_exited_at=_positive(values.get("ExecMainExitTimestampMonotonic")),
        left_active_at=_positive(values.get("ActiveExitTimestampMonotonic")),
        job=_positive(values.get("Job")) is not None,
        fragment=values.get("FragmentPath") or None,
        drop_ins=_paths(values.get("DropInPaths", "")),
        environment_files=tuple(files),
        needs_reload=values.get("NeedDaemonReload") == "yes",
        sub_state=values.get("SubState", ""),
        restarts=_number(values.get("NRestarts")) or 0,
    )


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS else None


def _positive(text: str | None) -> int | None:
    return _number(text) or None


def _paths(text: str) -> tuple[str, ...] | None:
    """Paths that are joined by blanks; names that need quotes are not understood."""
    words = text.split(" ") if text else []
    return tuple(words) if all(re.fullmatch(r"/[^\s\"'$`\\]+", word) for word in words) else None
