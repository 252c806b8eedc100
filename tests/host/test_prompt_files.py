"""Where prompts come from."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from moetuned.host.prompt_files import load_prompts
from moetuned.parse.config_problem import ConfigError
from moetuned.parse.prompt_list import LIMIT_BYTES


def test_off_is_none() -> None:
    assert load_prompts("off") == ()


def test_the_shipped_set_is_short_varied_and_in_several_scripts() -> None:
    prompts = load_prompts("default")
    assert 20 <= len(prompts) <= 60
    assert len(set(prompts)) == len(prompts)
    assert max(map(len, prompts)) <= 300
    text = "".join(prompts)
    for letter in ("def", "#include", "SELECT", "Proof", "User:", "ä", "é", "日", "请", "О", "ا", "भ"):
        assert letter in text or letter.casefold() in text.casefold(), letter


def test_it_is_part_of_the_package() -> None:
    config = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    assert 'moetuned = ["py.typed", "data/*.yaml"' in config


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text("- mine\n")
    assert load_prompts(str(path)) == ("mine",)


@pytest.mark.parametrize(
    ("data", "hint"),
    [
        (b"- a\n- \xff\n", "own.yaml:2: is not UTF-8 text"),
        (b"- " + b"x" * (LIMIT_BYTES + 1), "is larger than 256 KiB"),
        (b"a: b", "own.yaml:1: must be a list"),
        (None, "cannot be read: No such file or directory"),
    ],
)
def test_what_cannot_be_used_says_why(tmp_path: Path, data: bytes | None, hint: str) -> None:
    path = tmp_path / "own.yaml"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(ConfigError) as caught:
        load_prompts(str(path))
    assert hint in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_fifo_or_a_directory_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", tmp_path):
        with pytest.raises(ConfigError, match="no regular file"):
            load_prompts(str(path))
