"""One backend as the daemon sees it, second after second, without the daemon: what `moetunectl record` writes down.

Files are read in the caller's thread by the daemon's own sampler. HTTP and residency are asked beside it, as the daemon does: an
answer belongs to the tick after it came, one that is too old is none, and scans of residency keep to a share of a core.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import msgspec

from moetuned.decide.facts import BackendFacts
from moetuned.decide.launch_facts import with_launch
from moetuned.decide.tick_interval import HTTP_FRESH_SECONDS
from moetuned.gguf.experts import expert_ranges
from moetuned.gguf.header import GgufError
from moetuned.gguf.kv_cache import kv_bytes_per_token
from moetuned.host.backend_http import Probe
from moetuned.host.background import Background
from moetuned.host.cgroup import MemoryCgroup, memory_cgroup
from moetuned.host.clock import Clock
from moetuned.host.model_files import ModelFile
from moetuned.host.page_cache import PAGE_BYTES, ResidencyScan
from moetuned.host.processes import CLOCK_TICKS, ProcessIdentity
from moetuned.host.sampler import Sampler
from moetuned.parse.backend_http import paths_of
from moetuned.schema.backend_abilities import Dialect
from moetuned.schema.backend_description import BackendDescription
from moetuned.schema.sample import BackendIdentity, HttpNumbers, KeptCgroup, RawBackend, RawResidency, RawSample

SCAN_PIECE_SECONDS = 0.005
SCAN_PAUSE_SECONDS = 0.02
SCAN_CPU_SHARE = 0.02
"""Scans take at most this share of a core on average."""
RESIDENCY_SECONDS = 10.0
"""Between two scans; the default of watch.residency_every."""

Poll = Callable[[bool], dict[str, str]]
"""Asks the backend over HTTP; the argument says that it does nothing (see `Probe.poll`)."""
Scan = Callable[[], "Scanned"]
Where = Callable[[], MemoryCgroup]
"""The memory cgroup that the backend's process is in now."""


class Subject(msgspec.Struct, frozen=True):
    """The backend that is recorded. `model` None: unknown, `model_unknown` says why in one sentence."""

    name: str
    kind: str
    process: ProcessIdentity
    argv: tuple[str, ...] = ()
    description: BackendDescription | None = None
    url: str | None = None
    url_unknown: str | None = None
    may_sleep: bool = True
    model: ModelFile | None = None
    model_unknown: str | None = None
    cgroup: MemoryCgroup = MemoryCgroup()
    disks: tuple[str, ...] = ()
    numbers: HttpNumbers | None = None
    kept: tuple[KeptCgroup, ...] = ()

    @property
    def dialect(self) -> Dialect:
        """How it answers over HTTP."""
        return Dialect.LLAMA if self.description is None else self.description.dialect

    @property
    def identity(self) -> BackendIdentity:
        """Which files belong to it."""
        return BackendIdentity(
            name=self.name,
            pid=self.process.pid,
            start_ticks=self.process.start_ticks,
            url=self.url,
            cgroup_directory=self.cgroup.counted_in,
            cgroup_version=self.cgroup.version,
            limited_above=self.cgroup.limited_above,
            disks=self.disks,
            page_bytes=PAGE_BYTES,
            clock_ticks=CLOCK_TICKS,
            dialect=self.dialect,
            numbers=self.numbers,
            kept=self.kept,
        )

    @property
    def facts(self) -> BackendFacts:
        """What signals need to know of it."""
        identity = None if self.model is None else self.model.identity
        facts = BackendFacts(
            model_bytes=None if identity is None else identity.size_bytes,
            layout=None if identity is None else identity.layout,
            disks=self.disks,
            page_bytes=PAGE_BYTES,
            clock_ticks=CLOCK_TICKS,
            address_known=self.url is not None,
        )
        return with_launch(facts, self.kind, self.description, _kv_bytes_per_token(self.model, self.description))


class Scanned(msgspec.Struct, frozen=True):
    """A scan of residency; `result` None: `unknown` says why."""

    result: RawResidency | None
    unknown: str | None
    cpu_seconds: float


class Recording:
    """Belongs to one thread. `read` once a sample, then `ask`, which is for the next one."""

    def __init__(
        self,
        subject: Subject,
        clock: Clock,
        interval_seconds: float = 1.0,
        root: str = "/",
        poll: Poll | None = None,
        scan: Scan | None = None,
        where: Where | None = None,
    ) -> None:
        """`root`: where files are, another directory for fixtures. `poll`, `scan` and `where`: in place of the subject's own.

        Raises ValueError when the subject's address is not on this machine.
        """
        self.residency_unknown: str | None = subject.model_unknown
        self._identity = subject.identity
        self._clock = clock
        self._fresh_seconds = max(HTTP_FRESH_SECONDS, 2 * interval_seconds)
        self._sampler = Sampler(clock, root)
        self._poll = poll if poll is not None else _poll_of(subject)
        self._scan = scan if scan is not None else _scan_of(subject)
        self._cgroup = subject.cgroup
        self._where = where if where is not None else lambda: memory_cgroup(subject.process.pid)
        self._moved = False
        self._asking: Background[dict[str, str]] = Background("asking the backend")
        self._scanning: Background[Scanned] = Background("looking at residency")
        self._http: dict[str, str] = {}
        self._http_at: float | None = None
        self._next_scan = clock.monotonic()

    def read(self) -> RawSample:
        """One sample: all files now, and what came from elsewhere since the last one."""
        now = self._clock.monotonic()
        answers = self._asking.take()
        if answers is not None:
            self._http, self._http_at = answers, now
        fresh = self._http_at is not None and now - self._http_at <= self._fresh_seconds
        raw = RawBackend(http=self._http if fresh else {}, residency=self._take_residency(now))
        sample = self._sampler.read((self._identity,), {self._identity.name: raw})
        if not self._moved:
            # Asked after the files were read: they are its own up to here.
            now_in = self._where().counted_in
            self._moved = now_in is not None and now_in != self._cgroup.counted_in
        return self._without_cgroup(sample) if self._moved else sample

    def ask(self, *, idle: bool = False) -> None:
        """Ask for what the next sample is to have; never waits. `idle`: the backend does nothing lately."""
        poll, scan, now = self._poll, self._scan, self._clock.monotonic()
        if poll is not None:
            self._asking.start(lambda: poll(idle))
        if scan is not None and now >= self._next_scan and self._scanning.start(scan):
            self._next_scan = now + RESIDENCY_SECONDS

    def wait(self, timeout_seconds: float = 2.0) -> None:
        """Until what was asked has come, e.g. before the first sample."""
        self._asking.wait(timeout_seconds)

    def close(self) -> None:
        """Give the descriptors back."""
        self._sampler.close()

    def _without_cgroup(self, sample: RawSample) -> RawSample:
        """What its cgroup says is unknown once the process is in another one: the figures are not the backend's any more."""
        places = (self._identity.cgroup_directory, *self._identity.limited_above)
        files = {path: None if path.rpartition("/")[0] in places else text for path, text in sample.files.items()}
        return RawSample(sample.t, sample.wall, files, sample.backends)

    def _take_residency(self, now: float) -> RawResidency | None:
        scanned = self._scanning.take()
        if scanned is None:
            return None
        self._next_scan = max(self._next_scan, now + scanned.cpu_seconds / SCAN_CPU_SHARE)
        self.residency_unknown = scanned.unknown
        return scanned.result


def _kv_bytes_per_token(model: ModelFile | None, said: BackendDescription | None) -> int | None:
    """What a token of context costs with the backend's own cache types."""
    if model is None or said is None or not model.headers:
        return None
    try:
        # What a command line does not say is llama.cpp's default.
        return kv_bytes_per_token(model.headers[0].metadata, said.cache_type_k or "f16", said.cache_type_v or "f16")
    except GgufError:
        return None


def _poll_of(subject: Subject) -> Poll | None:
    paths = paths_of(subject.dialect, subject.numbers)
    if subject.url is None or paths is None:
        return None
    probe = Probe(subject.url, may_sleep=subject.may_sleep, paths=paths)

    def poll(idle: bool) -> dict[str, str]:
        try:
            return probe.poll(idle=idle)
        except OSError:
            # There is nothing left to ask with: what it would say is unknown.
            return {}

    return poll


def _scan_of(subject: Subject) -> Scan | None:
    model = subject.model
    if model is None:
        return None
    paths = model.identity.paths
    ranges = None if model.experts is None else expert_ranges(model.experts)
    before = _status_of(paths)

    def scan() -> Scanned:
        if before is None or _status_of(paths) != before:
            return Scanned(None, "its file was replaced or written since the recording began", 0.0)
        began = time.thread_time()
        work = ResidencyScan(paths, ranges)
        while not work.advance(SCAN_PIECE_SECONDS):
            time.sleep(SCAN_PAUSE_SECONDS)
        return Scanned(work.result, work.unknown, time.thread_time() - began)

    return scan


def _status_of(paths: tuple[str, ...]) -> object:
    """What changes when a file is replaced or written; None when one cannot be looked at."""
    try:
        return tuple((one.st_dev, one.st_ino, one.st_size, one.st_mtime_ns) for one in map(os.stat, paths))
    except OSError:
        return None
