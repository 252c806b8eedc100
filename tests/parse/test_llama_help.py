from __future__ import annotations

import pathlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.parse.llama_help import parse_help

B11434 = (pathlib.Path(__file__).parent.parent / "data" / "help" / "llama-server-b11434.txt").read_text()
OLD = """\
usage: ./llama-server [options]

  -h,    --help, --usage          print usage and exit
  -t,    --threads N              number of threads to use during generation (default: -1)
*        --no-mmap                do not memory-map model (slower load but may reduce pageouts if not using mlock)
  -fa,   --flash-attn             enable Flash Attention (default: disabled)
         --defer-experts          load experts when they are first used
"""


@pytest.mark.parametrize(
    ("spelling", "value"),
    [
        ("-c", "N"),
        ("--ctx-size", "N"),
        ("-fa", "[on|off|auto]"),
        ("--no-repack", ""),
        ("-nr", ""),
        ("--swa-checkpoints", "N"),
        ("--metrics", ""),
        ("--n-gpu-layers", "N"),
        ("-ot", "<tensor name pattern>=<buffer type>,..."),
    ],
)
def test_flags_of_a_real_help(spelling: str, value: str):
    known = parse_help(B11434)
    assert known.flags[spelling].value == value


def test_words_that_a_flag_takes():
    known = parse_help(B11434)
    assert known.takes("--load-mode", "mmap")
    assert known.takes("-lm", "mmap+mlock")
    assert not known.takes("--load-mode", "everything")
    assert known.takes("-fa", "on")
    assert not known.takes("--threads", "on")
    assert not known.takes("--no-such-flag", "on")


def test_an_older_layout():
    known = parse_help(OLD)
    assert known.knows("--no-mmap")
    assert known.knows("--defer-experts")
    assert not known.knows("--load-mode")
    assert known.flags["-fa"].value == ""
    assert not known.takes("-fa", "on")


def test_the_gone_flags_are_not_there():
    known = parse_help(B11434)
    assert not any(known.knows(flag) for flag in ("--no-mmap", "--mmap", "--mlock", "--direct-io"))


@given(st.text(alphabet=st.sampled_from("-, \nabcN[]|:*<>"), max_size=400))
def test_any_text_ends_in_flags_that_begin_with_a_hyphen(text: str):
    assert all(spelling.startswith("-") for spelling in parse_help(text).flags)
