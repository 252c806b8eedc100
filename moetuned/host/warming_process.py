"""A small process that warms a model from inside the backend's memory cgroup: `python -m moetuned.host.warming_process`.

Page cache is charged to the cgroup that touches a page first, so the daemon cannot do this itself. It reads a plan (one line of JSON) from
standard input, joins the cgroup, touches, and writes a line of JSON for progress and one at the end. It ends when its
standard input closes, so it never outlives the daemon, and offers itself to the OOM killer before anything else. It joins only
after everything is imported: what it has by then stays charged to the daemon.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time

from moetuned.host.page_touch import Range, TouchError, touch

PLAN_LIMIT_BYTES = 32 << 20
REPORT_EVERY_SECONDS = 0.25
_INPUT, _OUTPUT = 0, 1


class Plan:
    """What to do. A plain class: msgspec alone would double this process's memory."""

    def __init__(self, plan: dict[str, object]) -> None:
        """Raises KeyError, TypeError or ValueError when something is missing or of another kind."""
        self.paths = [str(path) for path in _list(plan["paths"])]
        self.ranges = [self._range(each) for each in _list(plan["ranges"])]
        self.twice = [self._range(each) for each in _list(plan["twice"])]
        self.goal_bytes = sum(length for _, _, length in (*self.ranges, *self.twice))
        self.rate_bytes_per_second = None if plan["rate"] is None else int(str(plan["rate"]))
        self.cgroup = None if plan["cgroup"] is None else str(plan["cgroup"])

    def _range(self, value: object) -> Range:
        part, offset, length = (int(str(number)) for number in _list(value))
        if not (0 <= part < len(self.paths) and offset >= 0 and length >= 0):
            raise ValueError(f"there is no range {value}")
        return part, offset, length


class _Reporter:
    """Progress lines, at most four a second."""

    def __init__(self) -> None:
        self._last = 0.0

    def progress(self, done_bytes: int) -> None:
        now = time.monotonic()
        if now - self._last >= REPORT_EVERY_SECONDS:
            self._last = now
            say({"done_bytes": done_bytes})


def say(line: dict[str, object]) -> None:
    """Write one line; a reader that is gone ends the process (SIGPIPE)."""
    os.write(_OUTPUT, json.dumps(line).encode() + b"\n")


def input_closed(seconds: float) -> bool:
    """Wait this long, less when standard input closes; whether it has."""
    poll = select.poll()
    poll.register(_INPUT, select.POLLIN)
    return bool(poll.poll(seconds * 1000)) and not os.read(_INPUT, 65536)


def read_plan() -> Plan:
    """The first line of standard input. Raises ValueError, KeyError or TypeError for what is no plan."""
    text = bytearray()
    while not text.endswith(b"\n"):
        chunk = os.read(_INPUT, 1 << 16)
        text += chunk
        if not chunk or len(text) > PLAN_LIMIT_BYTES:
            raise ValueError("no complete plan on standard input")
    return Plan(json.loads(text))


def resident_bytes() -> int:
    """Memory of this process (RSS)."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def join(cgroup: str) -> None:
    """Move this process into a cgroup. Raises OSError."""
    descriptor = os.open(f"{cgroup}/cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, b"0")
    finally:
        os.close(descriptor)


def main() -> int:
    """Warm as the plan says; 0 done, 1 failed, 3 stopped."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("1000")
    began = time.monotonic()
    try:
        plan = read_plan()
        if plan.cgroup is not None:
            join(plan.cgroup)
        done = touch(
            plan.paths, plan.ranges, plan.twice, plan.rate_bytes_per_second, input_closed, _Reporter().progress
        )
    except TouchError as error:
        say({"error": str(error)})
        return 1
    except OSError as error:
        say({"error": f"cannot warm from inside the backend's cgroup: {error}"})
        return 1
    except (ValueError, KeyError, TypeError) as error:
        say({"error": f"the plan is wrong: {error!r}"})
        return 1
    say(
        {
            "done_bytes": done,
            "finished": done >= plan.goal_bytes,
            "seconds": round(time.monotonic() - began, 3),
            "rss_bytes": resident_bytes(),
        }
    )
    return 0 if done >= plan.goal_bytes else 3


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r} is no list")
    return value


if __name__ == "__main__":
    sys.exit(main())
