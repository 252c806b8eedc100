import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.xllamacpp_server.flags import LLAMA_SERVER_FLAGS, FlagError, help_text, parse_flags, required_model


def parse(*argv, **environment):
    return parse_flags(LLAMA_SERVER_FLAGS, list(argv), environment)


def test_the_usual_command_line():
    line = "-m m.gguf -c 4096 -np 2 -t 3 -ctk q8_0 -cram 512 -ctxcp 1 -nr --metrics --no-warmup -fit off"
    values = parse(*line.split())
    assert values["model"] == "m.gguf"
    assert (values["context"], values["parallel"], values["threads"], values["cache_ram"]) == (4096, 2, 3, 512)
    assert (values["cache_type_k"], values["cache_type_v"], values["checkpoints"]) == ("q8_0", "f16", 1)
    assert (values["repack"], values["metrics"], values["warmup"], values["fit"]) == (False, True, False, "off")


def test_defaults_are_llama_servers():
    values = parse()
    assert (values["context"], values["parallel"], values["cache_ram"], values["checkpoints"]) == (0, -1, 8192, 32)
    assert (values["repack"], values["metrics"], values["slots"], values["port"]) == (True, False, True, 8080)
    assert (values["batch"], values["ubatch"], values["load_mode"]) == (2048, 512, "auto")


def test_the_last_flag_wins_and_the_command_line_beats_the_environment():
    assert parse("-c", "1", "--ctx-size", "2")["context"] == 2
    assert parse("--no-repack", "--repack")["repack"] is True
    assert parse(LLAMA_ARG_CTX_SIZE="7")["context"] == 7
    assert parse("-c", "1", LLAMA_ARG_CTX_SIZE="7")["context"] == 1
    assert parse(LLAMA_ARG_REPACK="off", LLAMA_ARG_ENDPOINT_METRICS="1") | {} == parse("-nr", "--metrics")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--no-mmap"], "invalid argument: --no-mmap"),
        (["--mlock"], "invalid argument: --mlock"),
        (["file.gguf"], "invalid argument: file.gguf"),
        (["-c=5"], "invalid argument: -c=5"),
        (["-c"], "expected value for argument: -c"),
        (["-c", "many"], "-c: 'many' is no whole number"),
        (["-c", "-1"], "-c: -1 is not between 0 and"),
        (["--port", "70000"], "--port: 70000 is not between 0 and 65535"),
        (["-ctk", "f17"], "-ctk: 'f17' is not one of f32, f16"),
        (["-fa"], "expected value for argument: -fa"),
    ],
)
def test_mistakes_name_the_flag(argv, message):
    with pytest.raises(FlagError) as wrong:
        parse(*argv)
    assert message in str(wrong.value)


def test_a_mistake_in_the_environment_names_the_variable():
    with pytest.raises(FlagError, match="LLAMA_ARG_CTX_SIZE"):
        parse(LLAMA_ARG_CTX_SIZE="x")
    with pytest.raises(FlagError, match="LLAMA_ARG_REPACK"):
        parse(LLAMA_ARG_REPACK="perhaps")


def test_no_model_is_said():
    with pytest.raises(FlagError, match="-m FILE"):
        required_model(parse())
    assert required_model(parse("-m", "a")) == "a"


@given(
    st.lists(
        st.sampled_from([name for flag in LLAMA_SERVER_FLAGS for name in flag.on + flag.off] + ["1", "on", "x", ""]),
        max_size=8,
    )
)
def test_any_words_give_values_or_one_clear_error(argv):
    try:
        values = parse(*argv)
    except FlagError:
        return
    assert set(values) == {flag.key for flag in LLAMA_SERVER_FLAGS}
    assert all(isinstance(values[flag.key], type(flag.default)) for flag in LLAMA_SERVER_FLAGS)


def test_help_has_every_name_at_the_start_of_a_line_as_llama_server_does():
    shown = help_text("usage: x", LLAMA_SERVER_FLAGS)
    found = set()
    for line in shown.splitlines():
        if line.startswith("-") and not line.startswith("-----"):
            found.update(re.findall(r"(?:^|, )(--?[a-z][a-z-]*)", line[:60]))
    for flag in LLAMA_SERVER_FLAGS:
        assert set(flag.on + flag.off) <= found
        assert not flag.variable or f"(env: {flag.variable})" in shown


def test_no_name_is_used_twice():
    names = [name for flag in LLAMA_SERVER_FLAGS for name in flag.on + flag.off]
    assert len(names) == len(set(names))
