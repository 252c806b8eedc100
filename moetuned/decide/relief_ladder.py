"""The ladder of relief: every step with what it would free, smallest first, and which of them a deficit needs.

Pure. The KV cache is allocated whole when a llama.cpp server starts and never grows; what grows is the prompt cache (up to
`--cache-ram`) and the context checkpoints (`--ctx-checkpoints` a slot). What a step surely frees is told apart from what it frees at
most: a prompt cache of 8 GiB may hold nothing yet. Only what is sure makes a further step needless, and what needs a restart is joined
into one, because each restart reads the whole model.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from moetuned.decide.foresight import BELIEVED_FACTOR, SEEN_SECONDS, OwnGrowth, foreseen_bytes
from moetuned.decide.owner_words import Names
from moetuned.schema.action import RestartBackend
from moetuned.schema.relief import DEFAULT_STEPS, ReliefStep, StepName
from moetuned.schema.snapshot import MemoryView
from moetuned.schema.units import format_bytes, format_duration

MIB = 1 << 20
CONTEXT_STEP = 256
"""llama.cpp pads the context to a multiple of this (src/llama-context.cpp)."""
WORTHWHILE = 0.1
"""A restart that frees less than this share of what is missing is not worth a full read of the model."""
NOTICEABLE_BYTES = 16 * MIB
"""A step that frees less frees nothing."""
GROWN_MARGIN_BYTES = 64 * MIB
"""So much of what a backend has grown by since it was ready may be neither prompt cache nor checkpoints (buffers at first use)."""
WARMING_BYTES = 8 * MIB
"""Memory of the small process that warms (measured: a bare interpreter)."""
FEW_CHECKPOINTS = 2
"""Enough to go back in a conversation of a hybrid model without reading all of it again."""
SMALL_TYPE = "q8_0"
PROMPT_CACHE_SHARE = 4
"""The prompt cache may take this part of the headroom there will be."""
_PROMPT_CACHE_STEP_MIB = 64
_WORDS = {
    "context": "context length",
    "prompt_cache_mib": "prompt cache",
    "slots": "slots",
    "checkpoints": "context checkpoints",
    "cache_type": "KV cache type",
}
_LARGE_TYPES = ("f32", "f16", "bf16")


class KvCost(msgspec.Struct, frozen=True):
    """A KV cache with some number of slots and a type: bytes at the context of now, and of each token. `refused`: why llama.cpp would not start."""

    size_bytes: int
    bytes_per_token: int
    refused: str | None = None


class KvChoices(msgspec.Struct, frozen=True):
    """What the KV cache costs now, with one slot, with q8_0, with both. `checkpoint_bytes`: of one checkpoint of one slot."""

    now: KvCost
    one_slot: KvCost
    small: KvCost
    one_slot_small: KvCost
    checkpoint_bytes: int = 0


class ReliefFacts(msgspec.Struct, frozen=True):
    """What is known of the backend. `supervised`: moetuned may restart it; `..._changeable`: its command takes one.

    `grown_bytes`: of its own memory since it was ready; `locked_bytes`: of its model, by moetuned. `restart_seconds` None: unknown,
    `lacks`: what its kind cannot be given; `names`: how it is given the rest; `unset`: why not, where
    another reason is known than that its command does not hold it. `restart_source` says why, or from what it is known.
    `draining`: its restart waits for requests to end. `pausable`: its process may be stopped for a moment, `held`: it is. `behind`: another backend
    under the same limit that is being relieved already, and whose restart may be enough. `obstacle`: why it could not start again, a sentence;
    `cannot_restart`: why it cannot be restarted at all from where moetuned runs. None is unknown everywhere.
    """

    supervised: bool
    context_changeable: bool
    prompt_cache_changeable: bool
    context_length: int | None
    minimum_context: int
    prompt_cache_mib: int | None
    kv_bytes_per_token: int | None
    ready: bool
    slots_changeable: bool = False
    checkpoints_changeable: bool = False
    cache_type_changeable: bool = False
    slots: int | None = None
    checkpoints: int | None = None
    cache_type: str | None = None
    kv: KvChoices | None = None
    grown_bytes: int | None = None
    own_bytes: int | None = None
    own_growth_bytes_per_second: float | None = None
    warming: bool = False
    locked_bytes: int = 0
    restart_seconds: float | None = None
    kind: str = "unknown"
    lacks: frozenset[str] = frozenset()
    names: Names = {}
    unset: Mapping[str, str] = {}
    restart_source: str = "neither a load of it nor its disk was measured yet"
    draining: bool = False
    pausable: bool = False
    held: bool = False
    behind: str | None = None
    obstacle: str | None = None
    cannot_restart: str | None = None


class Ladder(msgspec.Struct, frozen=True):
    """All steps, and the restart that those which need one are joined into; None: no restart would help, or none is needed.

    `missing_bytes`: what they have to free.
    """

    steps: tuple[ReliefStep, ...]
    missing_bytes: int
    restart: RestartBackend | None = None

    @property
    def own(self) -> tuple[ReliefStep, ...]:
        """Steps to take that need no restart."""
        return tuple(step for step in self.steps if step.taken and not step.restart)

    @property
    def own_suffices(self) -> bool:
        """Whether those surely free all that is missing."""
        return sum(step.sure_bytes for step in self.own) >= self.missing_bytes


def climb(
    backend: str,
    facts: ReliefFacts,
    memory: MemoryView,
    target_headroom_bytes: int,
    allowed: Collection[StepName] = DEFAULT_STEPS,
    useless: Collection[StepName] = (),
    foreseen_seconds: float = BELIEVED_FACTOR * SEEN_SECONDS,
    leaks_seconds: float = 0.0,
) -> Ladder | None:
    """What to take to bring `target_headroom_bytes` back; None: the headroom is not known.

    `allowed`: `relief.steps`; `useless`: steps that were seen to free nothing; `foreseen_seconds`: for how long others go on growing,
    `leaks_seconds`: and the next process if it leaks.
    """
    if memory.headroom_bytes is None:
        return None
    headroom = memory.headroom_bytes
    own = OwnGrowth(facts.own_growth_bytes_per_second, facts.grown_bytes, leaks_seconds)
    ahead = headroom - foreseen_bytes(headroom, memory.seconds_to_limit, own, foreseen_seconds)
    climbing = _Climb(facts, max(target_headroom_bytes - ahead, 0), target_headroom_bytes, allowed, useless)
    steps = climbing.steps()
    restart = _restart(backend, climbing, steps, headroom, ahead)
    if isinstance(restart, str):
        steps = tuple(_not_taken(step, restart) if step.restart else step for step in steps)
        restart = None
    elif restart is not None and restart.prompt_cache_mib is not None:
        steps = tuple(_with_cache(step, facts, restart.prompt_cache_mib) for step in steps)
    return Ladder(steps, climbing.missing_bytes, restart)


class _Climb:
    """One way up: each step is looked at with what those before it have left missing, and with what they changed."""

    def __init__(
        self,
        facts: ReliefFacts,
        missing_bytes: int,
        target_bytes: int,
        allowed: Collection[StepName],
        useless: Collection[StepName],
    ) -> None:
        self.facts = facts
        self.missing_bytes = missing_bytes
        self.left_bytes = missing_bytes
        self.target_bytes = target_bytes
        self._allowed = allowed
        self._useless = useless
        self.slots: int | None = None
        self.checkpoints: int | None = None
        self.cache_type: str | None = None
        self.context: int | None = None
        self.kv_freed_bytes: int | None = 0
        self.cache_mib: int | None = None
        self._found_context: int | None = None

    def steps(self) -> tuple[ReliefStep, ...]:
        """All of them, in order."""
        makers = {
            StepName.STOP_WARMING: self._warming,
            StepName.RELEASE_PROTECTION: self._protection,
            StepName.SHRINK_PROMPT_CACHE: self._prompt_cache,
            StepName.FEWER_CHECKPOINTS: self._checkpoints,
            StepName.ONE_SLOT: self._one_slot,
            StepName.QUANTISE_KV_CACHE: self._small_type,
            StepName.SHORTER_CONTEXT: self._shorter,
        }
        found = []
        for name in StepName:
            step = makers[name]()
            if step.taken and name not in self._allowed:
                step = _not_taken(step, "not allowed by relief.steps")
            elif step.taken and step.restart and self.facts.cannot_restart is not None:
                step = _not_taken(step, self.facts.cannot_restart)
            elif step.taken and name in self._useless:
                step = _not_taken(step, "it was taken and did not move the numbers")
            elif step.taken and self.left_bytes <= 0:
                step = _not_taken(step, "not needed" if self.missing_bytes > 0 else "nothing is missing")
            if step.taken:
                self._take(step)
            found.append(step)
        return tuple(found)

    def _take(self, step: ReliefStep) -> None:
        self.left_bytes -= step.sure_bytes
        match step.name:
            case StepName.SHRINK_PROMPT_CACHE:
                self.cache_mib = self._fitting_cache_mib(self.target_bytes)
            case StepName.FEWER_CHECKPOINTS:
                self.checkpoints = FEW_CHECKPOINTS
            case StepName.ONE_SLOT:
                self.slots = 1
            case StepName.QUANTISE_KV_CACHE:
                self.cache_type = SMALL_TYPE
            case StepName.SHORTER_CONTEXT:
                self.context = self._found_context
        if step.name in (StepName.ONE_SLOT, StepName.QUANTISE_KV_CACHE, StepName.SHORTER_CONTEXT):
            unknown = self.kv_freed_bytes is None or step.frees_bytes is None
            self.kv_freed_bytes = None if unknown else (self.kv_freed_bytes or 0) + (step.frees_bytes or 0)

    # What each would free

    def _warming(self) -> ReliefStep:
        what = "stop warming the model"
        if not self.facts.warming:
            return ReliefStep(
                StepName.STOP_WARMING, what, 0, restart=False, why_not="frees nothing: it is not warmed now"
            )
        return ReliefStep(StepName.STOP_WARMING, what, WARMING_BYTES, restart=False)

    def _protection(self) -> ReliefStep:
        size = self.facts.locked_bytes
        what = "let go of what moetuned locks of the model"
        why = None if size > 0 else "frees nothing: nothing is locked"
        return ReliefStep(StepName.RELEASE_PROTECTION, what, size, size, restart=False, why_not=why)

    def _prompt_cache(self) -> ReliefStep:
        facts, name = self.facts, StepName.SHRINK_PROMPT_CACHE
        new = self._fitting_cache_mib(self.target_bytes)
        if not facts.prompt_cache_changeable:
            return ReliefStep(name, "smaller prompt cache", why_not=_unset(facts, "prompt_cache_mib"))
        if facts.prompt_cache_mib is None or new is None or new >= facts.prompt_cache_mib:
            why = "frees nothing: it is off" if facts.prompt_cache_mib == 0 else "frees nothing: it is small enough"
            return ReliefStep(name, "smaller prompt cache", 0, why_not=why)
        most, sure = self._cache_holds(facts.prompt_cache_mib * MIB)
        kept = new * MIB
        return ReliefStep(name, _cache_text(facts, new), max(0, most - kept), max(0, sure - kept))

    def _checkpoints(self) -> ReliefStep:
        facts, name, what = self.facts, StepName.FEWER_CHECKPOINTS, "fewer context checkpoints"
        if not facts.checkpoints_changeable:
            return ReliefStep(name, what, why_not=_unset(facts, "checkpoints"))
        if facts.checkpoints is not None and facts.checkpoints <= FEW_CHECKPOINTS:
            return ReliefStep(name, what, 0, why_not="frees nothing: there are few already")
        if facts.kv is None or facts.checkpoints is None:
            return ReliefStep(name, what, why_not="what they hold is not known")
        each = facts.kv.checkpoint_bytes * (facts.slots or 4)
        if each == 0:
            return ReliefStep(name, what, 0, why_not="frees nothing: this model's cache needs none")
        cache = facts.prompt_cache_mib
        held = facts.checkpoints * each
        most = held if facts.grown_bytes is None else min(held, facts.grown_bytes)
        others = GROWN_MARGIN_BYTES + (0 if cache is None else cache * MIB)
        sure = 0 if facts.grown_bytes is None or cache is None else min(held, facts.grown_bytes - others)
        kept = FEW_CHECKPOINTS * each
        what = f"context checkpoints {facts.checkpoints} -> {FEW_CHECKPOINTS} a slot"
        if most - kept < NOTICEABLE_BYTES:
            return ReliefStep(name, what, max(0, most - kept), why_not="frees nothing: they hold little now")
        return ReliefStep(name, what, most - kept, max(0, sure - kept))

    def _one_slot(self) -> ReliefStep:
        facts, name = self.facts, StepName.ONE_SLOT
        what = "one slot" if facts.slots in (None, 1) else f"slots {facts.slots} -> 1"
        if not facts.slots_changeable:
            return ReliefStep(name, what, why_not=_unset(facts, "slots"))
        if facts.slots == 1:
            return ReliefStep(name, "one slot", 0, why_not="frees nothing: it has one")
        if facts.kv is None:
            return ReliefStep(name, what, why_not="what a slot costs is not known")
        frees = facts.kv.now.size_bytes - facts.kv.one_slot.size_bytes
        if frees < NOTICEABLE_BYTES:
            return ReliefStep(name, what, max(0, frees), why_not="frees nothing: the slots share one cache")
        return ReliefStep(name, what, frees, frees)

    def _small_type(self) -> ReliefStep:
        facts, name = self.facts, StepName.QUANTISE_KV_CACHE
        what = f"KV cache {facts.cache_type or 'f16'} -> {SMALL_TYPE}"
        if not facts.cache_type_changeable:
            return ReliefStep(name, what, why_not=_unset(facts, "cache_type"))
        if (facts.cache_type or "f16") not in _LARGE_TYPES:
            return ReliefStep(name, what, 0, why_not=f"frees nothing: it is {facts.cache_type}")
        if facts.kv is None:
            return ReliefStep(name, what, why_not="what the KV cache holds is not known")
        now, then = self._kv(small=False), self._kv(small=True)
        if now is None or then is None or then.refused is not None:
            return ReliefStep(name, what, why_not="not known" if then is None else then.refused)
        frees = now.size_bytes - then.size_bytes
        if frees < NOTICEABLE_BYTES:
            return ReliefStep(name, what, max(0, frees), why_not="frees nothing: the KV cache is small")
        return ReliefStep(name, what, frees, frees)

    def _shorter(self) -> ReliefStep:
        facts, name = self.facts, StepName.SHORTER_CONTEXT
        if not facts.context_changeable:
            return ReliefStep(name, "shorter context", why_not=_unset(facts, "context"))
        if facts.context_length is None:
            return ReliefStep(name, "shorter context", why_not="its context length is not known")
        if facts.context_length <= facts.minimum_context:
            why = f"frees nothing: {facts.context_length} tokens are the least allowed"
            return ReliefStep(name, "shorter context", 0, why_not=why)
        per_token = self._bytes_per_token()
        if per_token == 0:
            why = "frees nothing: this model's cache does not grow with the context"
            return ReliefStep(name, "shorter context", 0, why_not=why)
        new = self._shorter_context()
        self._found_context = new
        frees = None if per_token is None else (facts.context_length - new) * per_token
        return ReliefStep(name, f"context {facts.context_length} -> {new}", frees, frees or 0)

    # Figures

    def _kv(self, *, small: bool) -> KvCost | None:
        choices = self.facts.kv
        if choices is None:
            return None
        if self.slots == 1:
            return choices.one_slot_small if small else choices.one_slot
        return choices.small if small else choices.now

    def _bytes_per_token(self) -> int | None:
        """With the slots and the type that the steps before have left."""
        cost = self._kv(small=self.cache_type == SMALL_TYPE)
        return self.facts.kv_bytes_per_token if cost is None else cost.bytes_per_token

    def _shorter_context(self) -> int:
        """The longest shorter context (tokens) that frees what is left missing, not below the minimum; half without a known cost."""
        facts, per_token = self.facts, self._bytes_per_token()
        now = facts.context_length or 0
        if per_token:
            tokens = -(-max(self.left_bytes, 1) // per_token)
            wanted = (now - tokens) // CONTEXT_STEP * CONTEXT_STEP
        else:
            wanted = now // 2 // CONTEXT_STEP * CONTEXT_STEP
        return max(min(wanted, now - 1), facts.minimum_context)

    def _fitting_cache_mib(self, headroom_bytes: int) -> int | None:
        """Prompt cache (MiB) that takes at most a quarter of that headroom, in steps of 64; None: not known what it is."""
        if self.facts.prompt_cache_mib is None:
            return None
        step = _PROMPT_CACHE_STEP_MIB
        return min(self.facts.prompt_cache_mib, max(headroom_bytes, 0) // PROMPT_CACHE_SHARE // MIB // step * step)

    def _cache_holds(self, most_bytes: int) -> tuple[int, int]:
        """What the prompt cache holds at most, and surely."""
        facts = self.facts
        if facts.grown_bytes is None:
            return most_bytes, 0
        each = None if facts.kv is None else facts.kv.checkpoint_bytes * (facts.slots or 4)
        checkpoints = None if each is None else each * (32 if facts.checkpoints is None else facts.checkpoints)
        # Without a known model whatever has grown may be checkpoints.
        others = facts.grown_bytes if checkpoints is None else checkpoints + GROWN_MARGIN_BYTES
        return min(most_bytes, facts.grown_bytes), max(0, min(most_bytes, facts.grown_bytes - others))

    def cache_after(self, headroom_bytes: int) -> int | None:
        """Its new size when that much headroom is there; None: it is left alone."""
        if self.cache_mib is None:
            return None
        fitting = self._fitting_cache_mib(headroom_bytes)
        return self.cache_mib if fitting is None else min(self.cache_mib, fitting)


def _restart(
    backend: str, climbing: _Climb, steps: tuple[ReliefStep, ...], headroom_bytes: int, ahead_bytes: int
) -> RestartBackend | str | None:
    """The joined restart; a sentence: why there is none though steps would need one; None: none is needed."""
    facts, taken = climbing.facts, [step for step in steps if step.taken and step.restart]
    if not taken:
        return None
    if facts.context_length is None:
        return "its context length is not known"
    own = sum(step.sure_bytes for step in steps if step.taken and not step.restart)
    freed = climbing.kv_freed_bytes
    cache = climbing.cache_after(ahead_bytes + own + (freed or 0))
    for step in taken:
        if step.name in (StepName.SHRINK_PROMPT_CACHE, StepName.FEWER_CHECKPOINTS) and freed is not None:
            freed += step.frees_bytes or 0
    if freed is not None and freed < max(1, WORTHWHILE * (climbing.target_bytes - headroom_bytes)):
        return f"would free no more than {format_bytes(freed)}: not worth a full read of the model"
    parts = [
        _cache_text(facts, cache or 0) if step.name is StepName.SHRINK_PROMPT_CACHE else step.what for step in taken
    ]
    about = "" if freed is None else f", frees up to {format_bytes(freed)}"
    return RestartBackend(
        backend=backend,
        context_length=climbing.context or facts.context_length,
        prompt_cache_mib=cache,
        reason=f"headroom {format_bytes(headroom_bytes)}: restart with {' and '.join(reversed(parts))}{about}; {duration(facts)}",
        frees_bytes=freed,
        slots=climbing.slots,
        checkpoints=climbing.checkpoints,
        cache_type=climbing.cache_type,
        steps=tuple(step.name for step in taken),
    )


def duration(facts: ReliefFacts) -> str:
    """How long a restart takes, for people."""
    if facts.restart_seconds is None:
        return f"how long that takes is unknown ({facts.restart_source})"
    return f"that takes about {format_duration(max(1.0, round(facts.restart_seconds)))} ({facts.restart_source})"


def _unset(facts: ReliefFacts, value: str) -> str:
    if value in facts.lacks:
        return f"{facts.kind} has no {_WORDS[value]} that can be set"
    if value in facts.unset:
        return facts.unset[value]
    return f"its command does not set it: no {{{value}}}"


def _cache_text(facts: ReliefFacts, mib: int) -> str:
    return f"prompt cache {facts.prompt_cache_mib} -> {mib} MiB"


def _with_cache(step: ReliefStep, facts: ReliefFacts, mib: int) -> ReliefStep:
    if step.name is not StepName.SHRINK_PROMPT_CACHE or not step.taken:
        return step
    return msgspec.structs.replace(step, what=_cache_text(facts, mib))


def _not_taken(step: ReliefStep, why: str) -> ReliefStep:
    return step if step.why_not is not None else msgspec.structs.replace(step, why_not=why)
