"""Traces on disk: whole lines only, private, bounded, and what was killed can be read."""

from __future__ import annotations

import errno
import json
import os
import stat
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moetuned.schema.model import ModelLayout
from moetuned.schema.sample import BackendIdentity, RawBackend, RawResidency, RawSample
from moetuned.state import trace_writer as module
from moetuned.state.trace import TraceBackend, TraceError, TraceModel, TraceRecorder, read_trace
from moetuned.state.trace_writer import TraceWriter, first_line, next_line

IDENTITY = BackendIdentity("glm", 7, "http://127.0.0.1:1", "/cg/a", 2, ("vda",), 16384, 100, 5, ("/cg",))
BACKEND = TraceBackend(
    "glm", 7, "http://127.0.0.1:1", TraceModel("/m", 9, "254:0", ModelLayout(1, 2, 1, 3, 6, 3, 3)), IDENTITY
)
RECORDER = TraceRecorder("1", 1.0, False)
NAMES = ("a.jsonl", "a.jsonl.gz")


def sample(at: float, text: str = "9\n") -> RawSample:
    return RawSample(
        at,
        at + 1e9,
        {"/cg/a/memory.current": text, "/x": None},
        {"glm": RawBackend({"/health": "{}"}, RawResidency(3))},
    )


def seconds_in(path: Path) -> tuple[list[float], str]:
    """Times of the samples that can be read, and what stopped it."""
    seen: list[float] = []
    try:
        seen.extend(raw.t for raw in read_trace(str(path)).samples)
    except TraceError as error:
        return seen, str(error)
    return seen, ""


def write(path: Path, seconds: int = 30) -> TraceWriter:
    writer = TraceWriter(str(path), 1 << 20)
    assert writer.write(first_line(sample(1), BACKEND, {"/proc/version": "x"}, RECORDER))
    for at in range(2, seconds + 1):
        assert writer.write(next_line(sample(at)))
    return writer


@pytest.mark.parametrize("name", NAMES)
def test_what_is_written_is_read(tmp_path: Path, name: str) -> None:
    writer = write(tmp_path / name)
    writer.close()
    writer.close()
    trace = read_trace(str(tmp_path / name))
    assert (trace.backend, trace.identity, trace.recorder) == (BACKEND, IDENTITY, RECORDER)
    assert trace.facts.page_bytes == 16384
    assert list(trace.samples) == [sample(at) for at in range(1, 31)]
    assert writer.size_bytes == (tmp_path / name).stat().st_size


def test_a_line_is_as_the_format_says(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", 2).close()
    first, second = (json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines())
    assert set(first) == {"t", "wall", "files", "http", "residency", "trace", "backend", "static", "recorder"}
    assert (first["trace"], first["backend"]["model"]["dev"]) == (1, "254:0")
    assert set(second) == {"t", "wall", "files", "http", "residency"}
    assert second["files"] == {"/cg/a/memory.current": "9\n", "/x": None}


@pytest.mark.parametrize("name", NAMES)
def test_only_its_owner_may_read_it_whatever_the_umask(tmp_path: Path, name: str) -> None:
    before = os.umask(0)
    try:
        write(tmp_path / name).close()
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600


@pytest.mark.parametrize("name", NAMES)
def test_one_that_was_killed_can_be_read_to_its_last_line(tmp_path: Path, name: str) -> None:
    write(tmp_path / name)  # and nobody closes it
    seen, trouble = seconds_in(tmp_path / name)
    assert seen == list(range(1, 31))
    assert ("after line 30: the file is cut" in trouble) is name.endswith(".gz")


@pytest.mark.parametrize("name", NAMES)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(cut=st.integers(1, 4000))
def test_one_that_was_cut_anywhere_loses_no_whole_line(tmp_path: Path, name: str, cut: int) -> None:
    whole = tmp_path / ("whole-" + name)
    if not whole.exists():
        write(whole).close()
    data = whole.read_bytes()[:-cut]
    (tmp_path / name).write_bytes(data)
    text = zlib.decompressobj(31).decompress(data) if name.endswith(".gz") else data
    seen, trouble = seconds_in(tmp_path / name)
    assert len(seen) - text.count(b"\n") in (0, 1), "at most the newline is missing of the last one"
    if trouble:
        assert any(f"line {number}:" in trouble for number in (len(seen), len(seen) + 1)) or "empty" in trouble


def test_it_is_never_larger_than_it_may_be(tmp_path: Path) -> None:
    for name in NAMES:
        writer = TraceWriter(str(tmp_path / name), 20_000)
        assert writer.write(first_line(sample(1), BACKEND, {}, RECORDER))
        at = 2
        while writer.write(next_line(sample(at, os.urandom(50).hex()))):
            at += 1
        writer.close()
        assert at > 20
        assert (tmp_path / name).stat().st_size <= 20_000
        assert len(list(read_trace(str(tmp_path / name)).samples)) == at - 1


@pytest.mark.parametrize("name", NAMES)
def test_a_full_disk_leaves_whole_lines(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = write(tmp_path / name, 5)
    real = os.write
    left = [100]

    def short(descriptor: int, data: memoryview) -> int:
        if left[0] == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        count = real(descriptor, data[: left[0]])
        left[0] -= count
        return count

    monkeypatch.setattr(module.os, "write", short)
    with pytest.raises(OSError, match="No space left"):
        writer.write(next_line(sample(6, os.urandom(400).hex())))
    monkeypatch.undo()
    writer.close()
    seen, trouble = seconds_in(tmp_path / name)
    assert seen == [1, 2, 3, 4, 5]
    assert bool(trouble) is name.endswith(".gz"), "the end of a gzip file cannot be written any more"


def test_nothing_is_overwritten_unasked_nor_a_link_followed(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "a.jsonl"
    target.write_text("mine")
    link.symlink_to(target)
    with pytest.raises(FileExistsError):
        TraceWriter(str(link), 1000)
    with pytest.raises(FileExistsError, match="no plain file"):
        TraceWriter(str(link), 1000, overwrite=True)
    with pytest.raises(FileExistsError):
        TraceWriter(str(target), 1000)


@pytest.mark.parametrize("end", [TraceWriter.close, TraceWriter.discard])
@pytest.mark.parametrize("name", NAMES)
def test_the_old_one_stays_until_the_first_line_is_written(
    tmp_path: Path, name: str, end: Callable[[TraceWriter], None]
) -> None:
    target = tmp_path / name
    target.write_text("mine")
    writer = TraceWriter(str(target), 80, overwrite=True)
    assert not writer.write(first_line(sample(1), BACKEND, {}, RECORDER))
    end(writer)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [(name, "mine")]
    writer = TraceWriter(str(target), 1 << 20, overwrite=True)
    assert target.read_text() == "mine"
    assert writer.write(first_line(sample(1), BACKEND, {}, RECORDER))
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert writer.write(next_line(sample(2)))
    writer.close()
    assert seconds_in(target) == ([1, 2], "")


def test_one_with_nothing_in_it_can_be_taken_back(tmp_path: Path) -> None:
    TraceWriter(str(tmp_path / "a.jsonl.gz"), 1000).discard()
    assert not (tmp_path / "a.jsonl.gz").exists()


def test_it_can_be_somebody_elses(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root may give files away")
    TraceWriter(str(tmp_path / "a.jsonl"), 1000, owner=(1234, 1235)).close()
    status = (tmp_path / "a.jsonl").stat()
    assert (status.st_uid, status.st_gid) == (1234, 1235)
