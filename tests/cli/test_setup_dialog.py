"""What is shown of facts and plans, and options as answers."""

from __future__ import annotations

import msgspec
import pytest
from setup_scenes import FACTS, MODEL

from moetuned.cli.setup_dialog import OptionError, answers_of, deed_words, option_of, show_looked, show_plan, unused
from moetuned.schema.config import Config
from moetuned.schema.setup import PlannedDeed, SetupFacts, SetupPlan, Step


def test_options_answer_questions_and_those_left_over_are_known() -> None:
    given = {"context": "8192", "relief": "act", "mail_to": "ann"}
    answers = answers_of(FACTS, given, ask=False)
    assert answers["context glm-4.5-air"] == "8192"
    assert answers["relief"] == "act"
    assert unused(answers, given) == ("--mail-to",)
    assert option_of("context glm-4.5-air") == "--context"


def test_an_option_that_is_no_answer_is_named() -> None:
    with pytest.raises(OptionError, match="--minimum: 5 is no whole number from 256"):
        answers_of(FACTS, {"minimum": "5"}, ask=False)
    with pytest.raises(OptionError, match="--ntfy-url is needed"):
        answers_of(FACTS, {"alert": "ntfy"}, ask=False)


def test_what_was_found(capsys: pytest.CaptureFixture[str]) -> None:
    odd = msgspec.structs.replace(MODEL, about="model /models/\x1b[31mred.gguf")
    show_looked(msgspec.structs.replace(FACTS, candidates=(odd,)), asks=False)
    said = capsys.readouterr().out
    assert "glm-4.5-air" in said
    assert "\x1b" not in said
    show_looked(SetupFacts("/x", Config(), Config()), asks=False)
    assert "moetunectl setup --model PATH" in " ".join(capsys.readouterr().out.split())


def test_a_plan_shows_what_changes(capsys: pytest.CaptureFixture[str]) -> None:
    deeds = (
        PlannedDeed(Step.WRITE, "/etc/new", "it is new", after="a: 1\nb: \x1b2\n"),
        PlannedDeed(Step.WRITE, "/etc/old", "it is old", before="a: 1\nb: 2\n", after="a: 1\nb: 3\n", edited=True),
        PlannedDeed(Step.START_SERVICE, "moetuned.service", "now and at every boot"),
    )
    show_plan(SetupPlan(deeds, notes=("look",)))
    said = capsys.readouterr().out
    assert "     | a: 1\n     | b: ?2\n" in said
    assert "     | -b: 2\n     | +b: 3\n" in said
    assert "kept as /etc/old.bak" in " ".join(said.split())
    assert "! look" in said
    assert deed_words(deeds[2]) == "start moetuned.service: now and at every boot"
    show_plan(SetupPlan())
    assert "Nothing to do" in capsys.readouterr().out
