from __future__ import annotations

import re

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from moetuned.decide.nagios import Measure, answer, check_line, measures, performance
from moetuned.schema.headline import Headline, Severity, Situation
from moetuned.schema.model import ModelLayout
from moetuned.schema.snapshot import BackendView, ContextView, MemoryView, ResidencyView
from moetuned.schema.verdict import Reason, Verdict

GIB = 1 << 30
WELL = Headline(Severity.OK, Situation.WELL, "all is well.", "Nothing to do.", "glm")
DOWN = Headline(Severity.CRITICAL, Situation.DOWN, "down.", "See: /log", "b")
FIELD = r"(?:[A-Za-z0-9_.:/-]+|'[^'=]+')=(?:U|-?[0-9.]+(?:B|s|%|c)?)(?:;[0-9.:~@-]*){0,4}"
VIEW = BackendView(
    "glm",
    "llama-server",
    Verdict("glm", 1.0, reasons=(Reason("memory", "headroom_bytes", 20.0 * GIB, 2.56 * GIB, None, ""),)),
    "",
    layout=ModelLayout(60, 128, 8, 1, 47 * GIB, 3 * GIB, GIB),
    model_bytes=50 * GIB,
    signals={"tokens_per_second": 6.1, "process_read_bytes_per_second": 0.0},
    memory=MemoryView("machine", 32 * GIB, headroom_bytes=20 * GIB),
    residency=ResidencyView(18 * GIB, 15 * GIB, 3 * GIB),
    context=ContextView(now=16384),
    restarts=2,
)


def test_performance_data() -> None:
    assert performance(measures((VIEW,))) == (
        "glm_tokens_per_second=6.1;;;0 glm_read_bytes_per_second=0B;;;0 glm_headroom=21474836480B;2748779069:;;;34359738368 "
        "glm_experts_in_memory=16106127360B;;;0;50465865728 glm_rest_in_memory=3221225472B;;;0;3221225472 glm_context=16384;;;0 "
        "glm_restarts=2c;;;0"
    )


def test_what_is_unknown_keeps_its_place() -> None:
    bare = msgspec.structs.replace(
        VIEW, signals={}, memory=MemoryView(), residency=ResidencyView(), layout=None, context=ContextView()
    )
    assert [one.label for one in measures((bare,))] != [one.label for one in measures((VIEW,))], (
        "without a layout, of the model as a whole"
    )
    text = performance(measures((bare,)))
    assert "glm_tokens_per_second=U;;;0 " in text
    assert "glm_model_in_memory=U;;;0;53687091200" in text


def test_all_that_is_wrong_is_told_and_what_is_well_only_alone() -> None:
    both = answer(Severity.CRITICAL, (DOWN, WELL), (VIEW,))
    assert (both.code, both.line.split("|")[0]) == (2, "MOETUNED CRITICAL - b: down. See: /log")
    two = answer(Severity.CRITICAL, (DOWN, DOWN, WELL), ())
    assert two.line == "MOETUNED CRITICAL - b: down. See: /log; b: down. See: /log;"
    alone = answer(Severity.OK, (WELL,), ())
    assert (alone.code, alone.line) == (0, "MOETUNED OK - glm: all is well. Nothing to do.")
    assert answer(Severity.UNKNOWN, (), ()).code == 3


@given(
    st.sampled_from(Severity), st.text(), st.lists(st.tuples(st.text(min_size=1), st.none() | st.floats(-1e15, 1e15)))
)
def test_it_is_one_line_with_one_bar_and_well_formed_data(
    severity: Severity, text: str, numbers: list[tuple[str, float | None]]
) -> None:
    line = check_line(severity, text, [Measure(label, value) for label, value in numbers])
    assert line.isprintable()
    said, bar, data = line.partition("|")
    assert said.startswith(f"MOETUNED {severity.upper()} - ")
    assert bool(bar) == bool(numbers)
    assert "|" not in data
    if numbers:
        assert re.fullmatch(f"{FIELD}(?: {FIELD})*", data), data
