"""Looks at a scenario from outside, many times a second: the cgroup's counters, which processes serve which port, and who is healthy."""

from __future__ import annotations

import contextlib
import http.client
import threading
import time
from dataclasses import dataclass, field

from relief_place import Place

LOOK_SECONDS = 0.05
HEALTH_SECONDS = 0.1


@dataclass
class Seen:
    """What was seen of the backend on one port; monotonic seconds.

    `lives`: pid, first and last time that it was seen. `doubles`: times at which two processes served it. `healthy`: when that changed.
    """

    port: int
    lives: list[tuple[int, float, float]] = field(default_factory=list)
    doubles: list[tuple[float, tuple[int, ...]]] = field(default_factory=list)
    healthy: list[tuple[float, bool]] = field(default_factory=list)

    def looked(self, now: float, pids: tuple[int, ...]) -> None:
        """These processes served it at `now`."""
        if len(pids) > 1:
            self.doubles.append((now, pids))
        for pid in pids:
            if self.lives and self.lives[-1][0] == pid:
                self.lives[-1] = (pid, self.lives[-1][1], now)
            elif all(pid != life[0] for life in self.lives):
                self.lives.append((pid, now, now))

    def asked(self, now: float, healthy: bool) -> None:
        if not self.healthy or self.healthy[-1][1] != healthy:
            self.healthy.append((now, healthy))

    def healthy_after(self, then: float) -> float | None:
        """When it was first healthy at or after `then`, counted from a time when it was not; None: never."""
        return next((at for at, healthy in self.healthy if healthy and at >= then), None)


class Watch:
    """Threads that look at the cgroup and ask the backends until they are stopped."""

    def __init__(self, place: Place, ports: tuple[int, ...], counted: Place) -> None:
        """`counted`: whose OOM kills, use and failures count; `place` holds the backends."""
        self.place = place
        self.counted = counted
        self.seen = {port: Seen(port) for port in ports}
        self.most_bytes = 0
        self.oom_kills = 0
        self.oom_kill_times: list[float] = []
        self.failures = 0
        self._kills_before = counted.oom_kills()
        self._failures_before = counted.failures()
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._look, daemon=True)]
        self._threads += [threading.Thread(target=self._ask, args=(port,), daemon=True) for port in ports]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(5.0)

    def _look(self) -> None:
        while not self._stop.wait(LOOK_SECONDS):
            with contextlib.suppress(OSError):
                now = time.monotonic()
                self.most_bytes = max(self.most_bytes, self.counted.usage_bytes())
                kills = self.counted.oom_kills() - self._kills_before
                if kills > self.oom_kills:
                    self.oom_kill_times.append(now)
                self.oom_kills = kills
                self.failures = self.counted.failures() - self._failures_before
                commands = {pid: command_line(pid) for pid in self.place.processes()}
                for port, seen in self.seen.items():
                    seen.looked(now, tuple(pid for pid, argv in commands.items() if serves(argv, port)))

    def _ask(self, port: int) -> None:
        while not self._stop.wait(HEALTH_SECONDS):
            healthy = is_healthy(port)
            self.seen[port].asked(time.monotonic(), healthy)


def command_line(pid: int) -> list[str]:
    """Arguments of a process; [] once it is gone, or has ended and waits to be collected."""
    try:
        with open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as file:
            return file.read(1 << 16).split("\0")
    except OSError:
        return []


def serves(argv: list[str], port: int) -> bool:
    """Whether this is the command line of a backend on that port (or of the shell that becomes it)."""
    return any(argv[at] == "--port" and argv[at + 1] == str(port) for at in range(len(argv) - 1))


def is_healthy(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
