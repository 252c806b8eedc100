"""Words of a command: quotes, escapes, specifiers and variables, each as systemd takes it."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.parse.exec_words import WordsError, literal, split_words, splits, variables_in, whole_variable


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        ("  \t ", []),
        ("a  b\tc", ["a", "b", "c"]),
        ("'a b' \"c d\"", ["a b", "c d"]),
        ("--x=\"a b\"c'd'", ["--x=a bcd"]),
        ("'' \"\"", ["", ""]),
        (r"a\sb \"c\" 'd\'e' \\", ["a b", '"c"', "d'e", "\\"]),
        (r"a \; b", ["a", ";", "b"]),
        ("'a\"b' \"c'd\"", ['a"b', "c'd"]),
    ],
)
def test_words(text: str, words: list[str]) -> None:
    assert [word.decoded for word in split_words(text)] == words


@pytest.mark.parametrize("text", ["'a", 'x "', r"a\x41", r"\101", "a\\", r"a\;b", r"\z"])
def test_what_is_not_certain_is_an_error(text: str) -> None:
    with pytest.raises(WordsError, match=r"has an? (escape|quote) in it"):
        split_words(text)


@given(st.text(alphabet=st.sampled_from("ab \t'\"\\;$%{}s=-")))
def test_every_word_stands_where_it_says(text: str) -> None:
    try:
        words = split_words(text)
    except WordsError:
        return
    assert all(before.end <= after.start for before, after in pairwise(words))
    for word in words:
        again = split_words(text[word.start : word.end])
        assert [each.decoded for each in again] == [word.decoded]
    between = "".join(
        text[a:b] for a, b in zip([0, *(w.end for w in words)], [*(w.start for w in words), None], strict=True)
    )
    assert between.strip(" \t") == ""


@given(st.lists(st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\0"))))
def test_quoted_words_come_back(words: list[str]) -> None:
    def quoted(word: str) -> str:
        return '"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"'

    assert [word.decoded for word in split_words(" ".join(map(quoted, words)))] == words


@pytest.mark.parametrize(
    ("decoded", "text"),
    [
        ("plain", "plain"), ("100%%", "100%"), ("%i", None), ("%%%i", None), ("%%%%", "%%"), ("$$5", "$5"), ("${A}", None),
        ("$A", None), ("a$A", "a$A"), ("a${A}", None), ("$${A}", "${A}"), ("$", "$"), ("${1}", "${1}"), ("", ""), ("$$$$", "$$"),
    ],
)  # fmt: skip
def test_what_the_program_gets(decoded: str, text: str | None) -> None:
    assert literal(decoded) == text


def test_variables() -> None:
    assert [whole_variable(each) for each in ("${A_1}", "$B", "x${A}", "${A}${B}", "$$A", "${1}")] == [
        "A_1", "B", None, None, None, None,
    ]  # fmt: skip
    assert variables_in("${A}-${B}-${A}-$$-$C") == ("A", "B", "A")
    assert variables_in("$C") == ("C",)
    assert variables_in("$${A}") == ()
    assert [splits(each) for each in ("$A", "${A}", "$$", "$", "a$A")] == [True, False, False, False, False]
