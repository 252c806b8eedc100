from __future__ import annotations

import msgspec
import pytest
from backend_scenes import FOUND, GLM, NOW
from hypothesis import given
from hypothesis import strategies as st

from moetuned.cli.backend_sheet import sheet
from moetuned.schema.snapshot import ContextView
from moetuned.schema.supervision import LaunchView, Restart, RestartCause


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.localtime", __import__("time").gmtime)


def said(text: str) -> str:
    return " ".join(text.split())


def test_all_that_is_known() -> None:
    text = said(sheet(GLM, 80, False, NOW))
    for expected in (
        "glm is answering; the experts",
        "run by moetuned, as its child",
        "pid 4242",
        "60 layers, 128 experts of which a token uses 8; 47.0 GiB experts, 3.0 GiB others",
        "now 4096 tokens, wanted 4096 (by hand), preferred 8192, at least 1024, the model was trained for 131072",
        "KV cache types q8_0 and not said",
        "prompt cache 64 MiB at most",
        "4.0 GiB of its own, 1.0 GiB swapped out",
        "context (now 4096): yes, by a restart, {context} in its command",
        "slots (now 1): no, there is no {slots}",
        "a restart takes about 40 s (as its last load)",
        "1 because it had ended, 1 to free memory since moetuned started",
        "07:50:00 to free memory, context 8192 -> 4096, healthy after 40 s: headroom 1.0 GiB",
        "2027-01-14 04:13:20 because it had ended: it exited with code 1",
        "last start started with what fits",
        "relief shrink prompt cache: freed 2.0 GiB",
        "record /run/moetuned/backends/glm.json",
        "log /var/log/glm.log",
        "command llama-server -m /models/glm-00001-of-00007.gguf --api-key '***'",
    ):
        assert expected in text, expected


def test_one_of_which_nothing_is_known() -> None:
    text = said(sheet(FOUND, 80, False, NOW))
    assert "found running" in text
    assert "run by somebody else" in text
    assert "layout unknown: its header cannot be read" in text
    assert "command not known yet" in text
    assert "restarts" not in text
    assert "None" not in text


def test_a_dense_model_and_other_words() -> None:
    assert GLM.layout is not None
    dense = msgspec.structs.replace(
        GLM, layout=msgspec.structs.replace(GLM.layout, experts=0), prompt_cache_mib=-1, context=ContextView(),
        supervision=msgspec.structs.replace(
            GLM.supervision, restarts=(), restart_seconds=None, restart_source="its model is not known", waits="is restarted once",
        ), launch=LaunchView(),
    )  # fmt: skip
    text = said(sheet(dense, 80, False, NOW))
    for expected in (
        "dense",
        "without limit",
        "now unknown",
        "none since moetuned started",
        "unknown: its model is not",
    ):
        assert expected in text
    assert "restart is restarted once" in text


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_it_fits(width: int) -> None:
    for view in (GLM, FOUND):
        plain = sheet(view, width, False, NOW)
        assert max(map(len, plain.splitlines())) <= max(width, 42)
        assert "\x1b" not in plain
        assert "\x1b" in sheet(view, width, True, NOW)


@given(st.text(max_size=100))
def test_no_text_from_outside_can_steer_the_terminal(text: str) -> None:
    launch = msgspec.structs.replace(GLM.launch, command=(text, text))
    view = msgspec.structs.replace(GLM, name=text, sentence=text, model_path=text, launch=launch, before_start=text)
    assert all(one.isprintable() for one in sheet(view, 80, False, NOW).replace("\n", ""))


def test_each_cause_is_in_words_and_one_that_was_not_made_says_why() -> None:
    restarts = tuple(Restart(NOW, cause, "because", failed="no such unit") for cause in RestartCause)
    told = msgspec.structs.replace(
        GLM.supervision, restarts=restarts, restarts_by_cause={one.value: 1 for one in RestartCause}
    )
    text = said(sheet(msgspec.structs.replace(GLM, supervision=told), 200, False, NOW))
    assert "1 to free memory, 1 to give back what that took, 1 by hand, 1 because it had ended" in text
    assert text.count("because; it was not done: no such unit") == 4
