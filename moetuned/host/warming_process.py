"""A small process that warms a model from inside the backend's memory cgroup: `python -m moetuned.host.warming_process`.

Page cache is charged to the cgroup that touches a page first, so the daemon cannot do this itself. It reads a plan (one line of JSON) from
standard input, joins the cgroup, touches, and writes a line of JSON for progress and one at the end. It pauses by itself while the
backend reads or memory is under pressure. It ends when its standard input closes, so it never outlives the daemon, and offers itself
to the OOM killer before anything else. It joins only after everything is imported: what it has by then stays charged to the daemon.
"""

from __future__ import annotations

import os
import select
import sys
import time
from collections import deque

from moetuned.host import inside_cgroup
from moetuned.host.page_touch import Range, TouchError, Touching, multi_gen_lru
from moetuned.host.warming_backoff import LOOK_SECONDS, BackendGoneError, Backoff, Watch

REPORT_EVERY_SECONDS = 0.25
RATE_OVER_SECONDS = 3.0
IDLE_LOOK_SECONDS = 0.25
"""Between two looks at how far it is when no backend is watched."""
BESIDE_BYTES_PER_SECOND = 400e6
"""While the backend works, so that a request keeps the memory bandwidth it needs: tests/bench/test_bench_warming.py measures what it loses."""
SLOWLY_BYTES_PER_SECOND = 16e6
"""While others have the machine's memory under pressure: little beside what they read, and 20 GB in half an hour."""
NICENESS = 19
"""Beside a backend: its threads go first."""


class Plan:
    """What to do. A plain class: msgspec alone would double this process's memory."""

    def __init__(self, plan: dict[str, object]) -> None:
        """Raises KeyError, TypeError or ValueError when something is missing or of another kind."""
        self.paths = [str(path) for path in inside_cgroup.as_list(plan["paths"])]
        self.ranges = [self._range(each) for each in inside_cgroup.as_list(plan["ranges"])]
        self.twice = [self._range(each) for each in inside_cgroup.as_list(plan["twice"])]
        self.goal_bytes = sum(length for _, _, length in (*self.ranges, *self.twice))
        self.rate_bytes_per_second = None if plan["rate"] is None else int(str(plan["rate"]))
        if self.rate_bytes_per_second is not None and self.rate_bytes_per_second <= 0:
            raise ValueError(f"no rate: {self.rate_bytes_per_second}")
        self.cgroup = None if plan["cgroup"] is None else str(plan["cgroup"])
        self.outside = plan.get("outside") is True
        backend = plan.get("backend")
        self.backend = None
        if backend is not None:
            pid, start_ticks = (int(str(number)) for number in inside_cgroup.as_list(backend))
            if pid <= 0:
                raise ValueError(f"no process id: {pid}")
            self.backend = pid, start_ticks

    def _range(self, value: object) -> Range:
        part, offset, length = (int(str(number)) for number in inside_cgroup.as_list(value))
        if not (0 <= part < len(self.paths) and offset >= 0 and length >= 0):
            raise ValueError(f"there is no range {value}")
        return part, offset, length


class Reporter:
    """Progress lines: at most four a second, and one at once when it pauses or goes on."""

    def __init__(self, goal_bytes: int, fixed: dict[str, object]) -> None:
        """`fixed` is part of every line."""
        self._goal_bytes, self._fixed = goal_bytes, fixed
        self._seen: deque[tuple[float, int]] = deque()
        self._said_at = float("-inf")
        self._said_reason: str | None = None

    def line(
        self, now: float, done_bytes: int, reason: str | None, *, slowly: bool = False
    ) -> dict[str, object] | None:
        """What to say now, None for nothing. `reason`: why it is paused, or goes on `slowly`. The rate is that of the last seconds."""
        fixed = self._fixed
        if slowly and reason is not None:
            fixed, reason = {**fixed, "detail": f"slowly, because {reason}"}, None
        if now - self._said_at < REPORT_EVERY_SECONDS and reason == self._said_reason:
            return None
        if reason != self._said_reason:
            self._seen.clear()
        self._said_at, self._said_reason = now, reason
        seen = self._seen
        seen.append((now, done_bytes))
        while len(seen) > 2 and now - seen[1][0] >= RATE_OVER_SECONDS:
            seen.popleft()
        line: dict[str, object] = {"state": "paused" if reason else "running", "done_bytes": done_bytes, **fixed}
        if reason is not None:
            return {**line, "detail": reason, "rate_bytes_per_second": 0.0}
        seconds, grown = now - seen[0][0], done_bytes - seen[0][1]
        if seconds > 0:
            line["rate_bytes_per_second"] = round(grown / seconds, 1)
            if grown > 0:
                line["eta_seconds"] = round((self._goal_bytes - done_bytes) * seconds / grown, 1)
        return line


def warm(plan: Plan, began: float) -> int:
    """Warm as the plan says; the exit code. Raises TouchError, BackendGoneError, and OSError when it cannot join."""
    touching = Touching(
        plan.paths,
        plan.ranges,
        plan.twice,
        rate_bytes_per_second=plan.rate_bytes_per_second,
        mapped=multi_gen_lru(),
    )
    fixed: dict[str, object] = {}
    if plan.cgroup is not None:
        try:
            inside_cgroup.join(plan.cgroup)
        except OSError as error:
            if not plan.outside:
                raise
            fixed["outside"] = f"warms from outside the backend's cgroup, which it may not join: {error}"
    watch = None
    if plan.backend is not None:
        watch = Watch(*plan.backend, plan.cgroup)
        os.nice(NICENESS)
        if watch.unwatched:
            fixed["unwatched"] = "; ".join(watch.unwatched)
    gone = follow(touching, watch, Reporter(plan.goal_bytes, fixed))
    if touching.error is not None:
        raise touching.error
    finished = touching.done_bytes >= plan.goal_bytes
    last: dict[str, object] = {
        "done_bytes": touching.done_bytes,
        "finished": finished,
        "seconds": round(time.monotonic() - began, 3),
        "rss_bytes": inside_cgroup.resident_bytes(),
        **fixed,
    }
    if gone is not None and not finished:
        last["detail"] = gone
    inside_cgroup.say(last)
    return 0 if finished else 3


def follow(touching: Touching, watch: Watch | None, reporter: Reporter) -> str | None:
    """See it through to its end; why it was stopped when the backend is gone."""
    poll = select.poll()
    poll.register(inside_cgroup.INPUT, select.POLLIN)
    poll.register(touching.fileno(), select.POLLIN)
    if watch is not None and watch.pidfd is not None:
        poll.register(watch.pidfd, select.POLLIN)
    gone: str | None = None
    started = False
    while not touching.ended or not started:
        now = time.monotonic()
        if watch is not None and gone is None:
            try:
                (touching.pause if watch.look(now, touching.idle) else touching.resume)()
                touching.limit(_limit(watch.backoff))
            except BackendGoneError as error:
                gone = str(error)
                touching.stop()
        if not started:
            touching.start()
            started = True
        reason, slowly = (None, False) if watch is None else (watch.backoff.reason, watch.backoff.slowly)
        line = reporter.line(now, touching.done_bytes, reason, slowly=slowly)
        if line is not None:
            inside_cgroup.say(line)
        for descriptor, _ in poll.poll((IDLE_LOOK_SECONDS if watch is None else LOOK_SECONDS) * 1000):
            if descriptor == touching.fileno():
                os.eventfd_read(descriptor)
            elif descriptor == inside_cgroup.INPUT:
                if not os.read(inside_cgroup.INPUT, 65536):
                    poll.unregister(inside_cgroup.INPUT)
                    touching.stop()
            else:
                poll.unregister(descriptor)
                gone = "the backend has ended"
                touching.stop()
    return gone


def _limit(backoff: Backoff) -> float | None:
    if backoff.slowly:
        return SLOWLY_BYTES_PER_SECOND
    return BESIDE_BYTES_PER_SECOND if backoff.works else None


def main() -> int:
    """Warm as the plan says; 0 done, 1 failed, 3 stopped."""
    inside_cgroup.begin()
    began = time.monotonic()
    try:
        return warm(Plan(inside_cgroup.read_plan()), began)
    except TouchError as error:
        inside_cgroup.say({"error": str(error)})
    except BackendGoneError as error:
        inside_cgroup.say({"done_bytes": 0, "finished": False, "detail": str(error)})
        return 3
    except OSError as error:
        inside_cgroup.say({"error": f"cannot warm from inside the backend's cgroup: {error}"})
    except (ValueError, KeyError, TypeError) as error:
        inside_cgroup.say({"error": f"the plan is wrong: {error!r}"})
    return 1


if __name__ == "__main__":
    sys.exit(main())
