"""What counts for a rate."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes.cold_file import make_cold_file

from moetuned.host import uncached
from moetuned.host.uncached import ToRead, Uncached

MIB = 1 << 20


@pytest.fixture
def paths(tmp_path: Path) -> list[str]:
    return [make_cold_file(tmp_path / f"part{part}", 2 * MIB) for part in range(2)]


@pytest.mark.parametrize(
    ("read", "counts"),
    [
        ([0, 0, 10], [10, 10]),
        ([0, 0, 90], [10, 90]),
        ([0, 0, 0], [10, 40]),
        ([None, None, None], [40, 40]),
    ],
    ids=["what is missing", "and what was read ahead", "all where nobody counts", "all where that is unknown"],
)
def test_what_a_piece_counts(read: list[int | None], counts: list[int]) -> None:
    answers = iter(read)
    to_read = ToRead(lambda _one: 10, lambda: next(answers))
    assert [to_read([(0, 0, 40)], 40) for _ in counts] == counts


def test_where_nobody_tells_what_is_in_memory_all_counts(paths: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with open(paths[0], "rb") as file:
        file.read(MIB)
    missing = Uncached([*paths, "/no/such/file"])
    assert missing((0, 0, MIB)) == 0
    assert missing((2, 5, MIB)) == MIB
    monkeypatch.setattr(uncached, "_is_told", lambda _descriptor: False)
    assert missing((0, 0, MIB)) == MIB
