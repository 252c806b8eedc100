"""The files that setup writes: systemd and the config's own reader read in them what was meant."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.decide.setup_config import config_text, environment_text, launch_words, quoted
from moetuned.decide.setup_questions import default_answers
from moetuned.parse.config_text import load
from moetuned.parse.environment_file import parse_environment_file
from moetuned.parse.persisted_file import Standing, standing
from moetuned.schema.config import Config
from moetuned.schema.setup import Candidate, SetupFacts, Way

PRINTABLE = st.text(st.characters(exclude_categories=("C", "Z")) | st.just(" "), max_size=40)


@given(PRINTABLE)
def test_a_value_is_read_back_as_it_was(value: str) -> None:
    line = quoted(value)
    assert parse_environment_file(f"# x\nMODEL={line}\n") == {"MODEL": value}


@pytest.mark.parametrize("value", ["a\nb", "\x1b[0m", "a\rb", "\udcff"])
def test_what_cannot_stand_in_such_a_file_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match="cannot be printed"):
        quoted(value)


def model(path: str) -> Candidate:
    environment = (
        ("MODEL", path),
        ("PORT", "8080"),
        ("MOETUNED_CONTEXT", "1"),
        ("MOETUNED_SLOTS", "1"),
        ("MORE", "-t 2"),
    )
    return Candidate("glm", Way.CREATED, "a model", model=path, fits=True, size_bytes=1, environment=environment)


def test_the_file_of_a_unit() -> None:
    text = environment_text(model("/models/a b$c.gguf"), {"context glm": "8192", "slots glm": "2"})
    assert standing(text, "setup --undo") is Standing.OURS
    assert parse_environment_file(text) == {
        "MODEL": "/models/a b$c.gguf",
        "PORT": "8080",
        "MOETUNED_CONTEXT": "8192",
        "MOETUNED_SLOTS": "2",
        "MORE": "-t 2",
    }
    assert "# What moetuned-backend@glm.service is started with." in text


@given(
    st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=40).map(lambda name: f"/{name}")
)
def test_a_model_of_any_name_is_only_data_in_the_config(path: str) -> None:
    facts = SetupFacts("/x", Config(), Config(), candidates=(model(path),))
    text = config_text(facts, default_answers(facts))
    assert text is not None
    config = load([("setup", text)])
    assert [(each.name, each.model) for each in config.backends] == [("glm", path)]
    assert config.alerts == []


def test_it_says_nothing_that_the_others_say() -> None:
    facts = SetupFacts("/x", Config(), Config(), has_main_config=True)
    assert config_text(facts, default_answers(facts)) is None


def test_flags_that_the_unit_has_already() -> None:
    command = [
        "/bin/llama-server",
        "-m",
        "/x",
        "-c",
        "1",
        "-np",
        "1",
        "-t",
        "2",
        "--no-repack",
        "--cache-ram",
        "5",
        "-ctk",
        "q8_0",
        "-fa",
        "on",
    ]
    assert launch_words(command) == ("-t", "2", "--no-repack", "-fa", "on")
