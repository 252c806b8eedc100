"""The stand-in saves and restores slots as llama-server does."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from moetuned.simulator.answers import RequestError
from moetuned.simulator.slot_action import slot_action


class FakeEngine:
    def __init__(self, slot_context: int = 4096, cost: int = 10) -> None:
        self.plan = SimpleNamespace(slots=2, slot_context=slot_context, kv_bytes_per_token=cost)
        self.tokens: list[int | None] = [900, None]
        self.kept: dict[int, int] = {}

    def held(self, number: int) -> int | None:
        tokens, self.tokens[number] = self.tokens[number], self.tokens[number] or 7
        return tokens

    def keep(self, number: int, tokens: int) -> bool:
        self.kept[number] = tokens
        return True


def act(engine: Any, directory: Path | str, action: str, slot: str = "0", name: str = "a.kv") -> dict[str, Any]:
    return slot_action(engine, str(directory), slot, f"action={action}", json.dumps({"filename": name}).encode())


def test_saved_and_restored(tmp_path: Path) -> None:
    assert act(FakeEngine(), tmp_path, "save")["n_saved"] == 900
    assert (tmp_path / "a.kv").stat().st_size == 9000
    engine = FakeEngine()
    assert act(engine, tmp_path, "restore", "1")["n_restored"] == 900
    assert engine.kept == {1: 900}


def test_a_slot_that_works_is_waited_for(tmp_path: Path) -> None:
    assert act(FakeEngine(), tmp_path, "save", "1")["n_saved"] == 7


@pytest.mark.parametrize("engine", [FakeEngine(slot_context=900), FakeEngine(cost=5)])
def test_what_does_not_fit_is_refused(tmp_path: Path, engine: FakeEngine) -> None:
    act(FakeEngine(), tmp_path, "save")
    with pytest.raises(RequestError, match="Unable to restore"):
        act(engine, tmp_path, "restore")
    assert engine.kept == {}


@pytest.mark.parametrize(
    ("directory", "action", "slot", "name", "status"),
    [
        ("", "save", "0", "a", 501), ("x", "save", "2", "a", 400), ("x", "save", "-1", "a", 400), ("x", "save", "z", "a", 400),
        ("x", "save", "0", "../a", 400), ("x", "save", "0", "", 400), ("x", "shake", "0", "a", 400), ("x", "restore", "0", "none", 400),
        ("/nowhere", "save", "0", "a", 400),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(
    tmp_path: Path, directory: str, action: str, slot: str, name: str, status: int
) -> None:
    with pytest.raises(RequestError) as caught:
        act(FakeEngine(), tmp_path if directory == "x" else directory, action, slot, name)
    assert caught.value.status == status
