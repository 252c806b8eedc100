"""Where each GiB goes: the memory ledger of a model, a plan and a machine.

What the backend holds is anonymous memory and cannot be paged back from the model's file, so it comes first; then what
every token reads; what is left caches experts. Ranges stay ranges: the room for experts is smallest when everything else
is largest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from moetuned.decide.compute_buffer import MIB, compute_buffer, process_overhead
from moetuned.decide.weights import Repacked, Weights, repacked_bytes, repacks
from moetuned.gguf.header import GgufError, Header
from moetuned.gguf.kv_cache import KvCache, KvSettings, kv_cache
from moetuned.schema.estimate import Amount, LaunchPlan, Ledger, LedgerLine, MachineFacts
from moetuned.schema.units import format_bytes

DEFAULT_PROMPT_CACHE_BYTES = 8192 * MIB
DEFAULT_CHECKPOINTS = 32
DEFAULT_SLOTS = 4
"""llama-server's own: `--cache-ram`, `--ctx-checkpoints` a slot, `--parallel` (unified); tools/server/README.md of b11434."""

VRAM_MARGIN_BYTES = 1 << 30
"""Left free on a GPU, as llama.cpp's `--fit-target` does."""

_MOST_CACHE_BYTES = 1 << 60
_TOUCHED_ROWS = 0.02  # of a token table; 0.1 to 1.4 % were resident when measured


class Subject(msgspec.Struct, frozen=True):
    """A model: its headers, sorted weights, and whether all of its metadata is there."""

    headers: tuple[Header, ...]
    weights: Weights


class Split(msgspec.Struct, frozen=True):
    """What a plan puts on the GPU: bytes of weights and experts, and the share of the cache."""

    dense_bytes: int = 0
    expert_bytes: int = 0
    cache_share: float = 0.0


def default_plan(plan: LaunchPlan) -> LaunchPlan:
    """The same context with everything else as llama-server has it when nothing is said."""
    return msgspec.structs.replace(
        plan,
        slots=DEFAULT_SLOTS,
        unified=True,
        cache_type_k="f16",
        cache_type_v="f16",
        prompt_cache_bytes=DEFAULT_PROMPT_CACHE_BYTES,
        checkpoints=DEFAULT_CHECKPOINTS,
        ubatch_tokens=512,
        repack=True,
    )


def settings(plan: LaunchPlan) -> KvSettings:
    """What `kv_cache` needs of a plan."""
    return KvSettings(
        plan.context_length, plan.slots, plan.unified, plan.cache_type_k, plan.cache_type_v, plan.ubatch_tokens
    )


def build_ledger(subject: Subject, plan: LaunchPlan, machine: MachineFacts) -> Ledger:
    """The ledger. Raises GgufError when the metadata lacks what the cache depends on, ValueError for an impossible plan."""
    sizes, metadata = subject.weights, subject.headers[0].metadata
    cache = kv_cache(metadata, settings(plan))
    if cache.total_bytes > _MOST_CACHE_BYTES:
        raise GgufError("its metadata asks for a KV cache of more than a million TiB; download the file again")
    on_gpu = gpu_split(sizes, plan)
    compute = compute_buffer(metadata, sizes, settings(plan))
    lines = [_line("system", "system and programs", "system", machine.system)]
    process = process_overhead(min(machine.limit.high_bytes, sizes.every_token_bytes + sizes.expert_bytes))
    lines.append(_line("process", "process", "backend", process))
    lines += _cache_lines(cache, plan, on_gpu)
    lines += _compute_lines(compute, plan)
    lines.append(_line("prompt_cache", "prompt cache", "backend", _prompt_cache(plan, cache)))
    lines.append(_line("checkpoints", "context checkpoints", "backend", _checkpoints(subject, plan, cache)))
    repacked = _repacked(subject, plan, machine, on_gpu)
    lines.append(_line("repacked", "repacked weights", "backend", _repacked_amount(subject, plan, machine, repacked)))
    lines += _weight_lines(sizes, repacked, on_gpu)
    return _balance(lines, sizes, machine, on_gpu, repacked)


def gpu_split(sizes: Weights, plan: LaunchPlan) -> Split:
    """What `-ngl` and `--n-cpu-moe` put on the GPU; nothing without a GPU.

    `-ngl N` takes the last N blocks, and from one more than there are the output matrix too; `--n-cpu-moe M` keeps the
    experts of the first M blocks in RAM.
    """
    layers = len(sizes.dense_by_layer)
    if plan.gpu_layers is None or not layers:
        return Split()
    first = max(0, layers - plan.gpu_layers)
    dense = sum(sizes.dense_by_layer[first:])
    if plan.gpu_layers > layers:
        dense += sizes.every_token_bytes - sum(sizes.dense_by_layer)
    experts = sum(sizes.experts_by_layer[max(first, plan.cpu_moe_layers or 0) :])
    return Split(dense, experts, (layers - first) / layers)


def held(ledger: Ledger, place: str = "ram") -> Amount:
    """What the backend holds in anonymous memory."""
    return _sum(line.amount for line in ledger.lines if line.group == "backend" and line.place == place)


def _line(name: str, label: str, group: str, amount: Amount, place: str = "ram") -> LedgerLine:
    return LedgerLine(name, label, group, amount, place)


def _cache_lines(cache: KvCache, plan: LaunchPlan, on_gpu: Split) -> list[LedgerLine]:
    kind = plan.cache_type_k if plan.cache_type_k == plan.cache_type_v else f"{plan.cache_type_k}/{plan.cache_type_v}"
    how = "header" if cache.rough is None else "header, rough"
    attention = cache.attention_bytes + cache.window_bytes + cache.indexer_bytes
    parts = [("kv_cache", "KV cache", attention, f"{plan.context_length} tokens, {kind}: {how}")]
    if cache.recurrent_bytes:
        slots = "slot" if plan.slots == 1 else "slots"
        parts.append(("recurrent_state", "recurrent state", cache.recurrent_bytes, f"{how}, {plan.slots} {slots}"))
    lines = []
    for name, label, size, source in parts:
        away = int(size * on_gpu.cache_share)
        lines.append(_line(name, label, "backend", Amount(size - away, size - away, source)))
        if away:
            lines.append(_line(f"{name}_gpu", label, "backend", Amount(away, away, source), "vram"))
    return lines


def _compute_lines(compute: Amount, plan: LaunchPlan) -> list[LedgerLine]:
    if not plan.gpu_layers:
        return [_line("compute", "compute buffers", "backend", compute)]
    half = Amount(compute.low_bytes // 4, compute.high_bytes, compute.source)
    return [
        _line("compute", "compute buffers", "backend", half),
        _line("compute_gpu", "compute buffers", "backend", compute, "vram"),
    ]


def _prompt_cache(plan: LaunchPlan, cache: KvCache) -> Amount:
    if plan.prompt_cache_bytes is None:
        return Amount(0, cache.total_bytes * 8, "--cache-ram -1: no limit; eight full prompts assumed")
    megabytes = plan.prompt_cache_bytes // MIB
    return Amount(0, plan.prompt_cache_bytes, f"up to --cache-ram {megabytes}" if megabytes else "--cache-ram 0")


def _checkpoints(subject: Subject, plan: LaunchPlan, cache: KvCache) -> Amount:
    """Checkpoints keep what cannot be rolled back: recurrent state and windows. One slot's, a checkpoint."""
    if not cache.window_bytes and not cache.recurrent_bytes:
        return Amount(0, 0, "none: this cache can be rolled back")
    one = msgspec.structs.replace(settings(plan), slots=1, unified=False)
    alone = kv_cache(subject.headers[0].metadata, one)
    each = alone.window_bytes + alone.recurrent_bytes
    return Amount(
        0,
        each * plan.checkpoints * plan.slots,
        f"up to {plan.checkpoints} a slot of {format_bytes(each)}",
    )


def _repacked(subject: Subject, plan: LaunchPlan, machine: MachineFacts, on_gpu: Split) -> Repacked:
    if not plan.repack:
        return Repacked()
    found, sizes = repacked_bytes(subject.headers, machine.cpu_features), subject.weights
    return Repacked(
        _share(found.expert_bytes, sizes.expert_bytes - on_gpu.expert_bytes, sizes.expert_bytes),
        _share(found.other_bytes, sizes.every_token_bytes - on_gpu.dense_bytes, sizes.every_token_bytes),
    )


def _share(size: int, part: int, whole: int) -> int:
    return size * part // whole if whole else 0


def _repacked_amount(subject: Subject, plan: LaunchPlan, machine: MachineFacts, repacked: Repacked) -> Amount:
    if not plan.repack:
        return Amount(0, 0, "off (--no-repack)")
    if not machine.cpu_features:
        return Amount(0, subject.weights.expert_bytes, "unknown: the features of the CPU are not known")
    size, kinds = repacked.expert_bytes + repacked.other_bytes, repacks(machine.cpu_features) or "no type"
    return Amount(size, size, f"copies: this CPU repacks {kinds}" if size else f"this CPU repacks {kinds}: none here")


def _weight_lines(sizes: Weights, repacked: Repacked, on_gpu: Split) -> list[LedgerLine]:
    dense = max(0, sizes.every_token_bytes - on_gpu.dense_bytes - repacked.other_bytes)
    lines = [_line("every_token", "every-token weights", "weights", Amount(dense, dense, "header"))]
    if sizes.token_table_bytes:
        rows = int(sizes.token_table_bytes * _TOUCHED_ROWS)
        whole = format_bytes(sizes.token_table_bytes)
        lines.append(
            _line("token_rows", "rows of used tokens", "weights", Amount(0, rows, f"of {whole}: only used rows"))
        )
    if on_gpu.dense_bytes or on_gpu.expert_bytes:
        for name, label, size in (
            ("every_token_gpu", "every-token weights", on_gpu.dense_bytes),
            ("experts_gpu", "experts", on_gpu.expert_bytes),
        ):
            lines.append(_line(name, label, "weights", Amount(size, size, "header"), "vram"))
    return lines


def _balance(
    lines: list[LedgerLine], sizes: Weights, machine: MachineFacts, on_gpu: Split, repacked: Repacked
) -> Ledger:
    in_ram = [line for line in lines if line.place == "ram"]
    taken = _sum(line.amount for line in in_ram)
    experts = max(0, sizes.expert_bytes - on_gpu.expert_bytes)
    copied = min(experts, repacked.expert_bytes)  # repacked experts are in memory already
    low = max(0, machine.limit.low_bytes - taken.high_bytes)
    high = max(0, machine.limit.high_bytes - taken.low_bytes)
    left = experts - copied
    room = Amount(min(low, left), min(high, left), "the rest are in the copies" if copied else "what is left")
    ratio_low = 1.0 if left == 0 else min(1.0, (room.low_bytes + copied) / experts)
    ratio_high = 1.0 if left == 0 else min(1.0, (room.high_bytes + copied) / experts)
    return Ledger(
        limit=machine.limit,
        lines=tuple(lines),
        room=room,
        ratio_low=ratio_low,
        ratio_high=ratio_high,
        vram_limit=machine.vram,
        shortage=_shortage(lines, machine),
    )


def _shortage(lines: Sequence[LedgerLine], machine: MachineFacts) -> str | None:
    """Why it cannot run, judged by the least that each line can be: a doubt is no refusal."""
    system = _sum(line.amount for line in lines if line.group == "system")
    backend = _sum(line.amount for line in lines if line.group == "backend" and line.place == "ram")
    weights = _sum(line.amount for line in lines if line.group == "weights" and line.place == "ram")
    limit = machine.limit.high_bytes
    beside = f"beside the {format_bytes(system.low_bytes)} that the system takes" if system.low_bytes else "there"
    if system.low_bytes + backend.low_bytes > limit:
        copies = _sum(line.amount for line in lines if line.name == "repacked").low_bytes
        cure = "take a shorter context or a smaller cache type"
        if copies * 2 > backend.low_bytes:
            cure = f"{format_bytes(copies)} of it are copies of weights that --no-repack avoids"
        return (
            f"the backend's own memory is at least {format_bytes(backend.low_bytes)}, which does not fit in "
            f"{format_bytes(limit)} {beside}; {cure}"
        )
    if system.low_bytes + backend.low_bytes + weights.low_bytes > limit:
        return (
            f"every token reads {format_bytes(weights.low_bytes)} of weights that do not stay in memory: "
            f"{format_bytes(limit)} hold {format_bytes(max(0, limit - system.low_bytes - backend.low_bytes))} of them "
            f"{beside}; take a smaller model or quantisation"
        )
    if machine.vram is not None:
        used = _sum(line.amount for line in lines if line.place == "vram")
        if used.low_bytes > machine.vram.high_bytes:
            return (
                f"{format_bytes(used.low_bytes)} on the GPU do not fit in {format_bytes(machine.vram.high_bytes)}; put fewer "
                "blocks on it"
            )
    return None


def _sum(amounts: Iterable[Amount]) -> Amount:
    low = high = 0
    for amount in amounts:
        low, high = low + amount.low_bytes, high + amount.high_bytes
    return Amount(low, high, "sum")
