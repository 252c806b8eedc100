"""The command line for a plan, in the words of the user's own llama-server.

Flags come and go (`--mmap` and `--no-mmap` are gone since b10917, ik_llama.cpp has them still) and an unknown one stops the
server, so only what its `--help` lists is used. What each flag is for: docs/estimate.md.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from moetuned.decide.compute_buffer import MIB
from moetuned.decide.ledger import VRAM_MARGIN_BYTES, Subject, build_ledger
from moetuned.decide.weights import Weights
from moetuned.gguf.kv_cache import KV_TYPES
from moetuned.parse.llama_help import ProgramHelp
from moetuned.schema.estimate import Launch, LaunchPlan, Ledger, MachineFacts

KNOWN_BUILD = "llama.cpp b11434"
_EXPERT_PATTERN = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps"
_MOST_PROMPT_CACHE_MIB = 512
_PROMPT_CACHE_SHARE = 32
_PROMPT_CACHE_STEP_MIB = 64
_CHECKPOINTS = 4
_LARGE_UBATCHES = (2048, 1024)
_UBATCH_SHARE = 0.04


class Wishes(msgspec.Struct, frozen=True):
    """What the user fixed; None: to be chosen."""

    context_length: int
    slots: int = 1
    cache_type_k: str = "f16"
    cache_type_v: str = "f16"
    prompt_cache_bytes: int | None = None


def choose_plan(subject: Subject, machine: MachineFacts, wishes: Wishes) -> LaunchPlan:
    """How to start it on this machine: repacking only where the copies fit, small caches where memory is short, large
    micro-batches where prompts would otherwise read the experts again and again. Raises as `build_ledger`.
    """
    limit = machine.limit.low_bytes
    plan = LaunchPlan(
        context_length=wishes.context_length,
        slots=wishes.slots,
        cache_type_k=wishes.cache_type_k,
        cache_type_v=wishes.cache_type_v,
        prompt_cache_bytes=_prompt_cache(limit) if wishes.prompt_cache_bytes is None else wishes.prompt_cache_bytes,
        checkpoints=_CHECKPOINTS,
        threads=machine.physical_cores,
    )
    if machine.vram is not None:
        plan = _on_gpu(subject, plan, machine)
    repacking = msgspec.structs.replace(plan, repack=True)
    if machine.cpu_features and machine.vram is None and _fits(build_ledger(subject, repacking, machine)):
        return repacking
    if _fits(build_ledger(subject, plan, machine)):
        return plan
    for tokens in _LARGE_UBATCHES:
        larger = msgspec.structs.replace(plan, ubatch_tokens=tokens)
        ledger = build_ledger(subject, larger, machine)
        compute = sum(line.amount.high_bytes for line in ledger.lines if line.name == "compute")
        if ledger.shortage is None and compute <= limit * _UBATCH_SHARE:
            return larger
    return plan


def _prompt_cache(limit_bytes: int) -> int:
    mebibytes = min(_MOST_PROMPT_CACHE_MIB, limit_bytes // _PROMPT_CACHE_SHARE // MIB)
    return mebibytes // _PROMPT_CACHE_STEP_MIB * _PROMPT_CACHE_STEP_MIB * MIB


def _fits(ledger: Ledger) -> bool:
    return ledger.shortage is None and ledger.ratio_low >= 1.0


def _on_gpu(subject: Subject, plan: LaunchPlan, machine: MachineFacts) -> LaunchPlan:
    """All blocks on the GPU with as many blocks' experts as fit; when even the rest does not fit, fewer blocks."""
    layers = len(subject.weights.dense_by_layer)
    room = (machine.vram.low_bytes if machine.vram is not None else 0) - VRAM_MARGIN_BYTES

    def used(gpu_layers: int, cpu_moe_layers: int) -> int:
        tried = msgspec.structs.replace(plan, gpu_layers=gpu_layers, cpu_moe_layers=cpu_moe_layers)
        lines = build_ledger(subject, tried, machine).lines
        return sum(line.amount.high_bytes for line in lines if line.place == "vram")

    gpu_layers = _most(layers + 1, lambda count: used(count, layers) <= room)
    if gpu_layers == 0:
        return msgspec.structs.replace(plan, gpu_layers=0, cpu_moe_layers=layers)
    with_experts = _most(layers, lambda count: used(gpu_layers, layers - count) <= room)
    return msgspec.structs.replace(plan, gpu_layers=gpu_layers, cpu_moe_layers=layers - with_experts)


def _most(end: int, good: Callable[[int], bool]) -> int:
    """The largest count up to `end` that is good; more is never better than less."""
    low, high = 0, end + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if good(middle) else (low, middle)
    return low


def launch(
    program: str | None, known: ProgramHelp | None, model: str, plan: LaunchPlan, ledger: Ledger, sizes: Weights
) -> Launch:
    """The command. `program` None: no llama-server was found; `known` None: its help could not be read."""
    line = _Line(known)
    line.add("-m", "--model", value=model)
    line.add("-c", "--ctx-size", value=str(plan.context_length))
    line.add("-np", "--parallel", value=str(plan.slots), must="it would take four slots")
    if plan.threads:
        line.add("-t", "--threads", value=str(plan.threads))
    if line.takes("--load-mode", "mmap"):
        line.add("--load-mode", value="mmap")
    line.add("-fit", value="off", must=None)
    if not plan.repack:
        line.add("--no-repack", "-nr", must="this build may copy weights into memory that cannot be paged back")
    megabytes = -1 if plan.prompt_cache_bytes is None else plan.prompt_cache_bytes // MIB
    line.add("--cache-ram", "-cram", value=str(megabytes))
    if any(one.name == "checkpoints" and one.amount.high_bytes for one in ledger.lines):
        line.add("--ctx-checkpoints", "--swa-checkpoints", value=str(plan.checkpoints))
    _cache_types(line, plan)
    if plan.ubatch_tokens != 512:
        line.add("-b", "--batch-size", value=str(max(2048, plan.ubatch_tokens)))
        line.add("-ub", "--ubatch-size", value=str(plan.ubatch_tokens))
    if plan.gpu_layers is not None:
        _gpu(line, plan, sizes)
    if ledger.ratio_low < 1.0:
        line.add("--defer-experts")
        line.add("--no-warmup")
    line.add("--metrics")
    if known is not None:
        source = f"every flag is in the --help of {program}"
    elif program is not None:
        source = f"flags as of {KNOWN_BUILD}: the --help of {program} could not be read"
    else:
        source = f"flags as of {KNOWN_BUILD}: no llama-server was found; name yours with --backend"
    return Launch((program or "llama-server", *line.arguments), source, tuple(line.notes))


class _Line:
    """A command line in the making; spellings are tried in order."""

    def __init__(self, known: ProgramHelp | None) -> None:
        self._known = known
        self.arguments: list[str] = []
        self.notes: list[str] = []

    def knows(self, spelling: str) -> bool:
        """Whether the program has this flag; of an unknown program, whether llama.cpp has it."""
        return self._known.knows(spelling) if self._known is not None else spelling != "--defer-experts"

    def takes(self, spelling: str, word: str) -> bool:
        """Whether the flag takes this word."""
        return self._known is None or self._known.takes(spelling, word)

    def add(self, *spellings: str, value: str | None = None, must: str | None = None) -> bool:
        """Add the first spelling the program knows; without one, a note when it matters (`must` says why)."""
        for spelling in spellings:
            if self.knows(spelling):
                self.arguments += [spelling] if value is None else [spelling, value]
                return True
        if must is not None:
            self.notes.append(f"this build has no {spellings[0]}: {must}")
        return False


def _cache_types(line: _Line, plan: LaunchPlan) -> None:
    for spelling, long, kind in (
        ("-ctk", "--cache-type-k", plan.cache_type_k),
        ("-ctv", "--cache-type-v", plan.cache_type_v),
    ):
        if kind != "f16":
            line.add(spelling, long, value=kind, must=f"the cache stays f16, not {kind}")
    if KV_TYPES[plan.cache_type_v].block_elements > 1:  # a quantised V needs flash attention
        if line.takes("-fa", "on"):
            line.add("-fa", value="on")
        else:
            line.add("-fa")


def _gpu(line: _Line, plan: LaunchPlan, sizes: Weights) -> None:
    layers = len(sizes.dense_by_layer)
    line.add("-ngl", "--n-gpu-layers", value=str(plan.gpu_layers))
    kept = plan.cpu_moe_layers or 0
    if not kept or not plan.gpu_layers or not sizes.expert_bytes:
        return
    if not line.add("--n-cpu-moe", "-ncmoe", value=str(kept)):
        blocks = "" if kept >= layers else rf"blk\.({'|'.join(map(str, range(kept)))})"
        line.add("-ot", "--override-tensor", value=f"{blocks}{_EXPERT_PATTERN}=CPU")
    line.notes.append(
        "the server may log that overrides are used with mmap and advise --load-mode none: ignore it for a model larger than RAM"
    )
