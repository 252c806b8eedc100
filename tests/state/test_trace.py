from __future__ import annotations

import gzip
import json
import pathlib
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moetuned.state import trace as module
from moetuned.state.trace import TraceError, read_trace

LAYOUT = {
    "layers": 16,
    "experts": 64,
    "experts_used": 4,
    "expert_slice_bytes": 589824,
    "expert_bytes": 1811939328,
    "other_bytes": 30307360,
    "active_expert_bytes": 113246208,
}
FIRST: dict[str, Any] = {
    "t": 1.0,
    "wall": 100.0,
    "files": {
        "/proc/7/stat": "7 (x) R 1\n",
        "/sys/fs/cgroup/memory/lab/memory.usage_in_bytes": "1\n",
        "/sys/block/vda/stat": "1 2 3\n",
        "/sys/block/loop0/stat": "0 0 0\n",
        "/proc/diskstats": " 254       0 vda 1 2 3\n 254       1 vda1 1 2 3\n",
    },
    "http": {"/health": "!HTTPError"},
    "residency": {"cached": 3, "evicted": 0, "recently_evicted": 0},
    "trace": 1,
    "static": {"/proc/version": "Linux"},
    "backend": {
        "name": "lab",
        "pid": 7,
        "url": None,
        "model": {"path": "/m", "size": 9, "dev": "254:0", "layout": LAYOUT},
    },
}
SECOND = {"t": 2.0, "wall": 101.0, "files": {"/proc/7/stat": None}}


def with_backend(**more: Any) -> dict[str, Any]:
    return {**FIRST, "backend": {**FIRST["backend"], **more}}


def write(path: pathlib.Path, *lines: object) -> str:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


def test_the_first_line_says_whose_it_is(tmp_path: pathlib.Path) -> None:
    trace = read_trace(write(tmp_path / "a.jsonl", FIRST, SECOND))
    assert (trace.backend.name, trace.identity.pid) == ("lab", 7)
    assert (trace.identity.cgroup_directory, trace.identity.cgroup_version) == ("/sys/fs/cgroup/memory/lab", 1)
    assert trace.identity.disks == ("vda",), "the disk with the model's major:minor, not every disk"
    assert trace.facts.layout is not None
    assert trace.facts.layout.experts == 64
    first, second = trace.samples
    assert first.backends["lab"].http == {"/health": "!HTTPError"}
    assert first.backends["lab"].residency is not None
    assert (second.t, second.files, second.backends["lab"].http) == (2.0, {"/proc/7/stat": None}, {})


def test_a_partition_belongs_to_its_disk(tmp_path: pathlib.Path) -> None:
    model = {**FIRST["backend"]["model"], "dev": "254:1"}
    first = {**FIRST, "backend": {**FIRST["backend"], "model": model}}
    assert read_trace(write(tmp_path / "a.jsonl", first)).identity.disks == ("vda",)


def test_version_2_and_no_model(tmp_path: pathlib.Path) -> None:
    first = {**FIRST, "files": {"/sys/fs/cgroup/a.slice/memory.current": "1\n"}, "backend": {"name": "lab", "pid": 7}}
    trace = read_trace(write(tmp_path / "a.jsonl", first))
    assert (trace.identity.cgroup_directory, trace.identity.cgroup_version) == ("/sys/fs/cgroup/a.slice", 2)
    assert (trace.facts.model_bytes, trace.facts.layout, trace.identity.disks) == (None, None, ())


def test_gzip_is_read_as_it_is(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress((json.dumps(FIRST) + "\n").encode()))
    assert len(list(read_trace(str(path)).samples)) == 1


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ([], "empty"),
        ([SECOND], "line 1: this is no trace of version 1"),
        ([{**FIRST, "trace": 2}], "line 1: this is no trace of version 1"),
        ([{**FIRST, "t": "soon"}], r"line 1: .*\$\.t"),
        ([[]], "line 1"),
        ([with_backend(identity={"name": "lab", "pid": 8})], "line 1: backend.identity: it is of another backend"),
        (
            [with_backend(identity={"name": "lab", "pid": 7, "page_bytes": 0})],
            "line 1: backend.identity: no machine has pages of 0",
        ),
        ([with_backend(identity={"name": "lab", "pid": 7, "clock_ticks": 0})], "and 0 clock ticks a second"),
        ([with_backend(identity={"name": "lab", "pid": 7, "disks": ["a"] * 300})], "more than 256 disks"),
        ([with_backend(facts={"kv_cache_bytes": -1})], "line 1: backend.facts: a size below 0"),
        ([with_backend(facts={"batch_tokens": 0})], "line 1: backend.facts: a size below 0"),
    ],
)
def test_a_fault_in_the_first_line_names_file_and_line(tmp_path: pathlib.Path, lines: list[object], says: str) -> None:
    with pytest.raises(TraceError, match=rf"a\.jsonl: .*{says}"):
        read_trace(write(tmp_path / "a.jsonl", *lines))


def test_a_fault_further_down_is_met_when_it_is_reached(tmp_path: pathlib.Path) -> None:
    samples = read_trace(write(tmp_path / "a.jsonl", FIRST, {"t": 2})).samples
    next(samples)
    with pytest.raises(TraceError, match="line 2"):
        next(samples)


def test_what_says_whose_a_file_is_goes_before_guessing(tmp_path: pathlib.Path) -> None:
    said = {
        "name": "lab",
        "pid": 7,
        "cgroup_directory": "/cg",
        "cgroup_version": 2,
        "page_bytes": 16384,
        "disks": ["md0"],
        "later": 1,
    }
    first = with_backend(identity=said, facts={"batch_tokens": 512, "model_bytes": 1, "later": 1}, later=1)
    trace = read_trace(write(tmp_path / "a.jsonl", {**first, "later": 1}))
    assert (trace.identity.cgroup_directory, trace.identity.disks) == ("/cg", ("md0",))
    assert (trace.facts.page_bytes, trace.facts.batch_tokens, trace.facts.model_bytes) == (16384, 512, 9)


def test_time_goes_on(tmp_path: pathlib.Path) -> None:
    samples = read_trace(write(tmp_path / "a.jsonl", FIRST, {**SECOND, "t": 0.5})).samples
    next(samples)
    with pytest.raises(TraceError, match=r"line 2: its time \(t\) is before"):
        next(samples)


def test_a_cut_gzip_says_so(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress("".join(json.dumps(FIRST) + "\n" for _ in range(300)).encode())[:-12])
    with pytest.raises(TraceError, match="cut or damaged"):
        list(read_trace(str(path)).samples)


def test_a_line_may_not_be_endless(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_LINE_BYTES", 100)
    with pytest.raises(TraceError, match="line 1: longer"):
        read_trace(write(tmp_path / "a.jsonl", FIRST))


def test_no_file_is_an_os_error(tmp_path: pathlib.Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_trace(str(tmp_path / "none.jsonl"))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary() | st.text().map(str.encode) | st.integers(0, 400).map(lambda cut: json.dumps(FIRST).encode()[:cut]))
def test_rubbish_is_a_trace_error_and_nothing_else(tmp_path: pathlib.Path, data: bytes) -> None:
    for name in ("a.jsonl", "a.jsonl.gz"):
        path = tmp_path / name
        path.write_bytes(data)
        with pytest.raises(TraceError):
            list(read_trace(str(path)).samples)
