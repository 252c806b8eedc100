"""Lists of prompts: texts as written, bounded, errors with file and line."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from moetuned.parse.config_problem import ConfigError, Problem
from moetuned.parse.prompt_list import LIMIT_BYTES, LIMIT_CHARACTERS, LIMIT_PROMPTS, parse_prompts


def problems(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse_prompts("p.yaml", text)
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("- a\n- b\n", ("a", "b")),
        ("[a, b]", ("a", "b")),
        ("- off\n- no\n- 010\n- 1e3\n- ~\n- null\n", ("off", "no", "010", "1e3", "~", "null")),
        ('- "a\\nb"\n- |\n  c\n  d\n', ("a\nb", "c\nd\n")),
        ("# only a note\n---\n- x\n...\n", ("x",)),
        ("\ufeff- 日本の四季\n", ("日本の四季",)),
        ("- &name a\n", ("a",)),
        ("- !!str 5\n", ("5",)),
        ("- a\n" * LIMIT_PROMPTS, ("a",) * LIMIT_PROMPTS),
        ("- " + "x" * LIMIT_CHARACTERS, ("x" * LIMIT_CHARACTERS,)),
    ],
)
def test_texts_are_taken_as_they_are_written(text: str, expected: tuple[str, ...]) -> None:
    assert parse_prompts("p.yaml", text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "p.yaml: holds no prompt"),
        ("# nothing\n", "p.yaml: holds no prompt"),
        ("[]", "p.yaml: holds no prompt"),
        ("hello", "p.yaml:1: must be a list of texts"),
        ("\na: b\n", "p.yaml:2: must be a list of texts"),
        ("- a\n- b: c\n", "p.yaml:2: must be a text"),
        ("- a\n-\n- b\n", "p.yaml:2: is empty"),
        ("- a\n- '  '\n", "p.yaml:2: is empty"),
        ("- a\n- [b]\n", "p.yaml:2: must be a text"),
        ("- &x a\n- *x\n", "p.yaml:2: aliases are not supported"),
        ("- !!int 5\n", "p.yaml:1: tags are not supported"),
        ("- !!python/object:os.system x\n", "p.yaml:1: tags are not supported"),
        ("- a\n---\n- b\n", "p.yaml:3: a second list begins here"),
        ("- a\n- 'b\n", "p.yaml:3: is not YAML"),
        ("\t- a\n", "p.yaml:1: is not YAML"),
        ('- a\n- "b\\0c"\n', "p.yaml:2: must not hold a NUL"),
        ("- a\n- " + "x" * (LIMIT_CHARACTERS + 1), "p.yaml:2: has 1001 characters"),
        ("- a\n" * (LIMIT_PROMPTS + 50), f"p.yaml: holds {LIMIT_PROMPTS + 50} prompts; at most"),
        ("- " + "x" * LIMIT_BYTES, "p.yaml: is larger than 256 KiB"),
    ],
)
def test_what_is_no_list_of_texts_says_where(text: str, expected: str) -> None:
    assert any(problem.startswith(expected) for problem in problems(text)), problems(text)


def test_all_wrong_texts_are_named_at_once() -> None:
    assert [problem.split(":")[1] for problem in problems("- ''\n- a\n- ' '\n")] == ["1", "3"]


def test_no_content_of_the_file_is_in_a_message() -> None:
    """The file may be any that a config names, such as one of secrets."""
    for text in ("root:secret:19000::::\n", "- secret: 1\n", "- !!int secret\n", "secret"):
        assert all("secret" not in problem for problem in problems(text))


def test_deep_nesting_is_an_error() -> None:
    assert problems("[" * 100_000)


@given(st.text())
@example("- \ud800")
@example("- a: 1\n  b: [")
def test_whatever_comes_is_prompts_or_a_problem(text: str) -> None:
    problems: tuple[Problem, ...] = ()
    prompts: tuple[str, ...] = ()
    try:
        prompts = parse_prompts("p.yaml", text)
    except ConfigError as error:
        problems = error.problems
    assert bool(prompts) != bool(problems)
    assert all(problem.file == "p.yaml" for problem in problems)
    assert all(prompt.strip() and len(prompt) <= LIMIT_CHARACTERS for prompt in prompts)
