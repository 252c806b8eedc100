"""Estimates for golden screens: published models on made-up machines."""

from __future__ import annotations

import pathlib
from collections.abc import Callable

import msgspec
from fakes.estimate_facts import GIB, NVME, exactly, machine, model_facts

from moetuned.decide.estimate import Program, estimate
from moetuned.decide.launch_flags import Wishes
from moetuned.parse.llama_help import parse_help
from moetuned.schema.estimate import Amount, Estimate, Exact, Rate

HELP = pathlib.Path(__file__).parent.parent / "data" / "help" / "llama-server-b11434.txt"
SERVER = Program("/usr/bin/llama-server", parse_help(HELP.read_text()))
WISHES = Wishes(context_length=16_384)
MEASURED_DISK = msgspec.structs.replace(
    NVME, rate=Rate(0.9e9, 2.6e9, "measured: slices of 1.2 MiB, 1.2 GB/s and 2.0 GB/s with 1 and 8 readers")
)


def streams() -> Estimate:
    return estimate(model_facts("qwen3moe-235b"), machine(64 * GIB), MEASURED_DISK, WISHES, SERVER)


def fits() -> Estimate:
    return estimate(model_facts("qwen3moe-30b"), machine(64 * GIB), NVME, WISHES, SERVER)


def does_not_fit() -> Estimate:
    return estimate(model_facts("qwen3moe-235b"), machine(6 * GIB), NVME, WISHES, SERVER)


def another_machine_with_a_gpu() -> Estimate:
    facts = machine(
        32 * GIB,
        limit=exactly(32 * GIB, "--ram"),
        system=Amount(GIB, 3 * GIB, "assumed: without a desktop, with one"),
        swap=exactly(0, "unknown for another machine"),
        vram=exactly(12 * GIB, "--vram"),
    )
    disk = msgspec.structs.replace(NVME, kind_source="--disk-read", sequential_bytes_per_second=3.5 * GIB)
    found = estimate(model_facts("qwen3moe-235b"), facts, disk, WISHES, Program())
    return msgspec.structs.replace(
        found, exact=Exact(0, 3 * GIB, 900 << 20, "/usr/bin/llama-fit-params, in whole MiB"), notes=("a note",)
    )


SCENES: dict[str, Callable[[], Estimate]] = {
    "estimate_streams": streams,
    "estimate_fits": fits,
    "estimate_does_not_fit": does_not_fit,
    "estimate_another_machine_with_a_gpu": another_machine_with_a_gpu,
}
