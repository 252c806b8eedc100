"""The stand-in's decode loop: slots, requests, and the page touches of every token.

One thread runs the loop as llama-server does: each decode takes one token of every slot that generates and as many prompt
tokens as fit in a batch. HTTP threads submit tasks and read copies of the state under the lock; pages are touched
outside it, so that `/slots` and `/health` are answered while a fault waits for the disk.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from moetuned.simulator.anonymous_memory import AnonymousMemory, PromptCache
from moetuned.simulator.model_map import ModelMap
from moetuned.simulator.router import TopicRouter
from moetuned.simulator.topics import CHARACTERS

_END_PROBABILITY = 1 / 256


@dataclass
class Task:
    """One request and, once `finished` is set, its answer. Times are monotonic seconds."""

    prompt_tokens: int
    topic: int
    limit: int
    ignore_eos: bool
    seed: int
    number: int = 0
    slot: int = -1
    processed: int = 0
    cached: int = 0
    decoded: int = 0
    text: list[str] = field(default_factory=list)
    started: float = 0.0
    prompt_seconds: float = 0.0
    predicted_seconds: float = 0.0
    stop_type: str = "none"
    truncated: bool = False
    cancelled: bool = False
    finished: threading.Event = field(default_factory=threading.Event)
    chooser: random.Random = field(default_factory=random.Random)
    picks: dict[int, tuple[int, ...]] = field(default_factory=dict)

    @property
    def ended(self) -> bool:
        """Whether nothing is left to do for it."""
        return self.cancelled or self.stop_type != "none"

    @property
    def position(self) -> int:
        """Tokens of the context in use."""
        return self.processed + self.decoded


@dataclass
class Slot:
    """One slot: the running task, and the last one for what `/slots` shows afterwards. `kept`: tokens that were read from a file.

    The stand-in does not compare texts: the next prompt is taken to begin with them.
    """

    number: int
    task: Task | None = None
    last: Task | None = None
    kept: int = 0


@dataclass
class Counters:
    """What `/metrics` shows; cumulative since the start."""

    prompt_tokens: int = 0
    prompt_seconds: float = 0.0
    predicted_tokens: int = 0
    predicted_seconds: float = 0.0
    decodes: int = 0
    busy_slots: int = 0
    longest: int = 0


@dataclass(frozen=True)
class Plan:
    """Sizes the engine works with: layers, context of one slot in tokens, batches in tokens, KV bytes of a token."""

    layers: int
    slots: int
    slot_context: int
    batch: int
    ubatch: int
    kv_bytes_per_token: int
    hang_after_tokens: int | None = None


class Engine:
    """The loop and its state; `run` never returns, every other method may be called from any thread."""

    def __init__(
        self, plan: Plan, model: ModelMap, router: TopicRouter, kv: AnonymousMemory, cache: PromptCache
    ) -> None:
        self.plan = plan
        self._model, self._router, self._kv, self._cache = model, router, kv, cache
        self._changed = threading.Condition()
        self._waiting: deque[Task] = deque()
        self._slots = [Slot(number) for number in range(plan.slots)]
        self._counters = Counters()
        self._tasks = 0
        self._tokens = 0

    def submit(self, task: Task) -> None:
        """Queue a task; `task.finished` is set when it is done or cancelled."""
        with self._changed:
            task.number = self._tasks
            task.chooser = random.Random(task.seed)
            self._tasks += 1
            self._waiting.append(task)
            self._changed.notify_all()

    def cancel(self, task: Task) -> None:
        """Give a task up: its client has gone."""
        with self._changed:
            task.cancelled = True
            if task in self._waiting:
                self._waiting.remove(task)
                task.finished.set()

    def slots(self) -> list[dict[str, Any]]:
        """`/slots` as llama-server shows it."""
        with self._changed:
            return [self._slot_object(slot) for slot in self._slots]

    def held(self, number: int) -> int | None:
        """Tokens of the conversation in a slot; None while it works on a request. Raises IndexError for a slot that is none."""
        with self._changed:
            slot = self._slots[number]
            if slot.task is not None:
                return None
            return slot.kept or (0 if slot.last is None else slot.last.position)

    def keep(self, number: int, tokens: int) -> bool:
        """A slot's conversation was read from a file; False while it works on a request. Raises IndexError."""
        with self._changed:
            slot = self._slots[number]
            if slot.task is not None:
                return False
            slot.kept, slot.last = tokens, None
            return True

    def counters(self) -> tuple[Counters, int, int]:
        """A copy of the counters, how many requests are processed and how many wait."""
        with self._changed:
            busy = sum(slot.task is not None for slot in self._slots)
            return Counters(**vars(self._counters)), busy, len(self._waiting)

    def run(self, sleep_for_ever: Callable[[], object]) -> None:
        """Decode for ever; `sleep_for_ever` is what a simulated hang calls."""
        while True:
            busy = self._next_batch()
            hang = self.plan.hang_after_tokens
            if hang is not None and self._tokens >= hang:
                sleep_for_ever()
            self._decode(busy)

    def _next_batch(self) -> list[Slot]:
        with self._changed:
            while True:
                for slot in self._slots:
                    if slot.task is None and self._waiting:
                        slot.task = slot.last = self._waiting.popleft()
                        slot.task.slot = slot.number
                        slot.task.started = time.monotonic()
                        slot.task.processed = slot.task.cached = min(slot.kept, slot.task.prompt_tokens - 1)
                        slot.kept = 0
                busy = [slot for slot in self._slots if slot.task is not None]
                if busy:
                    return busy
                self._changed.wait()

    def _decode(self, busy: list[Slot]) -> None:
        """One llama_decode: touch the pages of every token in the batch, then move the tasks on."""
        room = self.plan.batch
        shares: list[tuple[Task, int]] = []
        for slot in sorted(busy, key=_waits_for_prompt):
            task = slot.task
            if task is None or room == 0:
                continue
            count = min(task.prompt_tokens - task.processed, room) if _waits_for_prompt(slot) else 1
            shares.append((task, count))
            room -= count
        self._touch(shares)
        now = time.monotonic()
        with self._changed:
            self._counters.decodes += 1
            self._counters.busy_slots += len(busy)
            for task, count in shares:
                self._advance(task, count, now)
            done = [task for task, _ in shares if task.ended]
        for task in done:
            self._release(task)

    def _touch(self, shares: list[tuple[Task, int]]) -> None:
        """Pages of one batch, a micro-batch after the other, a layer after the other."""
        left = [count for _, count in shares]
        while any(left):
            room = self.plan.ubatch
            taken: list[tuple[Task, int]] = []
            for index, (task, _) in enumerate(shares):
                count = min(left[index], room)
                left[index] -= count
                room -= count
                taken.append((task, count))
            self._model.touch_other()
            for task, count in taken:
                if count:
                    start = task.slot * (self._kv.size_bytes // self.plan.slots)
                    self._kv.touch(start, task.position * self.plan.kv_bytes_per_token)
            for layer in range(self.plan.layers):
                experts: set[int] = set()
                for task, count in taken:
                    for _ in range(count):
                        task.picks[layer] = self._router.pick(
                            layer, task.topic, task.chooser, task.picks.get(layer, ())
                        )
                        experts.update(task.picks[layer])
                self._model.touch_experts(layer, sorted(experts))

    def _advance(self, task: Task, count: int, now: float) -> None:
        if task.processed < task.prompt_tokens:
            task.processed += count
            if task.processed < task.prompt_tokens:
                return
            # As in llama-server, the decode that ends the prompt gives the first token.
            task.prompt_seconds = now - task.started
        task.predicted_seconds = now - task.started - task.prompt_seconds
        task.decoded += 1
        self._tokens += 1
        task.text.append(chr(33 + min(task.topic * CHARACTERS + task.chooser.randrange(CHARACTERS), 93)))
        if not task.ignore_eos and task.chooser.random() < _END_PROBABILITY:
            task.stop_type = "eos"
        elif task.decoded >= task.limit:
            task.stop_type = "limit"
        elif task.position >= self.plan.slot_context:
            task.stop_type, task.truncated = "limit", True

    def _release(self, task: Task) -> None:
        """Save the state, free the slot, count the request, wake whoever waits for it."""
        try:
            self._cache.save(task.position * self.plan.kv_bytes_per_token)
        except OSError as error:
            print(f"moetuned-simulator: the prompt cache got no memory: {error.strerror}", file=sys.stderr, flush=True)
        with self._changed:
            totals = self._counters
            totals.prompt_tokens += task.processed - task.cached
            totals.prompt_seconds += task.prompt_seconds
            totals.predicted_tokens += task.decoded
            totals.predicted_seconds += task.predicted_seconds
            totals.longest = max(totals.longest, task.position)
            self._slots[task.slot].task = None
        task.finished.set()

    def _slot_object(self, slot: Slot) -> dict[str, Any]:
        shown: dict[str, Any] = {
            "id": slot.number,
            "n_ctx": self.plan.slot_context,
            "speculative": False,
            "is_processing": slot.task is not None,
        }
        task = slot.last
        if task is not None:
            remaining = task.limit - task.decoded if slot.task else 0
            shown |= {
                "id_task": task.number,
                "n_prompt_tokens": task.position,
                "n_prompt_tokens_processed": task.processed - task.cached if slot.task else 0,
                "n_prompt_tokens_cache": task.cached,
                "params": {"n_predict": task.limit, "ignore_eos": task.ignore_eos, "seed": task.seed, "stream": False},
                "next_token": [
                    {
                        "has_next_token": slot.task is not None,
                        "has_new_line": False,
                        "n_remain": remaining,
                        "n_decoded": task.decoded,
                    }
                ],
            }
        return shown


def _waits_for_prompt(slot: Slot) -> bool:
    return slot.task is not None and slot.task.processed < slot.task.prompt_tokens
