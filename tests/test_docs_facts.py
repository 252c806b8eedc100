"""docs/facts.md: what it says was recorded is what the recordings show, at the second that it names."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner

from moetuned.cli.explain import command as explain

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "docs" / "facts.md").read_text()
TRACES = ROOT / "tests" / "data" / "traces"
ROWS = re.findall(r"^\| `(\w+)` \| (\d+) \| (.+?) \|$", TEXT, re.MULTILINE)
FIGURE = r"[\d.]+ (?:%|s|[KMG]iB|[kM]?B/s|MB/s|times)"


def explained(trace: str, second: int) -> str:
    done = CliRunner().invoke(explain, ["--trace", str(TRACES / f"{trace}.jsonl.gz"), "--at", str(second)])
    assert done.exit_code == 0, done.output
    return " ".join(done.output.split())


@pytest.mark.parametrize(("trace", "second", "said"), [pytest.param(*row, id=row[0]) for row in ROWS])
def test_a_recorded_second_shows_it(trace: str, second: str, said: str) -> None:
    seen = explained(trace, int(second))
    figures = re.findall(FIGURE, said)
    assert figures or "streaming" in said
    assert [figure for figure in figures if figure not in seen] == []
    word = re.search(r"thrash|streaming|is well|as it should", said)
    paging = re.search(r"paging: (\w+)", seen)
    assert paging is not None
    if word is not None:
        expected = {"thrash": "thrashing", "is well": "steady"}.get(word[0], "streaming")
        assert paging[1] == expected or trace == "neighbour"


def test_there_are_rows() -> None:
    assert len(ROWS) >= 5


def seconds_of(trace: str) -> list[Mapping[str, Mapping[str, str]]]:
    with gzip.open(TRACES / f"{trace}.jsonl.gz", "rt") as file:
        return [json.loads(line) for line in file]


def refaulted_pages(line: Mapping[str, Mapping[str, str]]) -> int:
    found = re.search(r"^workingset_refault_file (\d+)$", line["files"]["/proc/vmstat"], re.MULTILINE)
    assert found is not None
    return int(found[1])


def test_the_neighbour_shows_in_the_machine_and_not_in_the_backend() -> None:
    lines = seconds_of("neighbour")
    refaulted = (refaulted_pages(lines[45]) - refaulted_pages(lines[44])) * 4096
    assert 100e6 < refaulted < 1000e6, "hundreds of MB/s"
    assert re.match(r"some avg10=19\.", lines[45]["files"]["/proc/pressure/memory"])
    assert "0 B/s read" in explained("neighbour", 45)


def test_memory_is_available_while_it_thrashes() -> None:
    for line in seconds_of("thrash"):
        total, available = (
            int(found[1])
            for name in ("MemTotal", "MemAvailable")
            if (found := re.search(rf"^{name}: +(\d+) kB$", line["files"]["/proc/meminfo"], re.MULTILINE))
        )
        assert available > 0.9 * total
