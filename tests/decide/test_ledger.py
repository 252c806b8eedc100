from __future__ import annotations

import msgspec
import pytest
from fakes.estimate_facts import GIB, MIB, exactly, machine, subject
from fakes.model_metadata import MODELS
from fakes.model_stub import stub_header
from hypothesis import given, settings
from hypothesis import strategies as st

from moetuned.decide.ledger import Subject, build_ledger, default_plan, gpu_split, held
from moetuned.gguf.header import GgufError
from moetuned.schema.estimate import LaunchPlan, Ledger

QWEN_30B = subject(stub_header("qwen3moe-30b"))
QWEN_235B = subject(stub_header("qwen3moe-235b"))
PLAN = LaunchPlan(context_length=16_384)


def line(ledger: Ledger, name: str, place: str = "ram"):
    found = [each.amount for each in ledger.lines if (each.name, each.place) == (name, place)]
    assert len(found) <= 1
    return found[0] if found else None


def test_every_line_says_where_it_comes_from():
    ledger = build_ledger(QWEN_235B, default_plan(PLAN), machine(64 * GIB))
    assert all(each.amount.source for each in ledger.lines)
    assert ledger.room.source
    assert all(each.amount.low_bytes <= each.amount.high_bytes for each in ledger.lines)


def test_what_is_left_caches_experts():
    ledger = build_ledger(QWEN_235B, PLAN, machine(64 * GIB))
    taken = sum(each.amount.high_bytes for each in ledger.lines)
    assert ledger.room.low_bytes == 64 * GIB - taken
    assert ledger.ratio_low == ledger.room.low_bytes / QWEN_235B.weights.expert_bytes
    assert 0.3 < ledger.ratio_low < ledger.ratio_high < 0.5
    assert ledger.shortage is None


def test_a_model_that_fits_has_all_of_its_experts():
    ledger = build_ledger(QWEN_30B, PLAN, machine(64 * GIB))
    assert (ledger.ratio_low, ledger.ratio_high) == (1.0, 1.0)
    assert ledger.room.low_bytes == QWEN_30B.weights.expert_bytes


def test_the_cache_is_llama_cpps():
    ledger = build_ledger(QWEN_30B, msgspec.structs.replace(PLAN, context_length=131_072), machine(64 * GIB))
    assert line(ledger, "kv_cache").low_bytes == 12_288 * MIB


def test_the_defaults_cost_a_prompt_cache_and_copies():
    ledger = build_ledger(QWEN_30B, default_plan(PLAN), machine(32 * GIB))
    assert line(ledger, "prompt_cache").high_bytes == 8 * GIB
    assert line(ledger, "prompt_cache").low_bytes == 0
    # gate and up are Q4_K, which AVX2 repacks; down is Q6_K, which it does not
    assert 0.5 < line(ledger, "repacked").low_bytes / QWEN_30B.weights.expert_bytes < 0.7
    plain = build_ledger(QWEN_30B, PLAN, machine(32 * GIB))
    assert line(plain, "repacked").high_bytes == 0
    assert line(ledger, "every_token").low_bytes < line(plain, "every_token").low_bytes


def test_copies_are_in_memory_so_they_are_not_missing():
    plan = msgspec.structs.replace(PLAN, repack=True)
    ledger = build_ledger(QWEN_30B, plan, machine(64 * GIB))
    assert ledger.ratio_low == 1.0
    assert ledger.room.high_bytes < QWEN_30B.weights.expert_bytes


def test_an_unknown_cpu_may_copy_nothing_or_all_experts():
    ledger = build_ledger(QWEN_30B, default_plan(PLAN), machine(64 * GIB, cpu_features=()))
    assert line(ledger, "repacked").low_bytes == 0
    assert line(ledger, "repacked").high_bytes == QWEN_30B.weights.expert_bytes


@pytest.mark.parametrize(
    ("name", "each"), [("qwen3next", 36 * 548_864 * 4), ("gpt-oss-120b", 18 * 2048 * 768), ("qwen3moe-30b", 0)]
)
def test_checkpoints_keep_windows_and_recurrent_state(name: str, each: int):
    header = msgspec.structs.replace(stub_header("qwen3moe-30b"), metadata=MODELS[name])
    plan = msgspec.structs.replace(PLAN, checkpoints=3, slots=2)
    ledger = build_ledger(Subject((header,), QWEN_30B.weights), plan, machine(64 * GIB))
    assert line(ledger, "checkpoints").high_bytes == each * 3 * 2


def test_an_unlimited_prompt_cache_says_what_it_assumes():
    plan = msgspec.structs.replace(PLAN, prompt_cache_bytes=None)
    assert "no limit" in line(build_ledger(QWEN_30B, plan, machine(64 * GIB)), "prompt_cache").source


@pytest.mark.parametrize(
    ("ram", "says"),
    [
        (3 * GIB // 2, "the backend's own memory is at least"),
        (5 * GIB, "every token reads 4.2 GiB of weights that do not stay in memory"),
    ],
)
def test_what_does_not_fit_is_said_in_a_sentence(ram: int, says: str):
    plan = msgspec.structs.replace(PLAN, context_length=4096)
    ledger = build_ledger(QWEN_235B, plan, machine(ram, system=GIB))
    assert ledger.shortage is not None
    assert says in ledger.shortage


def test_a_doubt_is_no_refusal():
    plan = msgspec.structs.replace(PLAN, prompt_cache_bytes=8 * GIB)
    assert build_ledger(QWEN_30B, plan, machine(8 * GIB)).shortage is None


def test_the_gpu_takes_blocks_from_the_end_and_experts_behind_the_first():
    layers = len(QWEN_30B.weights.dense_by_layer)
    all_of_it = gpu_split(QWEN_30B.weights, msgspec.structs.replace(PLAN, gpu_layers=layers + 1, cpu_moe_layers=0))
    assert all_of_it.dense_bytes == QWEN_30B.weights.every_token_bytes
    assert all_of_it.expert_bytes == QWEN_30B.weights.expert_bytes
    some = gpu_split(QWEN_30B.weights, msgspec.structs.replace(PLAN, gpu_layers=12, cpu_moe_layers=layers - 4))
    assert some.dense_bytes == sum(QWEN_30B.weights.dense_by_layer[-12:])
    assert some.expert_bytes == sum(QWEN_30B.weights.experts_by_layer[-4:])
    assert some.cache_share == 12 / layers


def test_what_is_on_the_gpu_is_not_in_ram():
    layers = len(QWEN_30B.weights.dense_by_layer)
    plan = msgspec.structs.replace(PLAN, gpu_layers=layers + 1, cpu_moe_layers=layers - 8)
    ledger = build_ledger(QWEN_30B, plan, machine(16 * GIB, vram=exactly(12 * GIB)))
    assert line(ledger, "kv_cache").low_bytes == 0
    assert line(ledger, "kv_cache_gpu", "vram").low_bytes == 1536 * MIB
    assert line(ledger, "every_token").low_bytes == 0
    assert held(ledger, "vram").low_bytes > 1536 * MIB
    small = build_ledger(QWEN_30B, plan, machine(16 * GIB, vram=exactly(2 * GIB)))
    assert small.shortage is not None
    assert "on the GPU do not fit in 2.0 GiB" in small.shortage


@settings(deadline=None)
@given(st.integers(1, 512), st.integers(0, 16), st.integers(256, 131_072), st.booleans(), st.integers(1, 8))
def test_more_memory_is_never_worse(gib: int, system: int, context: int, repack: bool, slots: int):
    plan = msgspec.structs.replace(PLAN, context_length=context, repack=repack, slots=slots)
    less = build_ledger(QWEN_235B, plan, machine(gib * GIB, system * GIB))
    more = build_ledger(QWEN_235B, plan, machine((gib + 1) * GIB, system * GIB))
    assert 0.0 <= less.ratio_low <= less.ratio_high <= 1.0
    assert less.ratio_low <= more.ratio_low
    assert less.ratio_high <= more.ratio_high
    assert less.room.high_bytes <= QWEN_235B.weights.expert_bytes


def test_copies_are_named_as_the_cause_where_they_are():
    ledger = build_ledger(QWEN_235B, default_plan(PLAN), machine(32 * GIB))
    assert "copies of weights that --no-repack avoids" in (ledger.shortage or "")
    assert "shorter context" not in (ledger.shortage or "")


@pytest.mark.parametrize(
    "key", ["attention.head_count", "attention.head_count_kv", "attention.key_length", "expert_feed_forward_length"]
)
def test_sizes_that_no_model_has_are_an_error(key: str):
    header = stub_header("qwen3moe-30b")
    header = msgspec.structs.replace(header, metadata=header.metadata | {f"qwen3moe.{key}": 1 << 63})
    with pytest.raises(GgufError, match="download the file again"):
        build_ledger(Subject((header,), QWEN_30B.weights), PLAN, machine(64 * GIB))
