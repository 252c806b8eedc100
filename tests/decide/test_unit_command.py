"""Where a value stands on a unit's command, and the command with a variable there."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.decide.unit_command import (
    CommandError,
    Value,
    environment_of,
    find_value,
    read_command,
    uncertain_words,
    with_variables,
)
from moetuned.parse.exec_words import literal, split_words
from moetuned.parse.unit_file import ServiceText

CONTEXT = ("-c", "--ctx-size")


def service(*commands: str, **more: object) -> ServiceText:
    return ServiceText(commands=tuple(("/u", each) for each in commands), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("raw", "after"),
    [
        ("/bin/llama-server -m /m.gguf -c 4096 -np 1", "/bin/llama-server -m /m.gguf -c ${X} -np 1"),
        ('llama-server --ctx-size "4096"  -m "/a b.gguf"', 'llama-server --ctx-size ${X}  -m "/a b.gguf"'),
        ("llama-server --ctx-size=4096", "llama-server --ctx-size=${X}"),
        ("llama-server '--ctx_size=4096' -a 100%%", "llama-server --ctx_size=${X} -a 100%%"),
        ("llama-server -c 1 --ctx-size 2", "llama-server -c 1 --ctx-size ${X}"),
        ("-llama-server -c 4096 --alias a\\sb", "-llama-server -c ${X} --alias a\\sb"),
    ],
)
def test_only_the_value_is_replaced(raw: str, after: str) -> None:
    command = read_command(service(raw))
    value = find_value(command, CONTEXT)
    assert value is not None
    assert value.text in ("4096", "2")
    assert with_variables(command, [(value, "X")]) == after


def test_two_values_in_any_order() -> None:
    command = read_command(service("x -np 4 -c 4096"))
    context, slots = find_value(command, CONTEXT), find_value(command, ("-np",))
    assert context is not None
    assert slots is not None
    assert with_variables(command, [(context, "C"), (slots, "S")]) == "x -np ${S} -c ${C}"


@pytest.mark.parametrize(
    ("raw", "text", "variable"),
    [
        ("x -c ${CTX}", None, "CTX"),
        ("x --ctx-size=${CTX} --port ${PORT}", None, "CTX"),
        ("x -c ${N} -b ${N}", None, None),
        ("x -c ${N} --alias model-${N}", None, None),
        ("x -c %i", None, None),
        ("x -c 4${K}", None, None),
        ("x -c $$5", "$5", None),
    ],
)
def test_what_the_value_is(raw: str, text: str | None, variable: str | None) -> None:
    value = find_value(read_command(service(raw)), CONTEXT)
    assert value is not None
    assert (value.text, value.variable) == (text, variable)


def test_a_value_that_looks_like_the_flag_is_no_flag() -> None:
    command = read_command(service("x -c -c -np 1"))
    assert find_value(command, CONTEXT) == Value(5, 7, "", "-c", None)
    assert find_value(command, ("--none",)) is None
    with pytest.raises(CommandError, match="-c without a value"):
        find_value(read_command(service("x -np 1 -c")), CONTEXT)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (service(), "has no ExecStart="),
        (service("a", "b"), "more than one ExecStart="),
        (service("a ; b"), "more than one command"),
        (service("a", type="oneshot"), "is of type oneshot"),
        (service(":a -c 1"), "begins with :"),
        (service("@a b -c 1"), "begins with @"),
        (service("+@a b -c 1"), "begins with @"),
        (service("|a -c 1"), r"begins with \|"),
        (service("a 'b"), "a command that has a quote"),
        (service("a \\x41"), "a command that has an escape"),
    ],
)
def test_what_is_not_one_plain_command(text: ServiceText, said: str) -> None:
    with pytest.raises(CommandError, match=said):
        read_command(text)


def test_an_escaped_semicolon_is_a_word() -> None:
    assert read_command(service(r"a \; b")).argv == ("a", ";", "b")


@pytest.mark.parametrize(
    ("raw", "unsure"),
    [
        ("x $MORE -c 1", ("$MORE",)),
        ("x -m $MODEL", ("$MODEL",)),
        ("x ${FLAG} -c 1", ("${FLAG}",)),
        ("x %i", ("%i",)),
        ("x -m ${MODEL} --port=${PORT} --alias %i -c 1", ()),
        ("x --a=b ${FLAG}", ("${FLAG}",)),
    ],
)
def test_words_that_may_be_flags(raw: str, unsure: tuple[str, ...]) -> None:
    assert uncertain_words(read_command(service(raw))) == unsure


def test_variables_of_the_unit() -> None:
    text = ServiceText(environment=(("/u", "A=1 \"B=x y\" 'C=$5'"), ("/d", "A=2 D=%i E=100%% F")))
    assert environment_of(text) == {"A": "2", "B": "x y", "C": "$5", "D": None, "E": "100%"}
    with pytest.raises(CommandError, match="an Environment= that has a quote"):
        environment_of(ServiceText(environment=(("/u", "A='"),)))


word = st.text(alphabet=st.sampled_from("abz019-=_/. \"'\\;%"), min_size=1, max_size=8)


@given(st.lists(word, max_size=5), st.lists(word, max_size=5), st.integers(0, 10**9))
def test_all_other_words_stay_as_they_were(before: list[str], after: list[str], number: int) -> None:
    def quoted(text: str) -> str:
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%") + '"'

    words = ["/bin/x", *before, "-c", str(number), *(each for each in after if each != "-c")]
    raw = " ".join(map(quoted, words))
    command = read_command(service(raw))
    value = find_value(command, ("-c",))
    assert value is not None
    again = [literal(each.decoded) or each.decoded for each in split_words(with_variables(command, [(value, "X")]))]
    assert len(again) == len(words)
    changed = [(old, new) for old, new in zip(words, again, strict=True) if old != new]
    assert changed == [(value.text, "${X}")]
