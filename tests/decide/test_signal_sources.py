from __future__ import annotations

import msgspec
import pytest
from detector_scenes import FACTS, backend

from moetuned.decide.facts import BackendFacts
from moetuned.decide.signal_sources import Sight, why_unknown
from moetuned.decide.signals import signal_functions
from moetuned.schema.sample import BackendHttp, BackendSample, CgroupMemory, ProcessCounters, Residency

KNOWN = BackendSample(
    "one",
    process=ProcessCounters(7, 1, read_bytes=1, cpu_ticks=1, rss_anon_bytes=1),
    http=backend().http,
    cgroup=CgroupMemory(2),
    cgroup_directory="/sys/fs/cgroup/one",
)
replace = msgspec.structs.replace


@pytest.mark.parametrize(
    ("signal", "sight", "why"),
    [
        (
            "cache_bytes_per_second",
            Sight(replace(KNOWN, cgroup=None, cgroup_directory=None), FACTS, 1.0),
            "no cgroup of its own",
        ),
        (
            "process_read_bytes_per_second",
            Sight(replace(KNOWN, process=ProcessCounters(7, 1)), FACTS, 1.0, {"/proc/7/io": "Permission denied"}),
            "/proc/7/io: Permission denied",
        ),
        (
            "process_read_bytes_per_second",
            Sight(replace(KNOWN, process=ProcessCounters(7, 1)), FACTS, 1.0),
            "/proc/7/io: could not be read",
        ),
        ("process_read_bytes_per_second", Sight(BackendSample("one", process_gone=True), FACTS, 1.0), "no process"),
        ("process_read_bytes_per_second", Sight(KNOWN, FACTS), "no earlier sample to compare with"),
        ("missing_bytes_per_token", Sight(KNOWN, BackendFacts(), 1.0), "layout unknown"),
        ("read_amplification", Sight(KNOWN, BackendFacts(), 1.0), "layout unknown"),
        ("tokens_per_second", Sight(replace(KNOWN, http=None), FACTS, 1.0), "no HTTP address is known to ask"),
        (
            "tokens_per_second",
            Sight(replace(KNOWN, http=None), replace(FACTS, address_known=True), 1.0),
            "no fresh answer over HTTP",
        ),
        ("tokens_per_second", Sight(replace(KNOWN, http=BackendHttp("loading")), FACTS, 1.0), "/health says loading"),
        (
            "tokens_per_second",
            Sight(replace(KNOWN, http=BackendHttp("unreachable")), FACTS, 1.0),
            "nothing answers over HTTP",
        ),
        (
            "busy_slots",
            Sight(replace(KNOWN, http=BackendHttp("ok")), FACTS, 1.0),
            "/slots did not answer (busy, or not served)",
        ),
        (
            "busy_slots",
            Sight(replace(KNOWN, http=BackendHttp("ok", wants_key=True)), FACTS, 1.0),
            "it wants an API key, so /slots tells nothing",
        ),
        (
            "prompt_tokens_per_second",
            Sight(replace(KNOWN, http=BackendHttp("ok", wants_key=True)), FACTS, 1.0),
            "it wants an API key, so /metrics tells nothing",
        ),
        (
            "prompt_tokens_per_second",
            Sight(KNOWN, FACTS, 1.0),
            "/metrics gave nothing (llama-server serves it only with --metrics)",
        ),
        (
            "resident_ratio",
            Sight(KNOWN, FACTS, 1.0, {}, "the model is on tmpfs"),
            "no scan of its residency: the model is on tmpfs",
        ),
        (
            "stall_memory_full_ratio",
            Sight(KNOWN, FACTS, 1.0),
            "no memory.pressure in its cgroup (cgroup v1, or a kernel without PSI)",
        ),
        ("device_read_bytes_per_second", Sight(KNOWN, FACTS, 1.0), "no disk under its model is known"),
        (
            "machine_stall_io_some_ratio",
            Sight(KNOWN, FACTS, 1.0, {"/proc/pressure/io": "No such file or directory"}),
            "/proc/pressure/io: No such file or directory",
        ),
    ],
)
def test_the_source_that_said_nothing_is_named(signal: str, sight: Sight, why: str) -> None:
    assert why_unknown(signal, sight) == why


def test_where_all_sources_are_known_the_manual_entry_says_when_it_is_unknown() -> None:
    assert why_unknown("refault_ratio", Sight(KNOWN, FACTS, 1.0)) == "hardly anything is read"
    assert why_unknown("bytes_per_major_fault", Sight(KNOWN, FACTS, 1.0)) == "too few faults to tell"


def test_of_several_parts_the_unknown_one_is_named() -> None:
    scanned = replace(KNOWN, residency=Residency(1, 1, 0))
    values: dict[str, float | None] = {"bytes_per_token": 1e6, "missing_bytes_per_token": None}
    text = why_unknown("read_amplification", Sight(scanned, FACTS, 1.0, values=values))
    assert text.startswith("missing bytes per token is unknown: ")


@pytest.mark.parametrize("signal", signal_functions())
def test_nothing_known_at_all_is_explained_for_every_signal(signal: str) -> None:
    text = why_unknown(signal, Sight(BackendSample("one"), BackendFacts()))
    assert text
    assert text == text.strip().rstrip(".")


def test_no_signal() -> None:
    with pytest.raises(KeyError):
        why_unknown("no_signal", Sight(KNOWN, FACTS))
