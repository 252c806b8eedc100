"""What the daemon learns of the use of a backend's experts: looks on a CPU budget, what they teach, and where it is kept.

The slow parts (reading what is kept, looking, paging out, writing) run in the work lane. What is known is bound to one model and
one process of the backend; a look of another process teaches nothing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

import msgspec

from moetuned.daemon.heat_record import HeatRecord
from moetuned.daemon.watched import Watched
from moetuned.daemon.workers import Lane, Workers
from moetuned.decide import detector, heat
from moetuned.decide.warm_plan import KnownUse, free_bytes, reserve_bytes
from moetuned.gguf.experts import ExpertMap, expert_slices
from moetuned.host.clock import Clock
from moetuned.host.expert_residency import ExpertScan, seconds_between
from moetuned.host.model_files import ModelFile, ModelFileError
from moetuned.host.model_stamp import model_stamp
from moetuned.host.page_cache import PAGE_BYTES
from moetuned.host.page_out import PageOut, pages_in_memory
from moetuned.host.processes import ProcessIdentity
from moetuned.schema.heat import ExpertPages, Heat, ModelStamp
from moetuned.schema.model import ByteRange
from moetuned.schema.verdict import Paging, Phase
from moetuned.state import heat_store

log = logging.getLogger(__name__)

PIECE_SECONDS = 0.005
PAUSE_SECONDS = 0.02
SAVE_SECONDS = 60.0
"""What was learned is written at most this often."""
IDLE_SECONDS = 60.0
"""So long nobody must have asked anything before experts of unknown use are paged out to see which come back."""
SOON_SECONDS = 1.0
PAGE_OUT_PASSES = 2
"""Measured (Linux 6.18, ext4): of 449 MiB in 387 ranges the first pass left 77 MiB, the second nothing, in 20 to 45 ms. What stays takes the
room of experts that are used: the first requests then read 23 to 41 MB instead of 2 to 8 MB."""
STAYED_RATIO = 0.5
"""Paging out did nothing when more than this of what was in memory still is."""
CHEAP_CPU_SECONDS = 0.05
"""A look that costs no more is also taken when the backend has just answered."""


class _Seen(msgspec.Struct, frozen=True):
    """What a worker saw. `stamp`, `kept` and `not_kept` (why what an earlier run learned is not used) only where they were asked for."""

    pages: ExpertPages | None
    unknown: str | None
    cpu_seconds: float
    stamp: ModelStamp | None = None
    kept: Heat | None = None
    not_kept: str | None = None


class _PagedOut(msgspec.Struct, frozen=True):
    """What came of paging out. `refused`: what the kernel did not do; `stayed`: most of it is still in memory, None: unknown."""

    refused: str | None = None
    stayed: bool | None = None


class _Since(msgspec.Struct, frozen=True):
    """What happened between two looks, as `decide.heat.Look` has it."""

    healthy: bool
    answered: bool
    warmed: bool
    paged_out: bool
    stayed: bool | None


class HeatKeeper:
    """Looks, learns and keeps. `directory`: where what was learned lies; None: it is not kept."""

    def __init__(self, clock: Clock, workers: Workers, directory: str | None) -> None:
        self._clock = clock
        self._workers = workers
        self._directory = directory

    def tick(self, watched: Watched, now: float, *, may_page_out: bool) -> None:
        """Notice what happens, look when it is due, keep what was learned.

        `may_page_out`: whether what of the model is in memory though nobody is known to use it may be paged out while the backend is idle.
        """
        record = self._record(watched, now)
        if record is None:
            return
        if watched.process is not None:
            self._notice(watched, record, now)
            # What is there while it loads says nothing, and must not be taken for what loading leaves.
            if now >= record.next_look and watched.ready_at is not None:
                self._look(watched, record, now)
            if may_page_out:
                self._page_out_unverified(watched, record, now)
        if now >= record.next_save:
            self._save(watched, record, now)

    def keep(self, watched: Watched) -> None:
        """Write what was learned now: the daemon, or the watching of this backend, ends."""
        if watched.heat is not None:
            self._save(watched, watched.heat, self._clock.monotonic())

    def renew(self, watched: Watched) -> None:
        """Somebody is about to rely on what is in memory: where a look is cheap, `is_opening` until there was one."""
        record = watched.heat
        if record is not None and record.last_cpu_seconds <= CHEAP_CPU_SECONDS:
            record.next_look = record.wanted_at = self._clock.monotonic()
            record.pages_of = None

    def note_warming(self, watched: Watched) -> None:
        """Warming begins or has ended: a short one fits between two ticks. What came into memory is nobody's use, what left it no loss."""
        record = watched.heat
        if record is None:
            return
        record.warmed = True
        _expect_less(watched, self._clock.monotonic())
        if watched.warming is None and record.last_cpu_seconds <= CHEAP_CPU_SECONDS:
            record.next_look = self._clock.monotonic()

    def use(self, watched: Watched) -> KnownUse | None:
        """What is known for a warm plan; None when nothing is."""
        record = watched.heat
        if record is None or record.state is None or record.pages_of != watched.process:
            return None
        order = heat.order(record.state.heat, record.pages)
        if not order:
            return None
        makes_room = _is_just_loaded(watched) and record.stays_of != watched.process
        return KnownUse(record.experts, order, record.pages, just_loaded=makes_room, twice=False)

    def note_stays(self, watched: Watched) -> None:
        """Nothing can be paged out of its process: a warm plan counts on no room from that."""
        if watched.heat is not None:
            watched.heat.stays_of = watched.process

    def is_opening(self, watched: Watched) -> bool:
        """Whether it is not known yet what was learned, or what is in memory: a look after loading, or one that was asked for, is not done."""
        record = watched.heat
        return (
            record is not None and record.unknown is None and (not record.opened or record.pages_of != watched.process)
        )

    def page_out(self, watched: Watched, ranges: Sequence[ByteRange], then: Callable[[bool], None]) -> bool:
        """Page ranges of the model out of the backend in the work lane. False: not now.

        `then(whether most of it was seen to have left memory)` is called in the loop afterwards; without that there is no room.
        """
        record, process = watched.heat, watched.process
        if record is None or process is None:
            return False
        record.paged_out = True
        paths = record.model.identity.paths

        def done(out: _PagedOut | None, error: BaseException | None) -> None:
            record.paged_out, record.paging_out = True, False
            _expect_less(watched, self._clock.monotonic())
            refused, stayed = (str(error), None) if out is None else (out.refused, out.stayed)
            if refused:
                log.info("%s: paging out: %s", watched.name, refused)
            if watched.process != process:
                return
            if stayed is not None:
                record.stayed = stayed
            if stayed:
                log.warning("%s: %s", watched.name, heat.STAYED)
            if stayed is not False:
                record.stays_of = process
            watched.next_residency = self._clock.monotonic()
            then(stayed is False)

        key = f"paging out the model of {watched.key}"
        started = self._workers.submit(Lane.WORK, key, lambda: _page_out(process, paths, ranges), done)
        record.paging_out = record.paging_out or started
        return started

    def _record(self, watched: Watched, now: float) -> HeatRecord | None:
        model = watched.model
        if model is None or model.experts is None or not model.experts.tensors:
            watched.heat = None
            return None
        if watched.heat is None or watched.heat.model is not model:
            watched.heat = HeatRecord(model, model.experts)
            watched.heat.next_look = now
        return watched.heat

    def _notice(self, watched: Watched, record: HeatRecord, now: float) -> None:
        phase, paging = watched.verdict.phase, watched.verdict.paging
        loaded = watched.ready_at is not None and phase in (Phase.IDLE, Phase.PREFILL, Phase.DECODE)
        if loaded and record.load != watched.process:
            record.load, record.healthy, record.next_look, record.tokens = watched.process, True, now, None
            record.answered = record.warmed = record.paged_out = False
            record.stayed = None
        if not loaded or paging is Paging.THRASHING:
            record.healthy = False
        if watched.warming is not None:
            record.warmed = True
        if record.paging_out:
            _expect_less(watched, now)
        busy = phase in (Phase.PREFILL, Phase.DECODE) or _counted_more(watched, record)
        if busy:
            record.answered = True
            watched.has_answered = watched.ready_at is not None or watched.has_answered
        was_busy = record.calm_since is None
        record.calm_since = (now if was_busy else record.calm_since) if loaded and not busy else None
        if was_busy and record.calm_since is not None and record.last_cpu_seconds <= CHEAP_CPU_SECONDS:
            record.next_look = min(record.next_look, now + SOON_SECONDS)

    def _look(self, watched: Watched, record: HeatRecord, now: float) -> None:
        process, paths = watched.process, record.model.identity.paths
        directory = None if record.opened else self._directory
        first, began = not record.opened, self._clock.monotonic()
        since = _Since(record.healthy, record.answered, record.warmed, record.paged_out, record.stayed)

        def done(seen: _Seen | None, error: BaseException | None) -> None:
            if watched.heat is not record:
                return
            at = self._clock.monotonic()
            if seen is None:
                record.healthy, record.answered = record.healthy and since.healthy, record.answered or since.answered
                record.warmed, record.paged_out = record.warmed or since.warmed, record.paged_out or since.paged_out
                record.stayed = since.stayed if record.stayed is None else record.stayed
                record.unknown, record.next_look = f"its experts cannot be looked at: {error}", at + SAVE_SECONDS
                return
            record.next_look = at + seconds_between(seen.cpu_seconds)
            record.last_cpu_seconds = seen.cpu_seconds
            if first:
                record.opened, record.stamp, record.kept = True, seen.stamp, seen.kept
                record.outdated = seen.not_kept in (heat_store.OTHER_FILE, heat_store.OTHER_SHAPE)
                if seen.not_kept is not None:
                    level = logging.INFO if record.outdated else logging.WARNING
                    log.log(level, "%s: %s", watched.name, seen.not_kept)
            if watched.process == process:
                self._learn(watched, record, seen, since)
                if began < record.wanted_at:
                    record.next_look, record.pages_of = at, None

        started = self._workers.submit(
            Lane.WORK,
            f"looking at the experts of {watched.key}",
            lambda: _see(record.model, record.experts, paths, directory, first=first),
            done,
        )
        if started:
            record.healthy, record.answered, record.warmed, record.paged_out = True, False, False, False
            record.stayed = None
        else:
            record.next_look = now + SOON_SECONDS

    def _learn(self, watched: Watched, record: HeatRecord, seen: _Seen, since: _Since) -> None:
        """`since`: what had happened when the look began; what happened while it lasted counts for it and for the next one."""
        record.pages, record.unknown, record.pages_of = seen.pages, seen.unknown, watched.process
        if seen.pages is None or record.stamp is None:
            return
        if record.state is None:
            record.state = heat.resume(record.kept) if record.kept is not None else heat.fresh(record.stamp, seen.pages)
            # What is of another file is replaced also while nothing is learned, so that it is told once.
            record.saved = None if record.outdated else record.state.heat
        process = None if watched.sample is None else watched.sample.process
        look = heat.Look(
            pages=seen.pages,
            load=watched.process,
            healthy=since.healthy and record.healthy and watched.warming is None,
            answered=since.answered or record.answered,
            warmed=since.warmed or record.warmed,
            paged_out=since.paged_out or record.paged_out,
            stayed=since.stayed if record.stayed is None else record.stayed,
            read_bytes=None if process is None else process.read_bytes,
            memory_full=_is_full(watched),
            page_bytes=PAGE_BYTES,
        )
        record.state = heat.step(record.state, look)

    def _page_out_unverified(self, watched: Watched, record: HeatRecord, now: float) -> None:
        """Once a load, and only for a model of which nothing was known before: what was in use costs one read of it."""
        if (
            (record.kept is not None and any(record.kept.last_used))
            or record.state is None
            or record.pages is None
            or record.pages_of != watched.process
            # The state knows of it only after the next look, which takes a while.
            or record.asked_of == watched.process
        ):
            return
        if record.calm_since is None or now - record.calm_since < IDLE_SECONDS or not watched.has_answered:
            return
        if watched.warming is not None or watched.warm_wanted is not None or _is_full(watched) is not True:
            return
        cells = heat.unverified(record.state, record.pages)
        ranges = [one for cell in cells for one in expert_slices(record.experts, *cell)]
        if ranges and not record.paged_out and self.page_out(watched, ranges, lambda _left: None):
            log.info(
                "%s: paging out %d experts that nobody is known to use, to see which come back",
                watched.name,
                len(cells),
            )
            record.asked_of, record.next_look = watched.process, now + SOON_SECONDS

    def _save(self, watched: Watched, record: HeatRecord, now: float) -> None:
        state = record.state
        if self._directory is None or state is None or state.heat is record.saved:
            return
        if watched.warm.going_on:
            return  # What is kept knows more than looks at a restore that has not ended; later.
        known, paths, directory, wall = state.heat, record.model.identity.paths, self._directory, self._clock.wall()

        def done(_kept: bool | None, error: BaseException | None) -> None:
            if error is not None:
                record.saved = None
                why = (isinstance(error, OSError) and error.strerror) or error
                log.warning(
                    "%s: what was learned of its experts cannot be kept in %s: %s", watched.name, directory, why
                )

        started = self._workers.submit(
            Lane.WORK,
            f"keeping what was learned of {watched.key}",
            lambda: heat_store.save(paths, known, wall, restore_interrupted=False, directory=directory),
            done,
        )
        if started:
            record.next_save, record.saved = now + SAVE_SECONDS, known


def _see(model: ModelFile, experts: ExpertMap, paths: Sequence[str], directory: str | None, *, first: bool) -> _Seen:
    """A look with pauses, and at first what an earlier run has learned."""
    scan = ExpertScan(paths, experts)
    while not scan.advance(PIECE_SECONDS):
        _rest()
    stamp = kept = why = None
    if first:
        try:
            stamp = model_stamp(model)
        except ModelFileError as error:
            return _Seen(None, str(error), scan.cpu_seconds)
        if directory is not None and scan.result is not None:
            kept, why = heat_store.load(paths, stamp, (scan.result.layers, scan.result.experts), directory)
    return _Seen(scan.result, scan.unknown, scan.cpu_seconds, stamp, kept, why)


def _page_out(process: ProcessIdentity, paths: Sequence[str], ranges: Sequence[ByteRange]) -> _PagedOut:
    """In passes, and whether it is gone afterwards: the kernel says that all went well also where pages stay."""
    refused = None
    before = pages_in_memory(paths, ranges, _rest)
    for _ in range(PAGE_OUT_PASSES):
        work = PageOut(process, paths, ranges)
        while not work.advance():
            _rest()
        refused = refused or work.refused
    after = pages_in_memory(paths, ranges, _rest)
    return _PagedOut(refused, None if before is None or after is None else after > STAYED_RATIO * before)


def _rest() -> None:
    time.sleep(PAUSE_SECONDS)


def _is_just_loaded(watched: Watched) -> bool:
    """Whether nothing in memory can be in use yet: its loading was seen, and no request since, or it says itself that it has worked on no
    token. One that ran before has answered for all we know.
    """
    ours = watched.supervisor is not None and not watched.supervisor.adopted
    return not watched.has_answered and (ours or watched.seen_loading or _tokens(watched) == 0)


def _counted_more(watched: Watched, record: HeatRecord) -> bool:
    """Whether the backend has counted tokens since the last tick: a short request fits between two of them."""
    tokens = _tokens(watched)
    if tokens is None:
        return False
    before, record.tokens = record.tokens, tokens
    return before is not None and tokens > before


def _tokens(watched: Watched) -> float | None:
    """Read and predicted since it was started; None: it does not count them."""
    http = None if watched.sample is None else watched.sample.http
    if http is None or http.prompt_tokens_total is None or http.tokens_predicted_total is None:
        return None
    return http.prompt_tokens_total + http.tokens_predicted_total


def _expect_less(watched: Watched, now: float) -> None:
    """What we paged out, or pushed out by warming, has not been evicted by somebody: idle residency is compared from here on."""
    watched.detector = detector.forget_idle(watched.detector)
    watched.fresh_residency, watched.residency_since = None, now


def _is_full(watched: Watched) -> bool | None:
    """Whether nothing more can be cached under the backend's limit without evicting something; None: unknown."""
    free = free_bytes(watched.memory)
    return None if free is None else free <= 2 * reserve_bytes(watched.memory.limit_bytes or 0)
