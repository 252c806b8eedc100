"""Command lines and environments that may be shown to anybody."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.parse.llama_arguments import describe_arguments
from moetuned.parse.redact_command import HIDDEN, redact_arguments, redact_environment

HELP = (Path(__file__).parent.parent / "data" / "help" / "llama-server-b11434.txt").read_text()
FLAGS = sorted(set(re.findall(r"(?:^|, +)(-{1,2}[A-Za-z][\w.-]*)", HELP, re.MULTILINE)))
PATHS = {"-m", "--model", "-mm", "--mmproj", "-md", "--model-draft", "--spec-draft-model"}
REPOSITORIES = {"-hf", "-hfr", "--hf-repo", "-hff", "--hf-file"}
SECRET = "S3cr3tW0rd"


def redacted(*arguments: str, anonymous: bool = False) -> list[str]:
    return list(redact_arguments(("llama-server", *arguments), anonymous=anonymous))[1:]


def test_there_are_flags_in_the_help() -> None:
    assert {"-m", "--api-key", "-hft", "--no-repack", "--fim-qwen-1.5b-default"} <= set(FLAGS)


def test_what_a_report_needs_stays() -> None:
    line = [
        "-m",
        "/models/m.gguf",
        "-c",
        "16384",
        "--port",
        "8080",
        "--host",
        "127.0.0.1",
        "-ctk",
        "q8_0",
        "-fa",
        "on",
        "-ub",
        "1024",
        "-np",
        "1",
        "-cram",
        "0",
        "--no-repack",
        "--load-mode",
        "mmap",
        "-ngl",
        "99",
        "-ts",
        "3,1",
        "--n-cpu-moe",
        "30",
        "-ot",
        "blk\\.(1|2)\\.ffn_.*_exps\\.=CPU",
        "--metrics",
        "-hf",
        "ggml-org/gpt-oss-120b-GGUF",
    ]
    assert redacted(*line) == line
    assert redacted("--ctx-size=4096", "--cache-type-k=q4_0") == ["--ctx-size=4096", "--cache-type-k=q4_0"]


@pytest.mark.parametrize("flag", FLAGS)
def test_no_flag_lets_a_word_through_that_is_not_of_a_few(flag: str) -> None:
    if flag in PATHS | REPOSITORIES:
        return
    for arguments in ((flag, SECRET), (f"{flag}={SECRET}",), (flag, f"https://joe:{SECRET}@host/x?token={SECRET}")):
        assert SECRET not in " ".join(redacted(*arguments))


@pytest.mark.parametrize(
    "flag", ["--api-key", "-hft", "--hf-token", "--ssl-key-file", "--reverse-prompt", "--my-new-password"]
)
@pytest.mark.parametrize("value", ["1234", "on", "--metrics", "-c", SECRET])
def test_what_follows_a_key_is_hidden_whatever_it_looks_like(flag: str, value: str) -> None:
    assert redacted(flag, value, "--port", "81") == [flag, HIDDEN, "--port", "81"]
    assert redacted(f"{flag}={value}") == [f"{flag}={HIDDEN}"]


def test_words_with_key_in_them_that_take_no_secret() -> None:
    line = ["--cache-prompt", "-c", "512", "--image-max-tokens", "8", "--slot-prompt-similarity", "0.5", "--no-cache-prompt", "-np", "2"]  # fmt: skip
    assert redacted(*line) == line


@pytest.mark.parametrize(
    "argument", [SECRET, f"-{SECRET}", f"--{SECRET}", f"--x-{SECRET}=1", "--" + "a" * 300, "", "-", "--"]
)
def test_what_is_no_flag_is_hidden(argument: str) -> None:
    told = " ".join(redacted(argument, "--port", "81"))
    assert SECRET not in told
    assert "a" * 30 not in told
    assert told.endswith("--port 81")


def test_a_title_written_over_the_arguments_is_cut() -> None:
    assert redact_arguments((f"llama-server --api-key {SECRET} -m x",)) == ("llama-server",)
    assert redact_arguments(()) == ()


def test_anonymous_leaves_names_of_files() -> None:
    argv = ("/home/joe/bin/llama-server", "-m", "/home/joe/m.gguf", "-hf", "joe/private", "--log-file", "/home/joe/log")
    assert redact_arguments(argv, anonymous=True) == (
        "llama-server", "-m", "m.gguf", "-hf", HIDDEN, "--log-file", HIDDEN,
    )  # fmt: skip


def test_the_directory_for_saved_slots_is_told_and_whose_it_is_is_not() -> None:
    assert redacted("--slot-save-path", "/var/lib/slots", "-np", "1") == [
        "--slot-save-path",
        "/var/lib/slots",
        "-np",
        "1",
    ]
    assert redacted("--slot-save-path=/var/lib/slots") == ["--slot-save-path=/var/lib/slots"]
    assert redacted("--slot-save-path", "/home/joe", anonymous=True) == ["--slot-save-path", HIDDEN]
    assert redacted("--slot-save-path", f"https://joe:{SECRET}@host/x") == ["--slot-save-path", HIDDEN]


ARGUMENT = st.sampled_from(FLAGS) | st.text(max_size=12) | st.integers().map(str) | st.just(SECRET)


@given(st.lists(ARGUMENT | st.tuples(st.sampled_from(FLAGS), ARGUMENT).map("=".join), max_size=12))
def test_a_secret_in_any_place_is_never_told(arguments: list[str]) -> None:
    kept = PATHS | REPOSITORIES
    before = [None, *arguments]
    allowed = any(
        SECRET in one and (before[at] in kept or one.partition("=")[0] in kept) for at, one in enumerate(arguments)
    )
    told = redacted(*arguments)
    assert allowed or SECRET not in " ".join(told)
    assert len(told) == len(arguments)


def test_the_daemon_reads_the_same_from_it() -> None:
    line = ["-m", "/m.gguf", "-c", "8192", "-np", "2", "-ctk", "q8_0", "-t", "4", "--port", "8081", "-cram", "-1"]
    assert describe_arguments(redacted(*line), {}) == describe_arguments(line, {})


def test_of_the_environment_only_how_it_runs_is_told() -> None:
    variables = {
        "LLAMA_ARG_CTX_SIZE": "4096",
        "LLAMA_ARG_MODEL": "/home/joe/m.gguf",
        "LLAMA_ARG_ALIAS": SECRET,
        "LLAMA_ARG_API_KEY": "1234",
        "LLAMA_ARG_HF_TOKEN": SECRET,
        f"LLAMA_ARG_{SECRET}": "1",
        "OMP_NUM_THREADS": "8",
        "LLAMA_API_KEY": SECRET,
        "HF_TOKEN": SECRET,
        "HOME": "/home/joe",
    }
    assert redact_environment(variables) == {
        "LLAMA_ARG_ALIAS": HIDDEN,
        "LLAMA_ARG_API_KEY": HIDDEN,
        "LLAMA_ARG_CTX_SIZE": "4096",
        "LLAMA_ARG_HF_TOKEN": HIDDEN,
        "LLAMA_ARG_MODEL": "/home/joe/m.gguf",
        "OMP_NUM_THREADS": "8",
    }
    assert redact_environment(variables, anonymous=True)["LLAMA_ARG_MODEL"] == "m.gguf"


@pytest.mark.parametrize(
    "line", [["/home/Alice Smith/bin/llama-server"], ["/home/Alice Smith/llama-server", "-c", "1"]]
)
def test_a_directory_with_a_space_tells_nothing_when_anonymous(line: list[str]) -> None:
    assert redact_arguments(line, anonymous=True)[0] == HIDDEN


def test_a_title_keeps_its_program_when_anonymous() -> None:
    assert redact_arguments([f"llama-server -m /x --api-key {SECRET}"], anonymous=True) == ("llama-server",)


@pytest.mark.parametrize("anonymous", [False, True])
def test_an_address_is_no_path_of_a_model(anonymous: bool) -> None:
    assert SECRET not in " ".join(redacted("-m", f"https://alice:{SECRET}@example.org/m.gguf"))
    assert redacted("-m", "https://example.org/m.gguf", anonymous=anonymous) == ["-m", HIDDEN]
