"""Stand-ins for what the daemon's modules stand on: a clock the test moves, workers that do nothing by themselves, processes."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from moetuned.daemon.alerting import Alerting
from moetuned.host.processes import ProcessIdentity
from moetuned.host.spawn import Exit, StartError


class FakeClock:
    """Both clocks stand still until `now` is moved."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return 1_800_000_000.0 + self.now


def no_alerts() -> Alerting:
    """Alerting without sinks: what is said to it is heard by nobody."""
    return Alerting(HeldWorkers(), FakeClock(), "/nonexistent", "boot")  # type: ignore[arg-type]


class HeldWorkers:
    """Takes work and keeps it; `finish` does the oldest of a lane (or key) and gives its result back as the loop would."""

    def __init__(self) -> None:
        self.jobs: list[tuple[str, str, Callable[[], Any], Callable[[Any, BaseException | None], None]]] = []

    def submit(self, lane: str, key: str, work: Callable[[], Any], done: Callable[..., None]) -> bool:
        if any(key == known for _, known, _, _ in self.jobs):
            return False
        self.jobs.append((lane, key, work, done))
        return True

    def in_flight(self, key: str) -> bool:
        return any(key == known for _, known, _, _ in self.jobs)

    def waiting(self, lane: str) -> int:
        return sum(lane == own for own, _, _, _ in self.jobs)

    def keys(self) -> list[str]:
        return [key for _, key, _, _ in self.jobs]

    def finish(self, part_of_key: str, result: Any = None, *, really: bool = False) -> None:
        """Take out the first job with this in its key and give `result` (or what the work gives) to the loop."""
        job = next(each for each in self.jobs if part_of_key in each[1])
        self.jobs.remove(job)
        error: BaseException | None = None
        if really:
            try:
                result = job[2]()
            except Exception as failure:  # noqa: BLE001  as the workers do
                error = failure
        elif isinstance(result, BaseException):
            result, error = None, result
        job[3](result, error)


class FakeProcess:
    """What `spawn.start` gives: a descriptor that becomes readable when the test ends it."""

    def __init__(self, pid: int, argv: list[str]) -> None:
        self.identity = ProcessIdentity(pid, pid * 10)
        self.argv = argv
        self.signals: list[str] = []
        self.closed = False
        self._read, self._write = os.pipe()
        self._code: int | None = None
        self._ended = False

    def fileno(self) -> int:
        return self._read

    def end(self, code: int | None) -> None:
        self._code, self._ended = code, True
        os.write(self._write, b"x")

    def poll(self) -> Exit | None:
        if not self._ended:
            return None
        self.close()
        return Exit(self._code)

    def terminate(self) -> None:
        self.signals.append("TERM")

    def kill(self) -> None:
        self.signals.append("KILL")

    def pause(self) -> None:
        self.signals.append("STOP")

    def resume(self) -> None:
        self.signals.append("CONT")

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            os.close(self._read)
            os.close(self._write)


class FakeSpawn:
    """Stands for the module host.spawn in the supervisor. `refusals`: sentences for the next starts."""

    StartError = StartError

    def __init__(self) -> None:
        self.started: list[FakeProcess] = []
        self.options: list[dict[str, Any]] = []
        self.refusals: list[str] = []
        self.adoptable: dict[ProcessIdentity, FakeProcess] = {}

    def start(self, argv: list[str], **options: Any) -> FakeProcess:
        if self.refusals:
            raise StartError(self.refusals.pop(0))
        process = FakeProcess(100 + len(self.started), list(argv))
        self.started.append(process)
        self.options.append(options)
        return process

    def adopt(self, identity: ProcessIdentity) -> FakeProcess | None:
        return self.adoptable.get(identity)

    @staticmethod
    def boot_id() -> str:
        return "boot"

    @staticmethod
    def child_environment(base: dict[str, str], added: dict[str, str]) -> dict[str, str]:
        return {**base, **added}


class FakeGuard:
    """Stands for the helper that continues what was stopped."""

    ended = cancelled = False

    def __init__(self, identity: ProcessIdentity, seconds: float) -> None:
        self.of = (identity, seconds)
        self.others: list[ProcessIdentity] = []

    def also(self, identity: ProcessIdentity) -> None:
        self.others.append(identity)

    def release(self) -> None:
        self.ended = True

    def cancel(self) -> None:
        self.cancelled = True


class FakeGuards:
    """Makes them, and knows them."""

    def __init__(self) -> None:
        self.made: list[FakeGuard] = []

    def __call__(self, identity: ProcessIdentity, seconds: float) -> FakeGuard:
        self.made.append(FakeGuard(identity, seconds))
        return self.made[-1]


class FakeFollowed:
    """A small process in a backend's cgroup (it warms, or locks) as the daemon sees it."""

    def __init__(self, progress: Any) -> None:
        self._read, self._write = os.pipe()
        self.progress = progress
        self.stopped = self.killed = False

    def fileno(self) -> int:
        return self._read

    def say(self, progress: Any) -> None:
        self.progress = progress
        os.write(self._write, b"x")

    def advance(self) -> Any:
        os.read(self._read, 100)
        return self.progress

    def stop(self) -> None:
        self.stopped = True

    def kill(self) -> None:
        self.killed = True

    def close(self) -> None:
        os.close(self._read)
        os.close(self._write)
