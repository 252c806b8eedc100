"""Machines, disks and models for estimates, all made up."""

from __future__ import annotations

from fakes.gguf_bytes import gguf_bytes, moe_metadata, moe_tensors
from fakes.model_stub import stub_header

from moetuned.decide.estimate import ModelFacts
from moetuned.decide.ledger import Subject
from moetuned.decide.weights import weights
from moetuned.gguf.experts import expert_map
from moetuned.gguf.header import Header, parse_header
from moetuned.schema.estimate import Amount, DiskFacts, MachineFacts

GIB = 1 << 30
MIB = 1 << 20
NVME = DiskFacts("nvme", "nvme0n1", 256 << 10, "/sys/class/bdi/259:0/read_ahead_kb, doubled by llama.cpp")


def exactly(size: int, source: str = "given") -> Amount:
    return Amount(size, size, source)


def machine(ram: int, system: int | Amount = 2 * GIB, **more: object) -> MachineFacts:
    facts = {
        "limit": exactly(ram, "RAM (MemTotal)"),
        "system": exactly(system, "MemTotal - MemAvailable now") if isinstance(system, int) else system,
        "swap": exactly(0, "SwapTotal"),
        "physical_cores": 8,
        "cores_source": "physical cores",
        "cpu_features": ("avx2",),
    }
    return MachineFacts(**(facts | more))


def small_header(**more: object) -> Header:
    """A tiny qwen3moe; `more` are metadata keys as `moe_metadata` takes them."""
    found = parse_header(gguf_bytes(moe_metadata(**more), moe_tensors()))
    assert isinstance(found, Header)
    return found


def subject(header: Header) -> Subject:
    return Subject((header,), weights((header,), expert_map((header,), (header.promised_bytes,))))


def model_facts(name: str) -> ModelFacts:
    """A published model, all in one file that is not here yet."""
    header = stub_header(name)
    size = header.promised_bytes
    path = f"/models/{name}.gguf"
    return ModelFacts(path, (path,), (header,), (size,), header.data_offset, expert_map((header,), (size,)))
