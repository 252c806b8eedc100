from __future__ import annotations

import pathlib

import msgspec
import pytest
from fakes.estimate_facts import GIB, MIB, exactly, machine, subject
from fakes.model_stub import stub_header

from moetuned.decide.launch_flags import Wishes, choose_plan, launch
from moetuned.decide.ledger import VRAM_MARGIN_BYTES, build_ledger
from moetuned.parse.llama_help import parse_help
from moetuned.schema.estimate import MachineFacts

B11434 = parse_help((pathlib.Path(__file__).parent.parent / "data" / "help" / "llama-server-b11434.txt").read_text())
IK = parse_help(
    "-m,    --model FNAME   model\n-c,    --ctx-size N    context\n-np,   --parallel N    slots\n-t,    --threads N   threads\n"
    "--no-mmap    do not map\n-fa,   --flash-attn    flash\n-ctk,  --cache-type-k TYPE   k\n-ctv,  --cache-type-v TYPE   v\n"
    "-ngl,  --gpu-layers N   layers\n-ot,   --override-tensor STR   place\n--defer-experts   later\n--no-warmup   none\n"
)
SMALL, LARGE = subject(stub_header("qwen3moe-30b")), subject(stub_header("qwen3moe-235b"))
WISHES = Wishes(context_length=16_384)


def command(model, facts: MachineFacts, known=B11434, wishes: Wishes = WISHES):
    plan = choose_plan(model, facts, wishes)
    return launch("/bin/llama-server", known, "/m.gguf", plan, build_ledger(model, plan, facts), model.weights)


def value(arguments: tuple[str, ...], flag: str) -> str:
    return arguments[arguments.index(flag) + 1]


def test_larger_than_ram():
    found = command(LARGE, machine(64 * GIB))
    flags = found.command
    assert flags[:3] == ("/bin/llama-server", "-m", "/m.gguf")
    assert value(flags, "-c") == "16384"
    assert value(flags, "-np") == "1"
    assert value(flags, "-t") == "8"
    assert value(flags, "--load-mode") == "mmap"
    assert value(flags, "-fit") == "off"
    assert value(flags, "--cache-ram") == "512"
    assert value(flags, "-ub") == "2048"
    assert {"--no-repack", "--no-warmup", "--metrics"} <= set(flags)
    assert not {"--defer-experts", "--ctx-checkpoints", "-ctk", "-ngl", "--mlock", "--no-mmap"} & set(flags)
    assert found.source == "every flag is in the --help of /bin/llama-server"


def test_every_flag_is_one_the_build_lists():
    for facts in (machine(64 * GIB), machine(64 * GIB, vram=exactly(12 * GIB)), machine(512 * GIB)):
        for known in (B11434, IK):
            flags = command(LARGE, facts, known, msgspec.structs.replace(WISHES, cache_type_v="q8_0")).command[1:]
            assert all(known.knows(flag) for flag in flags if flag.startswith("-") and not flag[1:].isdigit())


def test_repacking_stays_on_where_the_copies_fit():
    assert "--no-repack" not in command(SMALL, machine(64 * GIB)).command
    assert "--no-repack" in command(SMALL, machine(16 * GIB)).command
    assert "--no-repack" in command(SMALL, machine(64 * GIB, cpu_features=())).command
    assert "-ub" not in command(SMALL, machine(64 * GIB)).command


def test_an_older_build_is_told_what_it_lacks():
    found = command(LARGE, machine(64 * GIB), IK)
    assert "--defer-experts" in found.command
    assert "--load-mode" not in found.command
    assert any("--no-repack" in note for note in found.notes)


def test_a_quantised_v_needs_flash_attention():
    wishes = msgspec.structs.replace(WISHES, cache_type_k="q8_0", cache_type_v="q8_0")
    assert value(command(LARGE, machine(64 * GIB), B11434, wishes).command, "-fa") == "on"
    bare = command(LARGE, machine(64 * GIB), IK, wishes).command
    assert bare[bare.index("-fa") + 1 :][:1] != ("on",)
    assert value(bare, "-ctk") == "q8_0"


@pytest.mark.parametrize(("gib", "mebibytes"), [(1, "0"), (4, "128"), (8, "256"), (64, "512")])
def test_the_prompt_cache_suits_the_memory(gib: int, mebibytes: str):
    assert value(command(LARGE, machine(gib * GIB)).command, "--cache-ram") == mebibytes
    asked = msgspec.structs.replace(WISHES, prompt_cache_bytes=100 * MIB)
    assert value(command(LARGE, machine(gib * GIB), B11434, asked).command, "--cache-ram") == "100"


def test_a_gpu_gets_what_fits_and_no_more():
    facts = machine(64 * GIB, vram=exactly(24 * GIB))
    plan = choose_plan(LARGE, facts, WISHES)
    layers = len(LARGE.weights.dense_by_layer)
    assert plan.gpu_layers == layers + 1
    assert 0 < plan.cpu_moe_layers < layers

    def in_vram(cpu_moe_layers: int) -> int:
        tried = msgspec.structs.replace(plan, cpu_moe_layers=cpu_moe_layers, ubatch_tokens=512)
        return sum(line.amount.high_bytes for line in build_ledger(LARGE, tried, facts).lines if line.place == "vram")

    assert in_vram(plan.cpu_moe_layers) <= 24 * GIB - VRAM_MARGIN_BYTES < in_vram(plan.cpu_moe_layers - 1)
    flags = command(LARGE, facts).command
    assert value(flags, "--n-cpu-moe") == str(plan.cpu_moe_layers)
    assert any("ignore it" in note for note in command(LARGE, facts).notes)


def test_without_n_cpu_moe_a_pattern_does_the_same():
    facts = machine(64 * GIB, vram=exactly(24 * GIB))
    kept = choose_plan(LARGE, facts, WISHES).cpu_moe_layers
    pattern = value(command(LARGE, facts, IK).command, "-ot")
    assert pattern.startswith(r"blk\.(0|1|2|")
    assert pattern.endswith(rf"|{kept - 1})\.ffn_(up|down|gate|gate_up)_(ch|)exps=CPU")


def test_a_small_gpu_gets_fewer_blocks_a_tiny_one_none():
    layers = len(LARGE.weights.dense_by_layer)
    some = choose_plan(LARGE, machine(64 * GIB, vram=exactly(4 * GIB)), WISHES)
    assert 0 < some.gpu_layers < layers
    assert some.cpu_moe_layers == layers
    assert choose_plan(LARGE, machine(64 * GIB, vram=exactly(GIB)), WISHES).gpu_layers == 0


def test_without_a_program_it_says_so():
    plan = choose_plan(LARGE, machine(64 * GIB), WISHES)
    ledger = build_ledger(LARGE, plan, machine(64 * GIB))
    found = launch(None, None, "/m.gguf", plan, ledger, LARGE.weights)
    assert found.command[0] == "llama-server"
    assert "no llama-server was found" in found.source
    assert "could not be read" in launch("/bin/x", None, "/m.gguf", plan, ledger, LARGE.weights).source
