from __future__ import annotations

import msgspec
import pytest
from top_scenes import squeezed, two

from moetuned.cli.styled_line import plain
from moetuned.cli.top_rows import Page, backend_rows
from moetuned.schema.snapshot import BackendView
from moetuned.schema.verdict import MemoryState, Phase, Verdict

TOP = squeezed()
assert TOP.snapshot is not None
(GLM,) = TOP.snapshot.backends
(KEPT,) = TOP.history.backends


def text(backend: BackendView, page: Page = Page(80)) -> dict[str, str]:  # noqa: B008  frozen
    rows = backend_rows(backend, KEPT, 4000, page, "")
    return {line.split()[0]: line for line in (plain(row.line) for row in rows)}


def test_the_verdict_is_worth_most() -> None:
    rows = backend_rows(GLM, KEPT, 4000, Page(80), "> ")
    assert rows[0].rank == 0
    assert plain(rows[0].line).startswith("> glm is thrashing")
    assert rows[0].goes_on
    assert plain(rows[1].line).startswith("    ")
    assert min(row.rank for row in rows[1:]) == 1


def test_reads_and_refaults_share_their_scale() -> None:
    half = {**KEPT.signals, "refault_bytes_per_second": tuple(1e8 for _ in KEPT.phase)}
    rows = backend_rows(GLM, msgspec.structs.replace(KEPT, signals=half), 8000, Page(80), "")
    (refaults,) = [plain(row.line) for row in rows if plain(row.line).startswith("  refaults")]
    assert "▃" in refaults  # 100 of 460 MB/s
    assert "█" not in refaults


def test_experts_or_the_whole_model() -> None:
    assert "of 47.0 GiB" in text(GLM)["experts"]
    snapshot = two().snapshot
    assert snapshot is not None
    bare = msgspec.structs.replace(snapshot.backends[1], signals={"resident_ratio": 0.4})
    rows = [plain(row.line) for row in backend_rows(bare, None, 0, Page(80), "")]
    (resident,) = [line for line in rows if line.startswith("  resident")]
    assert " 40 % " in resident
    assert resident.endswith("of 50.0 GiB")


@pytest.mark.parametrize(
    ("phase", "said"),
    [(Phase.IDLE, "none"), (Phase.PREFILL, "none"), (Phase.DECODE, "unknown"), (Phase.UNKNOWN, "unknown")],
)
def test_no_tokens_while_nothing_is_asked_are_none_and_else_unknown(phase: Phase, said: str) -> None:
    signals = {**GLM.signals, "tokens_per_second": None}
    backend = msgspec.structs.replace(GLM, signals=signals, verdict=Verdict("glm", 0.0, phase))
    assert text(backend)["tokens"].split()[1] == said


def test_a_narrow_page_has_no_notes_and_a_tiny_one_no_sparklines() -> None:
    assert "scale" in text(GLM)["reads"]
    assert "scale" not in text(GLM, Page(60))["reads"]
    assert text(GLM, Page(22))["reads"] == "  reads     457 MB/s"


def test_little_headroom_has_a_colour() -> None:
    for memory, style in ((MemoryState.OK, ""), (MemoryState.NEAR_LIMIT, "yellow"), (MemoryState.CRITICAL, "red")):
        backend = msgspec.structs.replace(GLM, verdict=msgspec.structs.replace(GLM.verdict, memory=memory))
        (row,) = [
            row for row in backend_rows(backend, KEPT, 4000, Page(80), "") if plain(row.line).startswith("  headroom")
        ]
        assert row.line[0][1] == style


def test_the_paging_row_shows_the_worst_of_a_column() -> None:
    assert text(GLM)["paging"].split()[1:] == ["thrashing", "T" * 43, "decode"]
    early = [plain(row.line) for row in backend_rows(GLM, KEPT, 4000, Page(160, seconds_a_column=10), "")]
    (paging,) = [line for line in early if line.startswith("  paging")]
    assert "ww~" in paging
    assert "~~T" in paging
