from __future__ import annotations

import msgspec
import pytest
from fakes.estimate_facts import GIB, NVME, exactly, machine, model_facts
from fakes.gguf_bytes import gguf_bytes
from fakes.model_metadata import MODELS
from fakes.model_stub import SHAPES

from moetuned.decide.estimate import Program, estimate, trained_context
from moetuned.decide.launch_flags import Wishes
from moetuned.gguf.header import GgufError, Header, parse_header

WISHES = Wishes(context_length=16_384)


@pytest.mark.parametrize("name", SHAPES)
def test_everything_fits_together(name: str):
    found = estimate(model_facts(name), machine(64 * GIB), NVME, WISHES, Program())
    assert found.expert_bytes + found.other_bytes == found.size_bytes
    assert found.fits is (found.ledger.shortage is None)
    assert found.plan.context_length == 16_384
    assert found.defaults.room.high_bytes <= found.ledger.room.high_bytes or found.plan.repack
    assert found.trained_context == SHAPES[name]["context"]
    assert found.launch.command[0] == "llama-server"


def test_json_has_the_two_integers():
    found = estimate(model_facts("qwen3moe-30b"), machine(64 * GIB), NVME, WISHES, Program())
    plain = msgspec.json.decode(msgspec.json.encode(found))
    assert type(plain["expert_bytes"]) is int
    assert type(plain["other_bytes"]) is int


def test_notes_say_what_is_unusual():
    facts = model_facts("mixtral-8x7b")
    found = estimate(facts, machine(64 * GIB), NVME, Wishes(65_536), Program(), notes=("first",))
    assert found.notes[0] == "first"
    assert any("trained for 32768" in note for note in found.notes)


def test_a_conversion_without_compressed_attention_is_named():
    metadata = {key: value for key, value in MODELS["deepseek2"].items() if not key.endswith("_mla")}
    facts = model_facts("qwen3moe-30b")
    header = msgspec.structs.replace(facts.headers[0], metadata=metadata)
    found = estimate(
        msgspec.structs.replace(facts, headers=(header,)), machine(900 * GIB), NVME, Wishes(4096), Program()
    )
    assert any("download a newer conversion" in note for note in found.notes)


def test_a_header_without_attention_keys_is_an_error():
    header = parse_header(gguf_bytes({"general.architecture": "qwen3moe", "qwen3moe.block_count": 2}))
    assert isinstance(header, Header)
    assert trained_context(header) is None
    facts = msgspec.structs.replace(model_facts("qwen3moe-30b"), headers=(header,))
    with pytest.raises(GgufError, match=r"attention\.head_count"):
        estimate(facts, machine(64 * GIB), NVME, WISHES, Program())


def test_a_file_without_tensors_is_no_model():
    facts = model_facts("qwen3moe-30b")
    empty = msgspec.structs.replace(facts, headers=(msgspec.structs.replace(facts.headers[0], tensors=()),))
    with pytest.raises(GgufError, match="no tensors"):
        estimate(empty, machine(64 * GIB), NVME, WISHES, Program())


@pytest.mark.parametrize("claimed", [0, (1 << 24) + 1, 1 << 64, "long", -1])
def test_a_trained_context_that_is_none_is_unknown(claimed: object):
    facts = model_facts("qwen3moe-30b")
    header = facts.headers[0]
    header = msgspec.structs.replace(header, metadata=header.metadata | {"qwen3moe.context_length": claimed})
    assert trained_context(header) is None
    found = estimate(msgspec.structs.replace(facts, headers=(header,)), machine(64 * GIB), NVME, WISHES, Program())
    assert not any("trained for" in note for note in found.notes)


def test_a_gpu_that_is_too_small_is_said_so():
    found = estimate(model_facts("qwen3moe-30b"), machine(64 * GIB, vram=exactly(600 << 20)), NVME, WISHES, Program())
    assert found.plan.gpu_layers == 0
    assert any("the GPU is left out" in note for note in found.notes)


def test_slots_share_the_context():
    facts, wishes = model_facts("qwen3moe-30b"), Wishes(16_384, slots=4)
    assert any(
        "each of the 4 gets 4096" in n for n in estimate(facts, machine(64 * GIB), NVME, wishes, Program()).notes
    )
    assert not any("slots" in n for n in estimate(facts, machine(64 * GIB), NVME, WISHES, Program()).notes)
