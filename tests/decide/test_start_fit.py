"""What a backend is started with when what was asked for cannot fit."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from fakes.estimate_facts import GIB, machine, subject
from fakes.model_stub import stub_header
from hypothesis import given, settings
from hypothesis import strategies as st

from moetuned.decide.start_fit import StartFacts, StartFit, known_flags, start_fit
from moetuned.decide.supervision import LaunchPlan
from moetuned.parse.launch_memory_flags import MemoryFlags
from moetuned.parse.llama_help import parse_help
from moetuned.schema.backend_description import BackendDescription

QWEN = subject(stub_header("qwen3moe-30b"))
HELP = parse_help("-m, --model FNAME\n--repack, -nr, --no-repack\n-np, --parallel N\n--cache-ram N\n")
COMMAND = ("s", "-m", "{model}", "-c", "{context}", "--cache-ram", "{prompt_cache_mib}")


def fit(limit: int, plan: LaunchPlan, command: tuple[str, ...] = COMMAND, **said: Any) -> StartFit:
    flags = said.pop("flags", MemoryFlags(repacks=False))
    minimum = said.pop("minimum", 2048)
    cpu = said.pop("cpu", ())
    described = BackendDescription(
        context_length=plan.context_length, slots=1, prompt_cache_mib=plan.prompt_cache_mib, **said
    )
    here = msgspec.structs.replace(machine(limit), cpu_features=cpu)
    return start_fit(QWEN, here, StartFacts(command, plan, minimum, described, flags, HELP))


def test_what_fits_is_started_as_it_is() -> None:
    plan = LaunchPlan(16384, 512)
    assert fit(16 * GIB, plan) == StartFit(COMMAND, plan)


def test_a_context_that_cannot_fit_is_made_shorter_and_leaves_room() -> None:
    found = fit(8 * GIB, LaunchPlan(262144, 0))
    assert 2048 <= found.plan.context_length < 262144
    assert found.plan.context_length % 256 == 0
    assert found.fits
    assert found.changes == (f"context 262144 -> {found.plan.context_length}",)
    assert "more than there is of 8.0 GiB" in (found.why or "")
    again = fit(8 * GIB, found.plan)
    assert again.why is None


def test_never_below_the_minimum_and_it_says_that_it_does_not_fit() -> None:
    found = fit(8 * GIB, LaunchPlan(262144, 0), minimum=200000)
    assert found.plan.context_length == 200000
    assert not found.fits
    assert "with all that can be changed still" in (found.why or "")


def test_a_prompt_cache_larger_than_all_that_is_left() -> None:
    found = fit(4 * GIB, LaunchPlan(8192, 8192))
    assert found.plan.context_length == 8192
    assert found.plan.prompt_cache_mib is not None
    assert 64 <= found.plan.prompt_cache_mib <= 1024
    assert found.fits
    fixed = fit(4 * GIB, LaunchPlan(8192, 8192), ("s", "-c", "{context}", "--cache-ram", "8192"))
    assert (fixed.plan, fixed.changes, fixed.fits) == (LaunchPlan(8192, 8192), (), False)


def test_a_context_that_is_made_to_fit_leaves_something_to_the_prompt_cache() -> None:
    found = fit(8 * GIB, LaunchPlan(262144, 8192))
    assert [change.split()[0] for change in found.changes] == ["context", "prompt"]
    assert found.plan.context_length == fit(8 * GIB, LaunchPlan(262144, 0)).plan.context_length
    assert found.plan.prompt_cache_mib is not None
    assert 256 <= found.plan.prompt_cache_mib <= 1024


def test_copies_of_weights_that_cannot_fit_are_not_made() -> None:
    flags = MemoryFlags(repacks=True)
    found = fit(8 * GIB, LaunchPlan(8192, 0), flags=flags, cpu=("avx2",))
    assert found.command == (*COMMAND, "--no-repack")
    assert found.plan == LaunchPlan(8192, 0)
    assert "--no-repack" in found.changes[0]
    assert fit(64 * GIB, LaunchPlan(8192, 0), flags=flags, cpu=("avx2",)).why is None
    assert fit(8 * GIB, LaunchPlan(8192, 0), flags=flags).why is None, "what the CPU repacks is not known"


@pytest.mark.parametrize(
    ("words", "left"), [(("--mlock",), ()), (("--load-mode", "mlock"), ("--load-mode", "mmap")), (("--no-mmap",), ())]
)
def test_locked_or_copied_weights_that_cannot_fit_are_mapped(words: tuple[str, ...], left: tuple[str, ...]) -> None:
    flags = MemoryFlags(repacks=False, locks=True)
    found = fit(8 * GIB, LaunchPlan(8192, 0), (*COMMAND, *words), flags=flags)
    assert found.command == (*COMMAND, *left)
    assert found.fits
    assert fit(64 * GIB, LaunchPlan(8192, 0), (*COMMAND, *words), flags=flags).why is None


def test_what_is_not_known_changes_nothing() -> None:
    plan = LaunchPlan(262144, 8192)
    assert fit(4 * GIB, plan, flags=MemoryFlags(gpu=True)) == StartFit(COMMAND, plan)
    assert fit(4 * GIB, plan, cache_type_k="turbo3") == StartFit(COMMAND, plan)
    unsaid = StartFacts(COMMAND, plan, 2048, BackendDescription(), MemoryFlags())
    assert start_fit(QWEN, machine(4 * GIB), unsaid) == StartFit(COMMAND, plan)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 64), st.integers(256, 300000), st.integers(0, 1 << 17), st.integers(256, 100000), st.booleans())
def test_never_more_than_was_asked_for(limit: int, context: int, cache: int, minimum: int, locks: bool) -> None:
    plan = LaunchPlan(context, cache)
    found = fit(limit * GIB, plan, minimum=minimum, flags=MemoryFlags(repacks=False, locks=locks))
    assert min(minimum, context) <= found.plan.context_length <= context
    assert found.plan.prompt_cache_mib is not None
    assert 0 <= found.plan.prompt_cache_mib <= cache
    assert (found.why is None) <= (found.plan == plan and found.fits)
    assert bool(found.changes) <= (found.why is not None)


def test_a_flag_that_the_program_does_not_know_is_left_out() -> None:
    command = ("s", "-np", "{slots}", "--ctx-checkpoints", "{checkpoints}", "--cache-type-k={cache_type}", "--odd", "1")
    assert known_flags(command, HELP) == (
        ("s", "-np", "{slots}", "--odd", "1"),
        ("--ctx-checkpoints", "--cache-type-k"),
    )
    fitting = parse_help("--ctx-checkpoints N\n-np N\n--cache-type-k TYPE\n")
    assert known_flags(command, fitting) == (command, ())
    assert known_flags(("{slots}",), HELP) == (("{slots}",), ())
