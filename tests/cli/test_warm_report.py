"""What came of warming, as lines and exit codes."""

from __future__ import annotations

import pytest

from moetuned.cli.model_residency import Look, PartResidency
from moetuned.cli.warm_report import Outcome, ResidentNow, exit_code, lines, resident_now

MIB = 1 << 20


def look(expert: int, other: int = 100) -> Look:
    return Look((PartResidency("/m.gguf", 1000, expert + other, 900, expert),))


@pytest.mark.parametrize(
    ("state", "code"), [("done", 0), ("nothing", 0), ("failed", 1), ("refused", 4), ("interrupted", 130), ("else", 1)]
)
def test_exit_codes(state: str, code: int) -> None:
    assert exit_code(Outcome(state, "")) == code


def test_done_has_its_speed() -> None:
    first, second = lines("/models/m.gguf", Outcome("done", "it fits", 100 * MIB, 100 * MIB, 2.0), look(0), look(450))
    assert first == "m.gguf: warmed 100 MiB in 2.0 s (52 MB/s): it fits"
    assert second == "  experts 0 % -> 50 %, other 100 %"


@pytest.mark.parametrize(
    ("outcome", "text"),
    [
        (Outcome("done", "why", MIB, MIB), "warmed 1.0 MiB: why"),
        (Outcome("interrupted", "why", MIB, 4 * MIB), "interrupted after 1.0 MiB of 4.0 MiB: why"),
        (Outcome("nothing", "why"), "nothing to do: why"),
        (Outcome("refused", "near"), "not warmed: near"),
        (Outcome("refused", "near", MIB, 4 * MIB), "stopped after 1.0 MiB of 4.0 MiB: near"),
        (Outcome("failed", "a\nb"), "not warmed: a\\nb"),
    ],
)
def test_what_is_said(outcome: Outcome, text: str) -> None:
    assert lines("/m.gguf", outcome, look(0), look(0))[0] == f"m.gguf: {text}"


def test_what_is_resident() -> None:
    assert resident_now(look(300)) == ResidentNow(400, 300, 100)
    assert resident_now(Look((PartResidency("/m.gguf", 10, 5, None, None),))) == ResidentNow(5, None, None)
    assert resident_now(Look(unknown="why")) is None


def test_lines_are_as_wide_as_the_terminal() -> None:
    why = "what every token needs, then experts into the memory that is free, as far as it reaches"
    found = lines("/m.gguf", Outcome("failed", why), look(0), Look(unknown=f"{why} and {why}"), (why,), 60)
    assert max(map(len, found)) <= 60
    assert found[0].startswith("m.gguf: not warmed: what every token needs")
    assert any(line.startswith("  residency unknown: ") for line in found)
    assert " ".join(line.strip() for line in found).count(why) == 4
