"""Other programs beside a backend: who read or grew much, as far as it can be seen."""

from __future__ import annotations

import msgspec


class Neighbour(msgspec.Struct, frozen=True):
    """One other program. `did`: "read" (from disks) or "grew" (anonymous memory and swap), `bytes` in `seconds`.

    `name` is its command name, `unit` the systemd unit or container it is in; both come from outside and are printable here.
    `pid` None: it has ended. `text` is the whole as one clause.
    """

    name: str
    did: str
    bytes: int
    seconds: float
    pid: int | None = None
    unit: str | None = None
    text: str = ""
