"""Warming without a daemon."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from fakes.gguf_bytes import Q4_0, TensorSpec, gguf_bytes, moe_metadata, moe_tensors

from moetuned.cli import warm_here
from moetuned.cli.model_residency import Look, PartResidency, filesystem_of, look_at
from moetuned.cli.warm_here import plan_for
from moetuned.cli.warm_here import warm_here as warm
from moetuned.host.model_files import ModelFile, read_model
from moetuned.host.page_drop import drop_pages
from moetuned.schema.snapshot import MemoryView

GIB, MIB = 1 << 30, 1 << 20
WIDE = MemoryView("machine", limit_bytes=16 * GIB, headroom_bytes=15 * GIB, file_cache_bytes=GIB)
NEAR = MemoryView("machine", limit_bytes=16 * GIB, headroom_bytes=GIB, file_cache_bytes=0)


@pytest.fixture
def model(tmp_path: Path) -> ModelFile:
    """24 MiB, cold but for its header."""
    path = tmp_path / "m.gguf"
    tensors = [
        *moe_tensors(2),
        TensorSpec("blk.0.attn_k.weight", (1024, 4096), Q4_0),
        TensorSpec("blk.1.attn_k.weight", (1024, 40960), Q4_0),
    ]
    path.write_bytes(gguf_bytes(moe_metadata(2), tensors))
    found = read_model(str(path))
    if filesystem_of(found) in ("tmpfs", "ramfs"):
        pytest.skip("files are in memory here; set TMPDIR to a directory on a disk")
    drop_pages(str(path))
    return found


def cold(model: ModelFile) -> Look:
    return Look((PartResidency(model.identity.paths[0], model.identity.size_bytes, 0, 1000, 0),))


@pytest.mark.kernel
def test_a_model_that_fits_is_warmed_whole(model: ModelFile) -> None:
    drawn: list[tuple[int, int]] = []
    outcome = warm(model, look_at(model), lambda: (WIDE,), None, draw=lambda done, goal, _: drawn.append((done, goal)))
    size = model.identity.size_bytes
    assert (outcome.state, outcome.done_bytes, outcome.goal_bytes) == ("done", size, size)
    assert look_at(model).resident_bytes == size
    assert drawn[-1] == (size, size)
    again = warm(model, look_at(model), lambda: (WIDE,), None)
    assert (again.state, again.done_bytes) == ("nothing", 0)
    assert "in memory already" in again.detail


@pytest.mark.kernel
def test_a_budget_holds(model: ModelFile) -> None:
    outcome = warm(model, cold(model), lambda: (WIDE,), None, budget_bytes=4 * MIB)
    assert (outcome.state, outcome.budget_bytes) == ("done", 4 * MIB)
    assert outcome.done_bytes <= 4 * MIB


def test_memory_near_its_limit_is_refused(model: ModelFile) -> None:
    outcome = warm(model, cold(model), lambda: (WIDE, NEAR), None)
    assert outcome.state == "refused"
    assert outcome.detail.startswith("memory is near its limit: 1.0 GiB of 16.0 GiB")


def test_unknown_memory_warms_nothing(model: ModelFile) -> None:
    outcome = warm(model, cold(model), lambda: (MemoryView(),), None)
    assert (outcome.state, outcome.done_bytes) == ("failed", 0)
    assert "could not be read" in outcome.detail


def test_no_room_is_an_answer(model: ModelFile) -> None:
    full = MemoryView("machine", limit_bytes=16 * GIB, headroom_bytes=8 * GIB, file_cache_bytes=8 * GIB)
    outcome = warm(model, cold(model), lambda: (full,), None)
    assert outcome.state == "failed"
    assert "no free memory" in outcome.detail


def test_no_room_is_a_no_also_when_reading_the_header_brought_some_in(model: ModelFile) -> None:
    looked = Look((PartResidency(model.identity.paths[0], model.identity.size_bytes, MIB, 1000, 0),))
    full = MemoryView("machine", limit_bytes=16 * GIB, headroom_bytes=8 * GIB, file_cache_bytes=8 * GIB)
    outcome = warm(model, looked, lambda: (full,), None)
    assert (outcome.state, outcome.budget_bytes) == ("failed", 0)
    assert "no free memory" in outcome.detail


def test_memory_that_comes_near_its_limit_stops_it(model: ModelFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm_here, "GUARD_SECONDS", 0.0)
    answers = iter([(WIDE,)])
    outcome = warm(model, cold(model), lambda: next(answers, (NEAR,)), None, rate_bytes_per_second=MIB)
    assert outcome.state == "refused"
    assert outcome.done_bytes < outcome.goal_bytes
    assert "near its limit" in outcome.detail


def test_free_memory_that_something_else_takes_stops_it(model: ModelFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm_here, "GUARD_SECONDS", 0.0)
    taken = MemoryView("machine", limit_bytes=16 * GIB, headroom_bytes=15 * GIB, file_cache_bytes=15 * GIB - 100 * MIB)
    answers = iter([(WIDE,)])
    outcome = warm(model, cold(model), lambda: next(answers, (taken,)), None, rate_bytes_per_second=MIB)
    assert outcome.state == "failed"
    assert outcome.done_bytes < outcome.goal_bytes
    assert outcome.detail == "something else took the memory that was free: 100 MiB of 16.0 GiB are left (machine)"


def test_memory_that_was_full_before_does_not_stop_what_fills_none(
    model: ModelFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warm_here, "GUARD_SECONDS", 0.0)
    full = MemoryView("machine", limit_bytes=GIB, headroom_bytes=GIB - 100 * MIB, file_cache_bytes=GIB - 101 * MIB)
    there = Look((PartResidency(model.identity.paths[0], model.identity.size_bytes, 20 * MIB, 1000, 0),))
    monkeypatch.setattr(warm_here, "room", lambda *_: warm_here.Room(4 * MIB, full, None))
    assert warm(model, there, lambda: (full,), None).state == "done"


def test_ctrl_c_ends_the_process_and_says_how_far_it_came(model: ModelFile, monkeypatch: pytest.MonkeyPatch) -> None:
    started = []
    original = warm_here.warm_in_cgroup

    def start(*arguments: object, **options: object) -> object:
        started.append(original(*arguments, **options))  # type: ignore[arg-type]
        return started[0]

    def interrupt(*_drawing: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(warm_here, "warm_in_cgroup", start)
    outcome = warm(model, cold(model), lambda: (WIDE,), None, rate_bytes_per_second=MIB, draw=interrupt)
    assert outcome.state == "interrupted"
    assert outcome.done_bytes < outcome.goal_bytes
    assert not os.path.exists(f"/proc/{started[0].pid}")


def test_a_cgroup_that_cannot_be_joined_fails_with_a_sentence(model: ModelFile) -> None:
    outcome = warm(model, cold(model), lambda: (WIDE,), "/sys/fs/cgroup/moetuned-test-none")
    assert outcome.state == "failed"
    assert "cgroup" in outcome.detail


def test_an_unknown_layout_is_warmed_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf_bytes({**moe_metadata(), "qwen3moe.expert_count": 7}, moe_tensors()))
    model = read_model(str(path))
    assert model.experts is None
    size = model.identity.size_bytes
    look = Look((PartResidency(str(path), size, 0, None, None),))
    assert plan_for(model, size, look).total_bytes == size
    plan = plan_for(model, size - 1, look)
    assert plan.total_bytes == 0
    assert "is unknown" in plan.reason
