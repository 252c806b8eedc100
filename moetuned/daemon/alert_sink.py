"""One alert sink as the daemon runs it: what happened goes through its gate into its queue, and from there out, one at a time.

Belongs to the loop's thread. A delivery runs in the alert lane and is never waited for.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, Literal

import msgspec

from moetuned.alerts import SinkKind, SinkResult
from moetuned.daemon import alert_delivery
from moetuned.daemon.workers import Lane, Workers
from moetuned.decide import alert_gate, alert_queue, alert_repeat
from moetuned.decide.alert_gate import Gate, Moment, Rules, Told
from moetuned.decide.alert_queue import Outbox, Outcome
from moetuned.decide.alert_repeat import Repeats
from moetuned.host.clock import Clock
from moetuned.parse.config_values import at_most, quiet_hours
from moetuned.schema.alert import Sink, kind_of_sink
from moetuned.schema.alert_view import AlertSinkView, DeliveryView
from moetuned.schema.event import Event
from moetuned.schema.units import format_duration, parse_duration
from moetuned.state.alert_store import KeptSink

log = logging.getLogger(__name__)

_DETAIL_CHARACTERS = 500


def _chance() -> float:
    """At least 0 and less than 1."""
    return int.from_bytes(os.urandom(4), "big") / (1 << 32)


class AlertSink:
    """`changed` is called whenever what is kept of it is different."""

    def __init__(
        self,
        name: str,
        config: Sink,
        kind: SinkKind | None,
        workers: Workers,
        clock: Clock,
        changed: Callable[[AlertSink], None],
        chance: Callable[[], float] = _chance,
    ) -> None:
        """`kind` None: there is no such sink; it takes nothing."""
        self.name = name
        self.config = config
        self.problem: str | None = None
        self._kind = kind
        self._workers = workers
        self._clock = clock
        self._changed = changed
        self._chance = chance
        self.reconfigure(config)
        self._gate = Gate()
        self._outbox = Outbox()
        self._repeats = Repeats()
        self._repeat_failed = ""
        """What the last repeat failed with; empty where it did not."""
        self._sending: Literal["queue", "test", "repeat"] | None = None
        """Whose delivery is on its way: of the first that waits, or the test."""
        self._test: Event | None = None
        self._next_try: float | None = None
        """Monotonic seconds; None: at once."""
        self._last: DeliveryView | None = None
        self._tested: DeliveryView | None = None
        self._gone = False

    def reconfigure(self, config: Sink) -> None:
        """Go on with another configuration of the same kind."""
        self.config = config
        self._rules = rules_of(config)
        self._next_try = None

    @property
    def is_kept(self) -> bool:
        """Whether what could not be delivered is kept and tried again."""
        return self._kind is not None and self._kind.kept

    @property
    def pending(self) -> bool:
        """Whether something is on its way, or could be at once."""
        waits = bool(self._outbox.waiting) and self._next_try is None
        return self._kind is not None and (self._sending is not None or waits or self._test is not None)

    def take_up(self, kept: KeptSink, boot_id: str) -> None:
        """Go on where an earlier daemon was."""
        self._gate = kept.gate if kept.boot_id == boot_id else alert_gate.after_boot(kept.gate)
        self._outbox = msgspec.structs.replace(kept.outbox, telling=0)

    def kept(self, boot_id: str) -> KeptSink:
        """What is to be kept. What waits for a sink that does not try again is not."""
        outbox = self._outbox if self.is_kept else msgspec.structs.replace(self._outbox, waiting=(), tries=0)
        return KeptSink(1, kind_of_sink(self.config), boot_id, self._gate, outbox)

    def hear(self, event: Event) -> None:
        """Something happened."""
        if self._kind is None:
            return
        before = self._gate
        self._gate, going = alert_gate.hear(self._gate, self._rules, event, self._moment())
        self._put(going, before)

    def tick(self, backends: Collection[str] = ()) -> None:
        """Time has gone by: tell what was held and may go, try again what is due, repeat what goes on. `backends`: all that are watched."""
        if self._gate.held:
            before = self._gate
            self._gate, going = alert_gate.release(self._gate, self._rules, self._moment())
            self._put(going, before)
        if self._next_try is not None and self._clock.monotonic() >= self._next_try:
            self._next_try = None
        if self._kind is not None and self._kind.repeat_seconds is not None:
            now = self._clock.monotonic()
            self._repeats = alert_repeat.tick(self._repeats, backends, now, self._kind.repeat_seconds)
        self._send()

    def test(self, event: Event) -> None:
        """Send this one, whatever the filters say, as soon as nothing is on its way; it is neither kept nor tried again."""
        self._test = event
        self._send()

    def leave(self) -> None:
        """The config does not name it any more: what is on its way ends, and nothing follows."""
        self._gone = True

    def view(self) -> AlertSinkView:
        """How it is."""
        config = self.config
        left = None if self._next_try is None else max(0.0, self._next_try - self._clock.monotonic())
        return AlertSinkView(
            name=self.name,
            kind=kind_of_sink(config),
            target="" if self._kind is None else self._kind.target(config),
            on=tuple(config.on),
            ends=config.ends,
            backends=tuple(config.backends),
            at_most=config.at_most,
            quiet_hours=config.quiet_hours,
            loud=tuple(config.loud),
            timeout_seconds=parse_duration(config.timeout),
            kept=self.is_kept,
            sending=self._sending is not None,
            waiting=len(self._outbox.waiting),
            tries=self._outbox.tries,
            next_try_seconds=left if self._outbox.waiting else None,
            held=len(self._gate.held),
            held_back=self._gate.held_back,
            dropped=self._outbox.dropped_total,
            failed=self._outbox.refused_total,
            last=self._last,
            tested=self._tested,
            problem=self.problem,
        )

    def _moment(self) -> Moment:
        wall = self._clock.wall()
        local = time.localtime(wall)
        return Moment(wall, local.tm_hour * 60 + local.tm_min)

    def _put(self, going: Sequence[Told], before: Gate) -> None:
        for told in going:
            self._outbox, gone = alert_queue.put(
                self._outbox, told, self._clock.wall(), sending=self._sending == "queue"
            )
            for each in gone:
                self._lose(each, "too many wait for it")
        if going or self._gate != before:
            self._changed(self)
        self._send()

    def _lose(self, told: Told, why: str) -> None:
        """It will never arrive: its end would be of nothing."""
        event = told.event
        log.warning("alert sink %s: %s (%s) is dropped: %s", self.name, event.name, event.id, why)
        if not told.again:
            self._gate = alert_gate.forget(self._gate, event)

    def _send(self) -> None:
        if self._sending is not None or self._kind is None or self._gone:
            return
        kind, config = self._kind, self.config
        sending: Literal["queue", "test", "repeat"]
        if self._test is not None:
            sending, event = "test", self._test
        elif self._outbox.waiting:
            if self._next_try is not None:
                return
            self._outbox, event = alert_queue.begin(self._outbox)
            sending = "queue"
        else:
            self._repeats, again = alert_repeat.take(self._repeats)
            if again is None:
                return
            sending, event = "repeat", again

        def done(results: Any, error: BaseException | None) -> None:
            if error is not None:
                results = [SinkResult(self.name, False, f"{type(error).__name__}: {error}", retry=True)]
            self._sending = None
            if self._gone:
                return
            if sending == "test":
                self._test, self._tested = None, self._delivery(event, results)
            elif sending == "queue":
                self._settle(event, results)
            else:
                self._log_repeat(self._delivery(event, results))
            self._send()

        work = partial(alert_delivery.deliver, kind, event, config)
        if self._workers.submit(Lane.ALERT, f"alert sink {self.name}", work, done):  # else the next tick tries again
            self._sending = sending

    def _settle(self, event: Event, results: Sequence[SinkResult]) -> None:
        ok = all(each.ok for each in results)
        again = self.is_kept and any(not each.ok and each.retry for each in results)
        reached = ok or any(each.ok for each in results)
        outcome = Outcome.AGAIN if again else Outcome.DELIVERED if reached else Outcome.REFUSED
        tries = self._outbox.tries
        self._outbox, given_up = alert_queue.settle(self._outbox, outcome, self._clock.wall())
        delivery = self._delivery(event, results)
        self._log(delivery, outcome, tries)
        self._last = delivery
        self._next_try = None
        if outcome is Outcome.DELIVERED and self._kind is not None and self._kind.repeat_seconds is not None:
            now = self._clock.monotonic()
            self._repeats = alert_repeat.delivered(self._repeats, event, now, self._kind.repeat_seconds)
        if given_up is not None and self.is_kept:
            self._lose(
                given_up, delivery.detail if outcome is Outcome.REFUSED else "it could not be delivered for days"
            )
        elif outcome is Outcome.AGAIN:
            asked = max((each.retry_after_seconds or 0.0 for each in results), default=0.0)
            delay = alert_queue.delay_seconds(self._outbox.tries, self._chance(), asked)
            self._next_try = self._clock.monotonic() + delay
        self._changed(self)

    def _delivery(self, event: Event, results: Sequence[SinkResult]) -> DeliveryView:
        said = [each.detail for each in results if not each.ok] or [each.detail for each in results]
        text = "; ".join(dict.fromkeys(said)) or "there was nothing to do"
        took = sum(each.duration_seconds for each in results)
        ok = all(each.ok for each in results)
        return DeliveryView(event.name, event.id, ok, text[:_DETAIL_CHARACTERS], self._clock.wall(), took)

    def _log(self, now: DeliveryView, outcome: Outcome, tries: int) -> None:
        """What is tried again and again is told once, and once more when it arrives."""
        if outcome is Outcome.DELIVERED:
            after = f" after {tries} tries in vain" if tries else ""
            log.info(
                "alert sink %s: %s is delivered%s in %s",
                self.name,
                now.event,
                after,
                format_duration(now.duration_seconds),
            )
            if not now.ok:
                log.warning("alert sink %s: %s did not reach all: %s", self.name, now.event, now.detail)
        elif outcome is Outcome.REFUSED:
            log.warning("alert sink %s: %s is not delivered: %s", self.name, now.event, now.detail)
        elif not tries or (self._last is not None and self._last.detail != now.detail):
            log.warning(
                "alert sink %s: %s is not delivered yet, it is tried again: %s", self.name, now.event, now.detail
            )

    def _log_repeat(self, now: DeliveryView) -> None:
        """A repeat that fails is told once; the next one comes by itself."""
        if not now.ok and self._repeat_failed != now.detail:
            log.warning("alert sink %s: it could not be told that %s goes on: %s", self.name, now.event, now.detail)
        self._repeat_failed = "" if now.ok else now.detail


def rules_of(config: Sink) -> Rules:
    """What the sink's configuration wants. Raises ValueError for one that was not checked."""
    return Rules(
        on=frozenset(config.on),
        ends=config.ends,
        backends=frozenset(config.backends),
        at_most=None if config.at_most is None else at_most(config.at_most),
        quiet=None if config.quiet_hours is None else quiet_hours(config.quiet_hours),
        loud=frozenset(config.loud),
    )
