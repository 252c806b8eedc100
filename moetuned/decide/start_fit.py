"""Whether a backend that is about to be started fits, and what it is started with where it does not.

Judged by the least that everything can take, as the ledger has it: a doubt changes nothing. Only memory that cannot be paged back counts
(KV cache, buffers, copies, locked weights); weights that are only mapped always fit, slowly or not. A prompt cache counts where it
alone may take more than all that is left.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from moetuned.decide.ledger import DEFAULT_SLOTS, Subject, build_ledger, held
from moetuned.decide.relief_ladder import CONTEXT_STEP, MIB
from moetuned.decide.supervision import LaunchPlan
from moetuned.gguf.header import GgufError
from moetuned.parse.launch_memory_flags import NO_REPACK_FLAGS, MemoryFlags, mapped_only
from moetuned.parse.llama_help import ProgramHelp
from moetuned.schema import estimate
from moetuned.schema.backend_description import BackendDescription
from moetuned.schema.units import format_bytes

ROOM_SHARE = 8
"""A context that is made to fit leaves this part of the limit, so that memory is not near its limit at once."""
CACHE_SHARE = 2
"""A prompt cache that is made to fit takes this part of what is left, at most."""
_CACHE_STEP_MIB = 64


class StartFacts(msgspec.Struct, frozen=True):
    """A start: `command` with its placeholders, `plan` their values, `said` and `flags` what the whole line says. `known`: the program's help."""

    command: tuple[str, ...]
    plan: LaunchPlan
    minimum_context: int
    said: BackendDescription
    flags: MemoryFlags
    known: ProgramHelp | None = None


class StartFit(msgspec.Struct, frozen=True):
    """What to start. `changes`: what is different from what was asked for, () nothing; `why`: one sentence; `fits`: whether it fits then."""

    command: tuple[str, ...]
    plan: LaunchPlan
    changes: tuple[str, ...] = ()
    why: str | None = None
    fits: bool = True


class _Start(msgspec.Struct, frozen=True):
    """One way to start it."""

    command: tuple[str, ...]
    plan: LaunchPlan
    repacks: bool
    holds_model: bool
    cache_mib: int | None


def start_fit(subject: Subject, machine: estimate.MachineFacts, facts: StartFacts) -> StartFit:
    """What it can be started with. Where something cannot be known, it is started as it is."""
    as_asked = StartFit(facts.command, facts.plan)
    if facts.said.context_length is None or facts.flags.gpu:
        return as_asked
    asked = _Start(
        facts.command,
        facts.plan,
        facts.flags.repacks,
        facts.flags.locks or facts.flags.copies,
        facts.said.prompt_cache_mib,
    )
    judge = _Judge(subject, machine, facts)
    try:
        over = judge.over_bytes(asked)
        if over <= 0:
            return as_asked
        best, changes = judge.smaller(asked)
        left = judge.over_bytes(best)
    except (GgufError, ValueError):
        return as_asked
    limit = f"{format_bytes(machine.limit.high_bytes)} ({machine.limit.source})"
    why = f"it would take at least {format_bytes(over)} more than there is of {limit}"
    if left > 0:
        why += f", and with all that can be changed still {format_bytes(left)}"
    return StartFit(best.command, best.plan, tuple(changes), why, fits=left <= 0)


class _Judge:
    """Judges ways to start one backend."""

    def __init__(self, subject: Subject, machine: estimate.MachineFacts, facts: StartFacts) -> None:
        self._subject = subject
        self._machine = machine
        self._facts = facts

    def over_bytes(self, start: _Start) -> int:
        """By how much it surely does not fit; 0 or less: it may."""
        room = self._room_bytes(start)
        return max(-room, (start.cache_mib or 0) * MIB - room if room > 0 else -room)

    def _room_bytes(self, start: _Start) -> int:
        """What is left beside everything but the prompt cache, at most. What is locked cannot be swapped out, the rest can."""
        machine = self._machine
        ledger = build_ledger(self._subject, self._estimate_plan(start), machine)
        own = held(ledger).low_bytes
        room = machine.limit.high_bytes + machine.swap.high_bytes - machine.system.low_bytes - own
        if not start.holds_model:
            return room
        model = self._subject.weights
        copied = next((line.amount.low_bytes for line in ledger.lines if line.name == "repacked"), 0)
        weights = max(0, model.every_token_bytes + model.expert_bytes + model.token_table_bytes - copied)
        return min(room, machine.limit.high_bytes - machine.system.low_bytes - own - weights)

    def _estimate_plan(self, start: _Start) -> estimate.LaunchPlan:
        said, plan = self._facts.said, start.plan
        return estimate.LaunchPlan(
            context_length=plan.context_length
            if self._sets("{context}")
            else said.context_length or plan.context_length,
            slots=said.slots or DEFAULT_SLOTS,
            unified=said.slots is None if said.kv_unified is None else said.kv_unified,
            cache_type_k=said.cache_type_k or "f16",
            cache_type_v=said.cache_type_v or "f16",
            prompt_cache_bytes=0,
            ubatch_tokens=said.micro_batch_tokens or 512,
            repack=start.repacks,
        )

    def _sets(self, placeholder: str) -> bool:
        return any(placeholder in word for word in self._facts.command)

    def smaller(self, start: _Start) -> tuple[_Start, list[str]]:
        """The same with as little less as makes it fit, or all that can be less; and what that is."""
        changes: list[str] = []
        # The prompt cache comes last: what is left for it is known only then, and the context is never cut for it.
        for change in (self._without_repacking, self._mapped, self._shorter_context, self._smaller_cache):
            if self.over_bytes(start) <= 0:
                break
            found = change(start)
            if found is not None:
                start, text = found
                changes.append(text)
        return start, changes

    def _without_repacking(self, start: _Start) -> tuple[_Start, str] | None:
        known = self._facts.known
        spelling = next((one for one in NO_REPACK_FLAGS if known is not None and known.knows(one)), None)
        without = msgspec.structs.replace(start, repacks=False)
        if not start.repacks or spelling is None or self._room_bytes(without) <= self._room_bytes(start):
            return None
        command = (*start.command, spelling)
        return msgspec.structs.replace(
            without, command=command
        ), f"{spelling}: weights are not copied into another order"

    def _mapped(self, start: _Start) -> tuple[_Start, str] | None:
        without = msgspec.structs.replace(start, holds_model=False, command=tuple(mapped_only(start.command)))
        if not start.holds_model or without.command == start.command or self._room_bytes(start) > 0:
            return None
        return without, "its model is mapped, neither locked nor copied"

    def _smaller_cache(self, start: _Start) -> tuple[_Start, str] | None:
        if not start.cache_mib or start.plan.prompt_cache_mib is None or not self._sets("{prompt_cache_mib}"):
            return None
        fits = max(0, self._room_bytes(start)) // CACHE_SHARE // MIB // _CACHE_STEP_MIB * _CACHE_STEP_MIB
        if fits >= start.cache_mib:
            return None
        plan = msgspec.structs.replace(start.plan, prompt_cache_mib=fits)
        return (
            msgspec.structs.replace(start, plan=plan, cache_mib=fits),
            f"prompt cache {start.cache_mib} -> {fits} MiB",
        )

    def _shorter_context(self, start: _Start) -> tuple[_Start, str] | None:
        now, least = start.plan.context_length, self._facts.minimum_context
        if now <= least or not self._sets("{context}") or self._room_bytes(start) >= 0:
            return None
        left = self._machine.limit.high_bytes // ROOM_SHARE

        def with_context(tokens: int) -> _Start:
            return msgspec.structs.replace(start, plan=msgspec.structs.replace(start.plan, context_length=tokens))

        low, high = least // CONTEXT_STEP, now // CONTEXT_STEP
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (
                (middle, high) if self._room_bytes(with_context(middle * CONTEXT_STEP)) >= left else (low, middle)
            )
        tokens = max(low * CONTEXT_STEP, least)
        if tokens >= now:
            return None
        return with_context(tokens), f"context {now} -> {tokens}"


def known_flags(command: Sequence[str], known: ProgramHelp) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The command without flags that the program does not know and whose value is {slots}, {checkpoints} or {cache_type}; and those."""
    kept: list[str] = []
    dropped: list[str] = []
    for index, argument in enumerate(command):
        before = command[index - 1] if index > 1 else ""
        name, equals, value = argument.partition("=")
        following = command[index + 1] if index + 1 < len(command) else ""
        if index > 0 and following in _OPTIONAL and argument.startswith("-") and not known.knows(argument):
            dropped.append(argument)
        elif argument in _OPTIONAL and before.startswith("-") and not known.knows(before):
            continue
        elif equals and value in _OPTIONAL and name.startswith("-") and not known.knows(name):
            dropped.append(name)
        else:
            kept.append(argument)
    return tuple(kept), tuple(dropped)


_OPTIONAL = ("{slots}", "{checkpoints}", "{cache_type}")
