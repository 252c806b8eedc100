from __future__ import annotations

import msgspec
import pytest
from fakes.estimate_facts import GIB, NVME, exactly, machine, subject
from fakes.model_stub import stub_header
from hypothesis import given, settings
from hypothesis import strategies as st

from moetuned.decide.forecast import amplification, compute_rate, fault_rate, forecast, miss_share, word
from moetuned.decide.ledger import Split, Subject, build_ledger, gpu_split
from moetuned.schema.estimate import Amount, LaunchPlan, Measured, Rate

MODEL = subject(stub_header("qwen3moe-235b"))
PLAN = LaunchPlan(context_length=16_384)


def cast(ram: int, disk=NVME, measured: Measured | None = None, plan: LaunchPlan = PLAN, **more: object):
    facts = machine(ram, **more)
    ledger = build_ledger(MODEL, plan, facts)
    return forecast("qwen3moe", MODEL.weights, ledger, facts, disk, gpu_split(MODEL.weights, plan), measured)


@pytest.mark.parametrize(
    ("ratio", "label"), [(1.0, "close to in-memory"), (0.7, "close to in-memory"), (0.69, "usable, depends on the topic"),
                         (0.4, "usable, depends on the topic"), (0.39, "slow"), (0.0, "slow")]
)  # fmt: skip
def test_the_familiar_words(ratio: float, label: str):
    assert word(ratio)[0] == label


@pytest.mark.parametrize(
    ("architecture", "ratio", "hit"),
    [
        # Published hit rates (docs/estimate.md) lie inside the range.
        ("qwen3moe", 0.40, 0.90),
        ("qwen3moe", 0.40, 0.95),
        ("qwen3next", 0.36, 0.62),
        ("qwen3next", 0.37, 0.92),
        ("qwen35moe", 0.36, 0.83),
        ("glm-dsa", 0.30, 0.51),
    ],
)
def test_published_hit_rates_are_inside(architecture: str, ratio: float, hit: float):
    miss = miss_share(architecture, ratio, ratio)
    assert miss.low <= 1 - hit + 0.02
    assert miss.high >= 1 - hit


def test_nothing_is_missing_when_all_fits():
    assert (miss_share("qwen3moe", 1.0, 1.0).low, miss_share("qwen3moe", 1.0, 1.0).high) == (0.0, 0.0)
    assert miss_share(None, 0.0, 0.0).low == 1.0


def test_amplification_as_measured():
    # 432 KiB slices: 23.0 GB where 1.17 GB would do at 8 MiB read-ahead, 1.38 GB at 128 KiB.
    assert amplification(432 << 10, 8192 << 10) == pytest.approx(23.0 / 1.17, rel=0.05)
    assert amplification(432 << 10, 128 << 10) > 1.38 / 1.17


def test_the_disk_is_slower_at_the_size_of_a_fault():
    given_rate = msgspec.structs.replace(NVME, sequential_bytes_per_second=4.13e9)
    small = fault_rate(msgspec.structs.replace(given_rate, window_bytes=128 << 10), 1)
    large = fault_rate(msgspec.structs.replace(given_rate, window_bytes=8 << 20), 1)
    # An NVMe disk of 4.13 GB/s gave 0.625 GB/s in random 128 KiB reads, one at a time, and 4.13 in 8 MiB ones.
    assert small.low_bytes_per_second <= 0.625e9 <= small.high_bytes_per_second
    assert large.low_bytes_per_second <= 4.13e9 <= large.high_bytes_per_second * 1.001
    assert "--disk-read" in small.source


def test_a_measured_disk_is_taken_as_it_is():
    rate = Rate(1e9, 2e9, "measured")
    assert fault_rate(msgspec.structs.replace(NVME, rate=rate), 4) == rate
    plain, known = cast(64 * GIB), cast(64 * GIB, msgspec.structs.replace(NVME, rate=rate))
    assert known.disk_bytes_per_token.high_bytes < plain.disk_bytes_per_token.high_bytes


def test_cores_that_others_use_are_not_promised():
    idle, busy = compute_rate(4, None), compute_rate(4, 12.0)
    assert busy.low_bytes_per_second == idle.low_bytes_per_second / 4
    assert busy.high_bytes_per_second == idle.high_bytes_per_second
    assert "load 12.0 now" in busy.source
    assert compute_rate(None, None).high_bytes_per_second > compute_rate(4, None).high_bytes_per_second


def test_the_daemons_figure_replaces_the_curve():
    few = cast(64 * GIB, measured=Measured(500e6, 150))
    many = cast(64 * GIB, measured=Measured(500e6, 400))
    assert few == cast(64 * GIB)
    assert many.disk_bytes_per_token.low_bytes < 500e6 < many.disk_bytes_per_token.high_bytes
    assert "measured by the daemon over 400 tokens" in many.miss.source
    assert many.miss.high < few.miss.high


def test_weights_of_every_token_that_do_not_stay_are_read_each_time():
    short = cast(7 * GIB, system=GIB)
    assert short.disk_bytes_per_token.low_bytes > MODEL.weights.active_expert_bytes
    assert short.word == "slow"


def test_a_gpu_helps():
    layers = len(MODEL.weights.dense_by_layer)
    plan = msgspec.structs.replace(PLAN, gpu_layers=layers + 1, cpu_moe_layers=layers - 10)
    with_gpu, without = cast(64 * GIB, plan=plan, vram=exactly(24 * GIB)), cast(64 * GIB)
    assert with_gpu.tokens_per_second_high > without.tokens_per_second_high
    assert with_gpu.active_expert_bytes < without.active_expert_bytes
    assert gpu_split(MODEL.weights, PLAN) == Split()


@settings(deadline=None)
@given(
    st.integers(1, 300),
    st.integers(4, 16384),
    st.sampled_from(["nvme", "ssd", "hard disk", "unknown"]),
    st.integers(1, 64),
)
def test_a_range_is_a_range(gib: int, window_kib: int, kind: str, cores: int):
    disk = msgspec.structs.replace(NVME, kind=kind, window_bytes=window_kib << 10)
    found = cast(gib * GIB, disk, system=GIB, physical_cores=cores)
    assert 0 < found.tokens_per_second_low <= found.tokens_per_second_high
    assert found.disk_bytes_per_token.low_bytes <= found.disk_bytes_per_token.high_bytes
    assert 0.0 <= found.miss.low <= found.miss.high <= 1.0
    assert 0 < found.disk.low_bytes_per_second <= found.disk.high_bytes_per_second


def dense_cast(ram: int, **more: object):
    whole = msgspec.structs.replace(
        MODEL.weights, experts_by_layer=(0,) * len(MODEL.weights.dense_by_layer), active_expert_bytes=0, slice_bytes=0
    )
    facts, plan = machine(ram, **more), LaunchPlan(context_length=4096, gpu_layers=None)
    ledger = build_ledger(Subject(MODEL.headers, whole), plan, facts)
    assert ledger.shortage is None
    return forecast("llama", whole, ledger, facts, NVME, Split())


def test_a_model_without_experts_is_in_memory_only_when_it_surely_stays():
    assert dense_cast(64 * GIB).word == "in memory"
    narrow = dense_cast(8 * GIB, system=Amount(GIB, 3 * GIB, "assumed"))
    assert narrow.disk_bytes_per_token.high_bytes > 0
    assert narrow.word == "may not stay in memory"
    assert "again for every token" in narrow.advice


def test_what_the_gpu_was_taken_to_do_is_said():
    layers = len(MODEL.weights.dense_by_layer)
    plan = msgspec.structs.replace(PLAN, gpu_layers=layers + 1, cpu_moe_layers=0)
    found = cast(64 * GIB, plan=plan, vram=exactly(200 * GIB))
    assert found.gpu is not None
    assert "assumed" in found.gpu.source
    assert found.limited_by == "the GPU"
    assert cast(64 * GIB).gpu is None
