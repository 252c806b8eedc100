"""Values that a shell completes and only the machine knows: backends of the running daemon, units of systemd.

A shell puts them on a command line as they are, and the next Enter runs it: names with anything but plain characters are left out.
Whatever cannot be asked at once has no names.
"""

from __future__ import annotations

import os
import re
from typing import Any

import click

TIMEOUT_SECONDS = 0.25
UNIT_DIRECTORIES = (
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
)
RUNNING_UNITS = "/run/systemd/units"
_RUNNING = "invocation:"
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9@%+,._-]*")


def plain(names: set[str]) -> list[str]:
    """Those that a shell takes for one word and nothing else, sorted."""
    return sorted(name for name in names if _PLAIN.fullmatch(name))


def backend_names(context: click.Context) -> list[str]:
    """Names that the daemon knows, also where an earlier --socket names it."""
    from moetuned.api.socket_path import find_socket

    path = os.path.expanduser(context.params.get("socket") or find_socket(os.environ))
    if not os.path.exists(path):
        return []
    import msgspec

    from moetuned.api.client import Client
    from moetuned.api.errors import DaemonError

    named = msgspec.defstruct("Named", [("name", str)])
    status = msgspec.defstruct("Status", [("backends", list[named])])  # type: ignore[valid-type]
    try:
        known: Any = msgspec.json.decode(Client(path, TIMEOUT_SECONDS).request("GET", "/v1/status"), type=status)
    except (DaemonError, msgspec.DecodeError, UnicodeDecodeError):
        return []
    return plain({one.name for one in known.backends})


def unit_names(_context: click.Context) -> list[str]:
    """Services that systemd runs or has a file for; templates only as what runs of them."""
    running = (name.removeprefix(_RUNNING) for name in _listed(RUNNING_UNITS) if name.startswith(_RUNNING))
    with_file = (name for directory in UNIT_DIRECTORIES for name in _listed(directory))
    return plain({name for name in (*running, *with_file) if name.endswith(".service") and "@." not in name})


def _listed(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []
