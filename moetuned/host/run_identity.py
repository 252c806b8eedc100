"""Whom a program is run as."""

from __future__ import annotations

import msgspec


class Identity(msgspec.Struct, frozen=True):
    """Whom a program runs as: user id, group id and all further groups."""

    user: int
    group: int
    groups: tuple[int, ...]
