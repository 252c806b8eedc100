from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from fakes.model_stub import write_stub
from status_scenes import thrash

from moetuned.cli import estimate_facts
from moetuned.cli.estimate_facts import Question, answer, measured_of
from moetuned.host.disk_measure import MeasureError
from moetuned.schema.verdict import Paging, Verdict

GIB = 1 << 30


@pytest.fixture(autouse=True)
def _nothing_around(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(estimate_facts, "find_program", lambda _name, _beside=None: None)
    monkeypatch.setattr(estimate_facts, "find_socket", lambda _environ: "/nonexistent.sock")


def backend(paging: Paging, since: float | None, read: float | None = 400e6, rate: float | None = 2.0):
    view = thrash().backends[0]
    verdict = Verdict(view.name, 1000.0, paging=paging, paging_since=since)
    return msgspec.structs.replace(view, verdict=verdict, signals={"bytes_per_token": read, "tokens_per_second": rate})


def test_another_machine_is_as_described(tmp_path: Path):
    path = str(write_stub(tmp_path, "qwen3moe-235b")[0])
    found = answer(Question(path, ram=32 * GIB, vram=12 * GIB, disk_read=3 * GIB, context=8192))
    assert found.machine.limit.source == "--ram"
    assert (found.machine.system.low_bytes, found.machine.system.high_bytes) == (GIB, 3 * GIB)
    assert found.machine.vram is not None
    assert found.machine.load is None
    assert (found.disk.kind, found.disk.window_bytes) == ("nvme", 256 << 10)
    assert found.plan.context_length == 8192
    assert any("CPU cores are this machine's" in note for note in found.notes)
    assert any("are on this disk so far" in note for note in found.notes)


@pytest.mark.parametrize(("rate", "kind"), [(200 << 20, "hard disk"), (500 << 20, "ssd"), (2 * GIB, "nvme")])
def test_what_a_disk_is_sold_with_says_its_kind(tmp_path: Path, rate: int, kind: str):
    assert answer(Question(str(write_stub(tmp_path, "qwen3moe-30b")[0]), disk_read=rate)).disk.kind == kind


def test_the_context_is_the_models_when_that_is_shorter(tmp_path: Path):
    assert answer(Question(str(write_stub(tmp_path, "mixtral-8x7b")[0]))).plan.context_length == 16_384
    assert answer(Question(str(write_stub(tmp_path, "mixtral-8x7b")[0]), context=50_000)).plan.context_length == 50_000


def test_what_is_impossible_is_refused(tmp_path: Path):
    path = str(write_stub(tmp_path, "qwen3moe-30b")[0])
    with pytest.raises(ValueError, match="no cache type"):
        answer(Question(path, cache_type_k="q9"))
    with pytest.raises(ValueError, match="--backend /none: there is no such file"):
        answer(Question(path, backend="/none"))
    with pytest.raises(MeasureError, match="not wholly on this disk"):
        answer(Question(path, measure=True))


def test_exact_says_when_there_is_no_program(tmp_path: Path):
    found = answer(Question(str(write_stub(tmp_path, "qwen3moe-30b")[0]), exact=True))
    assert found.exact is not None
    assert "no llama-fit-params" in (found.exact.unknown or "")


def test_the_daemons_figure_of_this_model_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = write_stub(tmp_path, "qwen3moe-235b")[0]

    class Daemon:
        def __init__(self, *_arguments: object) -> None: ...

        def status(self):
            view = msgspec.structs.replace(backend(Paging.STREAMING, 100.0), model_path=str(path))
            return msgspec.structs.replace(thrash(), backends=(backend(Paging.STREAMING, 100.0), view))

    monkeypatch.setattr(estimate_facts, "Client", Daemon)
    assert "measured by the daemon over 1800 tokens" in answer(Question(str(path))).forecast.miss.source
    assert "measured" not in answer(Question(str(path), ram=64 * GIB)).forecast.miss.source


@pytest.mark.parametrize(
    ("view", "tokens"),
    [
        (backend(Paging.STREAMING, 900.0), 200),
        (backend(Paging.STEADY, 950.0), 100),
        (backend(Paging.WARMING, 100.0), None),
        (backend(Paging.THRASHING, 100.0), None),
        (backend(Paging.STREAMING, None), None),
        (backend(Paging.STREAMING, 100.0, read=None), None),
        (backend(Paging.STREAMING, 100.0, rate=None), None),
    ],
)
def test_only_a_settled_backend_has_measured_anything(view, tokens: int | None):
    found = measured_of(view)
    assert (None if found is None else found.tokens) == tokens
