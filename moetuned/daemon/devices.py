"""The devices under the models of backends: what they are, whether they come and go, whether they are fit to run a model from.

What is asked of the system runs off the loop; that a device comes or goes is told by a descriptor in it.
"""

from __future__ import annotations

import logging
import selectors
from collections.abc import Callable, Sequence

import msgspec

from moetuned.daemon.announcer import Announcer
from moetuned.daemon.loop import Loop
from moetuned.daemon.watched import Watched
from moetuned.daemon.workers import Lane, Workers
from moetuned.decide import device_pace
from moetuned.decide.device_fitness import unsuitable
from moetuned.decide.device_pace import PaceState
from moetuned.host.block_devices import under_file
from moetuned.host.clock import Clock
from moetuned.host.device_facts import device_facts
from moetuned.host.device_watch import DeviceEvent, DeviceWatch, DeviceWatchError
from moetuned.host.fs import HostFS
from moetuned.host.io_limits import FoundLimit, device_numbers, read_limit
from moetuned.host.processes import ProcessIdentity
from moetuned.schema.device import DeviceFacts, DeviceView, Pace
from moetuned.schema.event import EventName
from moetuned.schema.units import format_rate
from moetuned.state import device_rates

log = logging.getLogger(__name__)

AGAIN_SECONDS = 60.0
"""Devices that could not be found are looked for again after so long."""
SAVE_SECONDS = 300.0
_SAVING = "keeping what devices gave"


class Found(msgspec.Struct, frozen=True):
    """The devices under all parts of a model; `unknown` says why there are none, `network` is a file system that reads over one."""

    names: tuple[str, ...]
    facts: tuple[DeviceFacts, ...]
    network: str | None = None
    unknown: str | None = None


class _Care:
    """What is held of one backend's devices."""

    def __init__(self) -> None:
        self.paths: tuple[str, ...] = ()
        self.process: ProcessIdentity | None = None
        self.found: Found | None = None
        self.next_look: float | None = None
        self.gone: tuple[str, ...] = ()
        self.said_for: ProcessIdentity | None = None
        self.slow: str | None = None
        self.pace = PaceState()


class Devices:
    """Belongs to the loop's thread."""

    def __init__(
        self,
        loop: Loop,
        clock: Clock,
        workers: Workers,
        announcer: Announcer,
        fs: HostFS,
        directory: str,
        open_watch: Callable[[], DeviceWatch] = DeviceWatch,
    ) -> None:
        """`directory`: where what devices gave is kept."""
        self._loop = loop
        self._clock = clock
        self._workers = workers
        self._announcer = announcer
        self._fs = fs
        self._directory = directory
        self._open_watch = open_watch
        self._watch: DeviceWatch | None = None
        self._cares: dict[str, _Care] = {}
        self._backends: tuple[Watched, ...] = ()
        self._rates: dict[str, tuple[Pace, ...]] | None = None
        self._unsaved_since: float | None = None
        self.note: str | None = None
        """Why devices that come and go cannot be seen; None: they can, or nobody needs to know."""

    def tick(self, backends: Sequence[Watched], now: float) -> None:
        """Find devices that are not known, judge those that are. Call it after the verdicts."""
        self._backends = tuple(backends)
        known = {watched.key for watched in backends}
        for key in [key for key in self._cares if key not in known]:
            del self._cares[key]
        for watched in backends:
            self._follow(watched, self._cares.setdefault(watched.key, _Care()), now)
        self._save(now)

    def close(self) -> None:
        """Let go of the descriptor and keep what was learned."""
        if self._watch is not None:
            self._loop.remove(self._watch.fileno())
            self._watch.close()
            self._watch = None
        if self._unsaved_since is not None and self._rates is not None:
            _keep(self._directory, self._rates)

    # What is under a model

    def _follow(self, watched: Watched, care: _Care, now: float) -> None:
        paths = () if watched.model is None else tuple(watched.model.identity.paths)
        if paths != care.paths:
            care.paths, care.found, care.next_look, care.gone = paths, None, now, ()
        if care.process != watched.process:
            care.process, care.pace, care.slow = watched.process, PaceState(), None
        if paths and watched.process is not None and care.next_look is not None and now >= care.next_look:
            self._look(watched, care, now)
        if care.found is not None:
            watched.disks = care.found.names
            if care.found.facts and watched.sequential_bytes_per_second is None:
                paces = self._known_rates().get(_identity(care.found.facts), ())
                watched.sequential_bytes_per_second = device_pace.sequential(paces)
            self._judge(watched, care, care.found)
        watched.devices = _views(care)

    def _look(self, watched: Watched, care: _Care, now: float) -> None:
        paths, watch, fs = care.paths, self._watch, self._fs

        def done(found: Found | None, error: BaseException | None) -> None:
            if care.paths != paths:
                return
            if found is None:
                log.warning("%s: cannot look for the devices under its model: %s", watched.name, error)
                return
            self._found(watched, care, found)

        care.next_look = now + AGAIN_SECONDS
        self._workers.submit(
            Lane.WORK, f"finding the devices of {watched.key}", lambda: find_devices(fs, paths, watch), done
        )

    def _found(self, watched: Watched, care: _Care, found: Found) -> None:
        # A disk that was pulled out leaves its file system mounted for a while, on a device that is not there.
        there = [name for name in found.names if self._fs.exists(f"/sys/block/{name}")]
        if care.gone and there and not set(care.gone) & (set(found.names) - set(there)):
            log.info("%s: the device under its model is there again: %s", watched.name, ", ".join(found.names))
            care.gone, care.said_for = (), None
        if care.gone and not found.names:
            care.next_look = self._clock.monotonic() + AGAIN_SECONDS
            return
        first = care.found is None
        care.found = found
        care.next_look = None if found.names else self._clock.monotonic() + AGAIN_SECONDS
        if first:
            what = ", ".join(found.names) or f"unknown: {found.unknown}"
            log.info("%s: devices under its model: %s", watched.name, what)
        if found.names and self._watch is None and self.note is None:
            self._begin_watching(care)

    def _begin_watching(self, care: _Care) -> None:
        """Only now libudev is loaded: whoever has no model on a device does not pay for it."""
        try:
            self._watch = self._open_watch()
        except DeviceWatchError as error:
            self.note = f"{error}; a disk that is pulled out is noticed only by its errors"
            log.warning("%s", self.note)
            return
        if not self._watch.udev_runs:
            log.info("no udev runs here: the names of disks are the kernel's, and what comes and goes is told by it")
        self._loop.add(self._watch.fileno(), selectors.EVENT_READ, self._happened)
        care.next_look = self._clock.monotonic()  # udev's database may know its model

    # What comes and goes

    def _happened(self, _events: int) -> None:
        assert self._watch is not None
        now = self._clock.monotonic()
        for event in self._watch.events():
            for watched in self._backends:
                care = self._cares.get(watched.key)
                if care is not None and care.found is not None:
                    self._tell(watched, care, care.found, event, now)

    def _tell(self, watched: Watched, care: _Care, found: Found, event: DeviceEvent, now: float) -> None:
        concerned = event.name in found.names
        if concerned and event.action in ("remove", "offline") and event.name not in care.gone:
            care.gone = (*care.gone, event.name)
            fact = next((one for one in found.facts if one.name == event.name), DeviceFacts(event.name))
            model = "" if fact.model is None else f" ({fact.model})"
            self._announcer.say(
                EventName.DEVICE_UNSUITABLE,
                watched.name,
                f"the disk {event.name}{model} under its model went away: what is not in memory cannot be read; connect it again and "
                "restart the backend",
            )
        if concerned or (care.gone and event.action in ("add", "online", "change")) or not event.name:
            care.next_look = now

    # Whether they are fit

    def _judge(self, watched: Watched, care: _Care, found: Found) -> None:
        if watched.process is None or care.gone:
            return
        if care.said_for != watched.process and (why := unsuitable(found.facts, found.network)) is not None:
            care.said_for = watched.process
            self._announcer.say(EventName.DEVICE_UNSUITABLE, watched.name, why)
        if watched.signals is None or not found.facts or any(one.rotational for one in found.facts):
            return
        if watched.signals.at_seconds == care.pace.judged_at:
            return
        key = _identity(found.facts)
        rates = self._known_rates()
        best = rates.get(key, ())
        step = device_pace.step(care.pace, watched.signals, watched.verdict.phase, best)
        care.pace = step.state
        if step.pace is None:
            return
        if step.slow is not None:
            self._ask_limit(watched, care, found, step.pace, step.slow)
        after = device_pace.remember(best, step.pace)
        if after != best:
            watched.sequential_bytes_per_second = None
            rates.pop(key, None)
            rates[key] = after
            if self._unsaved_since is None:
                self._unsaved_since = self._clock.monotonic()

    def _ask_limit(self, watched: Watched, care: _Care, found: Found, pace: Pace, best: Pace) -> None:
        """It is slow; before the device is blamed: does the backend's cgroup hold it back?"""
        process, fs = watched.process, self._fs
        assert process is not None
        held = care.pace.slow_seconds

        def done(limit: FoundLimit | None, error: BaseException | None) -> None:
            if care.process != process or error is not None:
                return
            if limit is not None:
                rate = limit.limit.bytes_per_second
                how = f"{format_rate(rate)}" if rate is not None else f"{limit.limit.ios_per_second} requests/s"
                care.slow = f"its cgroup limits what it reads to {how} ({limit.path})"
                log.warning("%s: reads slowly: %s", watched.name, care.slow)
                return
            care.slow = device_pace.sentence(found.facts, pace, best, held)
            if care.said_for != process:
                care.said_for = process
                self._announcer.say(EventName.DEVICE_UNSUITABLE, watched.name, care.slow)

        names = found.names
        self._workers.submit(
            Lane.WORK,
            f"looking for limits on the reads of {watched.key}",
            lambda: read_limit(process.pid, device_numbers(fs, names), fs),
            done,
        )

    # What is kept

    def _known_rates(self) -> dict[str, tuple[Pace, ...]]:
        if self._rates is None:
            self._rates = device_rates.load(self._directory)
        return self._rates

    def _save(self, now: float) -> None:
        if self._unsaved_since is None or now - self._unsaved_since < SAVE_SECONDS or self._rates is None:
            return
        rates = dict(self._rates)
        if self._workers.submit(
            Lane.WORK, _SAVING, lambda: _keep(self._directory, rates), lambda _result, _error: None
        ):
            self._unsaved_since = None


def find_devices(fs: HostFS, paths: Sequence[str], watch: DeviceWatch | None) -> Found:
    """The devices under all `paths`, each once, and what they are. Never raises."""
    under = [under_file(path, fs) for path in paths]
    names = tuple(dict.fromkeys(name for one in under for name in one.names))
    if not all(one.names for one in under):
        names = ()  # rates of some of the disks would say something of the model that is not so
    facts = tuple(device_facts(fs, name, None if watch is None else watch.properties(name)) for name in names)
    network = next((one.filesystem for one in under if one.over_network), None)
    unknown = next((one.unknown for one in under if one.unknown), None)
    return Found(names, facts, network, unknown)


def _keep(directory: str, rates: dict[str, tuple[Pace, ...]]) -> None:
    """What cannot be known again later is not written."""
    lasting = {key: paces for key, paces in rates.items() if not key.startswith(_THIS_BOOT)}
    if not lasting:
        return
    try:
        device_rates.save(directory, lasting)
    except OSError as error:
        log.warning("what devices gave cannot be kept in %s: %s", directory, error.strerror or error)


_THIS_BOOT = "name="


def _identity(facts: Sequence[DeviceFacts]) -> str:
    """Of all devices together. One that says nothing of its own is known only until the daemon ends."""
    if any(one.identity is None for one in facts):
        return _THIS_BOOT + " ".join(one.name for one in facts)
    return " ".join(sorted(one.identity or "" for one in facts))


def _views(care: _Care) -> tuple[DeviceView, ...]:
    if care.found is None:
        return ()
    return tuple(
        DeviceView(
            name=one.name,
            model=one.model,
            bus=one.bus,
            rotational=one.rotational,
            virtual=one.virtual,
            gone=one.name in care.gone,
            detail="it was taken away" if one.name in care.gone else care.slow or "",
        )
        for one in care.found.facts
    )
