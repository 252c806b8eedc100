"""A daemon that sees the seconds of a recorded trace: its own judge, announcer, neighbours and views, and a clock and workers of the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from moetuned.daemon.announcer import Announcer
from moetuned.daemon.event_log import EventLog
from moetuned.daemon.judging import Judge
from moetuned.daemon.loop import Loop
from moetuned.daemon.model_care import ModelCare
from moetuned.daemon.neighbours import Looked, Neighbours
from moetuned.daemon.settings import settings_of
from moetuned.daemon.snapshot_view import backend_view, machine_view
from moetuned.daemon.watched import Watched
from moetuned.decide.neighbours import Look, Seen
from moetuned.gguf.header import Header
from moetuned.host.cgroup import MemoryCgroup
from moetuned.host.model_files import ModelFile
from moetuned.host.processes import ProcessIdentity
from moetuned.parse.process import parse_process
from moetuned.schema.backend_description import BackendDescription
from moetuned.schema.config import Backend, Config
from moetuned.schema.event import Event
from moetuned.schema.model import ModelIdentity
from moetuned.schema.sample import RawSample
from moetuned.schema.snapshot import SelfView, Snapshot, TunableView
from moetuned.state.trace import read_trace

TRACES = Path(__file__).parent.parent / "data" / "traces"
MODEL = "/models/m.gguf"
EVENTS_SHOWN = 20
FIRST_WALL_SECONDS = 1_800_000_000.0
"""Unix time of a trace's first second here: 2027-01-15 08:00:00 UTC."""


class _Clock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now = self.first = 0.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return FIRST_WALL_SECONDS + self.now - self.first


class _Workers:
    """Keeps work until the test gives its result."""

    def __init__(self) -> None:
        self.jobs: dict[str, Callable[[Any, BaseException | None], None]] = {}

    def submit(self, _lane: str, key: str, _work: Callable[[], Any], done: Callable[..., None]) -> bool:
        return self.jobs.setdefault(key, done) is done

    def give(self, key: str, result: object) -> None:
        self.jobs.pop(next(each for each in self.jobs if key in each))(result, None)


class _NoAlerting:
    """Nobody is told."""

    def hear(self, event: Event) -> None:
        pass


class ReplayedDaemon:
    """Watches `lab`, the backend of the trace, as its config says. Call `close` at the end."""

    def __init__(
        self, root: Path, name: str, config: Config | None = None, description: BackendDescription | None = None
    ) -> None:
        trace = read_trace(str(TRACES / f"{name}.jsonl.gz"))
        self.root, self.config = root, config or Config()
        self.samples: Iterator[RawSample] = iter(trace.samples)
        first = next(self.samples)
        self.clock, self.workers, self.events = _Clock(), _Workers(), EventLog(1.0)
        self.clock.now = self.clock.first = first.t
        self.loop = Loop(self.clock)
        announcer = Announcer(self.events, _NoAlerting(), self.clock)  # type: ignore[arg-type]
        self.neighbours = Neighbours(self.clock, self.workers, announcer)  # type: ignore[arg-type]
        care = ModelCare(self.loop, self.clock, self.workers)  # type: ignore[arg-type]
        self.judge = Judge(self.clock, care, announcer, str(root), self.neighbours)
        self.tuning: tuple[TunableView, ...] = ()
        self.notes: tuple[str, ...] = ()
        pid = trace.backend.pid
        process = parse_process(pid, first.files[f"/proc/{pid}/stat"], None, None)
        assert process is not None
        assert process.start_ticks is not None
        assert trace.backend.model is not None
        own = Backend("lab", kind="llama-server", url="http://127.0.0.1:8080")
        self.watched = Watched("lab", own, first.t)
        self.watched.follow_process(ProcessIdentity(pid, process.start_ticks), first.t)
        self.watched.cgroup = MemoryCgroup(trace.identity.cgroup_directory, trace.identity.cgroup_version)
        self.watched.disks, self.watched.model_path = trace.identity.disks, MODEL
        identity = ModelIdentity((MODEL,), trace.backend.model.size or 0, trace.backend.model.layout)
        self.watched.model = ModelFile(identity, (Header(3, False, {}, {}, (), 32, 0, 0),), (), None)
        self.watched.description = description or BackendDescription(
            context_length=4096, prompt_cache_mib=64, batch_tokens=512
        )
        self._second(first)

    def until(self, condition: Callable[[Watched], object], ticks_more: int = 0) -> Snapshot:
        """The snapshot of the first second at which this is so, or of `ticks_more` seconds later."""
        for raw in self.samples:
            self._second(raw)
            if condition(self.watched):
                break
        else:
            raise AssertionError("it never came to this")
        for _ in range(ticks_more):
            self._second(next(self.samples))
        return self.snapshot()

    def after(self, seconds: float) -> Snapshot:
        """The snapshot of the second that is so long after the first one."""
        return self.until(lambda _: self.clock.now - self.clock.first >= seconds)

    def seen(self, *seen: Seen) -> None:
        """A look at all processes ends, and this is what it saw."""
        look = Look(self.clock.now, self.clock.wall(), self.clock.first, tuple(seen))
        self.workers.give("who else", Looked(look, 0.001))

    def snapshot(self) -> Snapshot:
        """What everybody is shown now."""
        now, wall = self.clock.now, self.clock.wall()
        return Snapshot(
            status=1,
            wall_seconds=wall,
            at_seconds=now,
            mode=self.config.relief.mode.value,
            profile=self.config.tuning.profile.value,
            config="/etc/moetuned/moetuned.yaml",
            daemon=SelfView(812, "0.1.0", FIRST_WALL_SECONDS - 3600.0, 3600),
            machine=machine_view(self.judge.last_samples),
            backends=(backend_view(self.watched, now),),
            tuning=self.tuning,
            events=self.events.last(EVENTS_SHOWN),
            notes=self.notes,
        )

    def close(self) -> None:
        """Give back what is open."""
        self.judge.close()
        self.loop.close()

    def _second(self, raw: RawSample) -> None:
        for path, text in raw.files.items():
            file = self.root / path.removeprefix("/")
            if text is None:
                file.unlink(missing_ok=True)
                continue
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        own = raw.backends["lab"]
        self.clock.now = raw.t
        self.watched.http, self.watched.http_at, self.watched.fresh_residency = own.http, raw.t, own.residency
        self.judge.look([self.watched], settings_of(self.config), raw.t, may_restart=False)
