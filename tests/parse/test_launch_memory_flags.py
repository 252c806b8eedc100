"""How weights lie in memory, by the command line."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from moetuned.parse.launch_memory_flags import MemoryFlags, mapped_only, memory_flags


@pytest.mark.parametrize(
    ("words", "environ", "expected"),
    [
        ("", {}, MemoryFlags()),
        ("--no-repack", {}, MemoryFlags(repacks=False)),
        ("-nr --repack", {}, MemoryFlags()),
        ("", {"LLAMA_ARG_REPACK": "off"}, MemoryFlags(repacks=False)),
        ("", {"LLAMA_ARG_NO_REPACK": "1"}, MemoryFlags(repacks=False)),
        ("--mlock", {}, MemoryFlags(locks=True)),
        ("--no-mmap", {}, MemoryFlags(copies=True)),
        ("-lm mmap+mlock", {}, MemoryFlags(locks=True)),
        ("--load-mode mlock", {}, MemoryFlags(copies=True, locks=True)),
        ("--load-mode=none", {}, MemoryFlags(copies=True)),
        ("--load-mode", {}, MemoryFlags()),
        ("-lm mmap", {"LLAMA_ARG_LOAD_MODE": "mlock"}, MemoryFlags()),
        ("", {"LLAMA_ARG_LOAD_MODE": "dio"}, MemoryFlags(copies=True)),
        ("-ngl 99", {}, MemoryFlags(gpu=True)),
        ("-ngl 0", {"LLAMA_ARG_N_GPU_LAYERS": "9"}, MemoryFlags()),
        ("", {"LLAMA_ARG_N_GPU_LAYERS": "9"}, MemoryFlags(gpu=True)),
    ],
)
def test_each_flag(words: str, environ: dict[str, str], expected: MemoryFlags) -> None:
    assert memory_flags(words.split(), environ) == expected


def test_only_mapped() -> None:
    command = ["s", "--mlock", "-lm", "mlock", "--no-mmap", "--load-mode=none", "-m", "mlock"]
    assert mapped_only(command) == ["s", "-lm", "mmap", "--load-mode=mmap", "-m", "mlock"]


WORDS = st.sampled_from(
    ["--mlock", "--no-mmap", "-lm", "--load-mode", "mlock", "none", "-ngl", "--load-mode=dio", "-m", "=", ""]
)


@given(st.lists(WORDS | st.text(max_size=8)))
@example(["-lm", "--mlock", "mlock"])
def test_what_is_only_mapped_is_neither_locked_nor_copied(words: list[str]) -> None:
    flags = memory_flags(mapped_only(["s", *words])[1:], {})
    assert not flags.copies
    assert not flags.locks
