from __future__ import annotations

import msgspec
from fakes.estimate_facts import GIB, MIB, machine, subject
from fakes.model_stub import stub_header

from moetuned.decide.context_steps import NOTICEABLE_RATIO, longest_context, shorter_steps
from moetuned.decide.ledger import build_ledger
from moetuned.schema.estimate import LaunchPlan, Ledger

MODEL = subject(stub_header("qwen3moe-30b"))
PLAN = LaunchPlan(context_length=16_384)


def builder(ram: int):
    def build(plan: LaunchPlan) -> Ledger:
        return build_ledger(MODEL, plan, machine(ram))

    return build


def test_a_model_that_fits_takes_all_it_was_trained_for():
    found = longest_context(builder(128 * GIB), PLAN, 65_536)
    assert found.context_length == 65_536
    assert "trained" in found.reason
    assert "not searched" in longest_context(builder(512 * GIB), PLAN, None).reason


def test_the_longest_context_costs_less_than_a_point_and_one_step_more_costs_it():
    build = builder(16 * GIB)
    found = longest_context(build, PLAN, 262_144)
    assert PLAN.context_length < found.context_length < 262_144
    asked = build(PLAN).ratio_low
    assert (
        build(msgspec.structs.replace(PLAN, context_length=found.context_length)).ratio_low > asked - NOTICEABLE_RATIO
    )
    longer = msgspec.structs.replace(PLAN, context_length=found.context_length + 256)
    assert build(longer).ratio_low <= asked - NOTICEABLE_RATIO


def test_never_shorter_than_what_was_asked():
    assert longest_context(builder(2 * GIB), PLAN, 262_144).context_length == PLAN.context_length
    odd = msgspec.structs.replace(PLAN, context_length=1000)
    assert longest_context(builder(2 * GIB), odd, 4096).context_length == 1000


def test_steps_say_what_they_free():
    steps = shorter_steps(builder(16 * GIB), PLAN)
    assert [(step.context_length, step.cache_type_k) for step in steps] == [
        (16_384, "q8_0"), (8192, "f16"), (4096, "f16"), (2048, "f16"),
    ]  # fmt: skip
    half = steps[1]
    assert 768 * MIB <= half.frees_bytes < 768 * MIB + 64 * MIB  # half of 1536 MiB of cache, and some mask
    assert [step.frees_bytes for step in steps[1:]] == sorted(step.frees_bytes for step in steps[1:])
    assert steps[-1].ratio_low > builder(16 * GIB)(PLAN).ratio_low


def test_no_step_for_a_short_context():
    plan = LaunchPlan(context_length=1024, cache_type_k="q8_0", cache_type_v="q8_0")
    assert shorter_steps(builder(16 * GIB), plan) == ()
