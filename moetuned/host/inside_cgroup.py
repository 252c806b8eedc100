"""What a small process of ours does inside a backend's memory cgroup: get its plan, join, speak, notice that it is to end.

The other end is `host.cgroup_process`. Imports almost nothing: everything here is memory that the backend could have.
"""

from __future__ import annotations

import json
import os
import select
import signal

PLAN_LIMIT_BYTES = 32 << 20
INPUT, _OUTPUT = 0, 1


def begin() -> None:
    """Be the first that the OOM killer takes, and end with SIGPIPE when nobody listens any more. Raises OSError."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("1000")


def read_plan() -> dict[str, object]:
    """The first line of standard input, an object of JSON. Raises ValueError or TypeError for anything else."""
    text = bytearray()
    while not text.endswith(b"\n"):
        chunk = os.read(INPUT, 1 << 16)
        text += chunk
        if not chunk or len(text) > PLAN_LIMIT_BYTES:
            raise ValueError("no complete plan on standard input")
    plan = json.loads(text)
    if not isinstance(plan, dict):
        raise TypeError("the plan is no object")
    return plan


def as_list(value: object) -> list[object]:
    """A list of the plan. Raises TypeError for anything else."""
    if not isinstance(value, list):
        raise TypeError(f"{value!r} is no list")
    return value


def join(cgroup: str) -> None:
    """Move this process into a cgroup. To be called once all is imported: memory it has by then stays charged where it was.

    Raises OSError.
    """
    descriptor = os.open(f"{cgroup}/cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, b"0")
    finally:
        os.close(descriptor)


def say(line: dict[str, object]) -> None:
    """Write one line of JSON; a reader that is gone ends the process (SIGPIPE)."""
    os.write(_OUTPUT, json.dumps(line).encode() + b"\n")


def input_closed(seconds: float) -> bool:
    """Wait this long, less when standard input closes; whether it has."""
    poll = select.poll()
    poll.register(INPUT, select.POLLIN)
    return bool(poll.poll(seconds * 1000)) and not os.read(INPUT, 1 << 16)


def resident_bytes() -> int:
    """Memory of this process (RSS), what it maps of files included."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
