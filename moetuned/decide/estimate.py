"""The whole estimate from facts: what the ledger, the forecast, the context steps and the flags say together."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from moetuned.decide.context_steps import longest_context, shorter_steps
from moetuned.decide.forecast import forecast
from moetuned.decide.launch_flags import Wishes, choose_plan, launch
from moetuned.decide.ledger import VRAM_MARGIN_BYTES, Subject, build_ledger, default_plan, gpu_split
from moetuned.decide.weights import weights
from moetuned.gguf.experts import ExpertMap, layout
from moetuned.gguf.header import GgufError, Header
from moetuned.gguf.kv_cache import KvSettings, kv_bytes_per_token, kv_cache
from moetuned.gguf.metadata import integer
from moetuned.parse.llama_help import ProgramHelp
from moetuned.schema.estimate import DiskFacts, Estimate, LaunchPlan, Ledger, MachineFacts, Measured
from moetuned.schema.units import format_bytes

PREFERRED_CONTEXT_TOKENS = 16384
"""As the configuration's `context.preferred`."""

LONGEST_CONTEXT_TOKENS = 1 << 24
"""A header that claims more is not believed; the longest published is ten million."""


class ModelFacts(msgspec.Struct, frozen=True):
    """A model by its headers. `path` is what the user named, `present_bytes` what is on the disk."""

    path: str
    parts: tuple[str, ...]
    headers: tuple[Header, ...]
    part_bytes: tuple[int, ...]
    present_bytes: int
    experts: ExpertMap


class Program(msgspec.Struct, frozen=True):
    """The backend's program, as far as it was found and asked."""

    path: str | None = None
    known: ProgramHelp | None = None


def trained_context(header: Header) -> int | None:
    """Tokens of context a model was trained for; None when it does not say, or says what is none."""
    found = integer(header.metadata, f"{header.architecture}.context_length")
    return found if found is not None and 0 < found <= LONGEST_CONTEXT_TOKENS else None


def estimate(
    model: ModelFacts,
    machine: MachineFacts,
    disk: DiskFacts,
    wishes: Wishes,
    program: Program,
    measured: Measured | None = None,
    notes: Sequence[str] = (),
) -> Estimate:
    """All of it. Raises GgufError when there are no tensors or the metadata lacks what the cache depends on, ValueError for impossible wishes."""
    header = model.headers[0]
    sizes = weights(model.headers, model.experts)
    subject = Subject(model.headers, sizes)
    found = layout(model.experts)
    plan = choose_plan(subject, machine, wishes)
    if not any(one.tensors for one in model.headers):
        raise GgufError("it holds no tensors, so there is no model to run; name the file with the weights")

    def build(one: LaunchPlan) -> Ledger:
        return build_ledger(subject, one, machine)

    ledger = build(plan)
    trained = trained_context(header)
    cache = kv_cache(
        header.metadata, KvSettings(plan.context_length, plan.slots, plan.unified, plan.cache_type_k, plan.cache_type_v)
    )
    return Estimate(
        model=model.path,
        parts=model.parts,
        architecture=header.architecture,
        size_bytes=sum(model.part_bytes),
        present_bytes=model.present_bytes,
        layers=found.layers,
        experts=found.experts,
        experts_used=found.experts_used,
        expert_slice_bytes=found.expert_slice_bytes,
        expert_bytes=found.expert_bytes,
        other_bytes=found.other_bytes,
        active_expert_bytes=found.active_expert_bytes,
        kv_bytes_per_token=kv_bytes_per_token(header.metadata, plan.cache_type_k, plan.cache_type_v),
        kv_rough=cache.rough,
        trained_context=trained,
        machine=machine,
        disk=disk,
        plan=plan,
        ledger=ledger,
        defaults=build(
            msgspec.structs.replace(default_plan(plan), gpu_layers=plan.gpu_layers, cpu_moe_layers=plan.cpu_moe_layers)
        ),
        forecast=forecast(header.architecture, sizes, ledger, machine, disk, gpu_split(sizes, plan), measured),
        longest_context=longest_context(build, plan, trained),
        steps=shorter_steps(build, plan),
        launch=launch(program.path, program.known, model.parts[0], plan, ledger, sizes),
        fits=ledger.shortage is None,
        notes=(*notes, *_notes(model, cache.rough, plan, trained)),
    )


def _notes(model: ModelFacts, rough: str | None, plan: LaunchPlan, trained: int | None) -> list[str]:
    notes = []
    if rough is not None:
        notes.append(f"the KV cache is rough: {rough}")
    metadata = model.headers[0].metadata
    if model.headers[0].architecture == "deepseek2" and not integer(metadata, "deepseek2.attention.key_length_mla"):
        notes.append(
            "this file was converted before llama.cpp knew its compressed attention, so its KV cache is about 70 times "
            "larger than need be: download a newer conversion"
        )
    if plan.slots > 1 and not plan.unified:
        each = plan.context_length // plan.slots
        notes.append(
            f"the slots share the context: each of the {plan.slots} gets {each} of the {plan.context_length} tokens"
        )
    if plan.gpu_layers == 0:
        notes.append(
            f"the GPU is left out: beside {format_bytes(VRAM_MARGIN_BYTES)} of margin no block fits in its memory"
        )
    if trained is not None and plan.context_length > trained:
        notes.append(f"the model was trained for {trained} tokens; more than that needs RoPE scaling")
    return notes
