from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.parse.tmpfiles_conf import WrittenLine, in_force, parse_tmpfiles

THP = "/sys/kernel/mm/transparent_hugepage/enabled"


def only(text: str) -> WrittenLine:
    (line,) = parse_tmpfiles(text, "f.conf")
    return line


def test_a_line_as_it_is_commonly_written() -> None:
    assert only(f"# THP\n\nw {THP} - - - - never\n") == WrittenLine(THP, "never", False, False, "f.conf", 3)


@pytest.mark.parametrize(
    ("line", "value"),
    [
        (f"w! {THP} - - - - madvise", "madvise"),
        (f"w+!  {THP}\t-  - - -   defer+madvise  ", "defer+madvise"),
        (f'w "{THP}" - - - - a b', "a b"),
        (f"w {THP} - - - - never\\n", "never"),
        (f"w {THP} - - - - \\x31\\060", "10"),
        (f"w {THP} - - - - 100%%", "100%"),
        (f"w {THP} - - - - %m", None),
        (f"w~ {THP} - - - - bmV2ZXI=", None),
        (f"w^ {THP} - - - - name", None),
    ],
)
def test_arguments(line: str, value: str | None) -> None:
    assert (only(line).path, only(line).value) == (THP, value)


def test_flags() -> None:
    line = only(f"w+! {THP} - - - - 1")
    assert (line.appends, line.only_at_boot) == (True, True)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "#w /a - - - - b",
        "d /run/x 0755 root root -",
        "f /a - - - - b",
        f"w {THP}",
        f"w {THP} - - - -",
        "w",
        "w a - - - - b",
    ],
)
def test_other_lines_are_left_out(line: str) -> None:
    assert parse_tmpfiles(line, "f.conf") == ()


def test_the_earliest_line_of_a_path_counts() -> None:
    texts = [
        "w /a - - - - 1",
        "w /a - - - - 2",
        "w+ /a - - - - 3",
        "w+ /b - - - - 4",
        "w /b - - - - 5",
        "w+ /b - - - - 6",
    ]
    lines = in_force(parse_tmpfiles("\n".join(texts), "f"))
    assert [(line.path, line.value) for line in lines] == [("/a", "1"), ("/b", "4"), ("/b", "6")]


@pytest.mark.skipif(shutil.which("systemd-tmpfiles") is None, reason="needs systemd-tmpfiles")
def test_systemd_reads_the_same(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b c"
    text = f'w! {first} - - - - \\x31\\060%%  \nw {first} - - - - late\nw \'{second}\' - - - - -\nw "{second}" - - - - "q"\n'
    config = tmp_path / "x.conf"
    config.write_text(text)
    first.touch()
    second.touch()
    subprocess.run(["systemd-tmpfiles", "--create", "--boot", config], check=False, capture_output=True)
    expected = {line.path: line.value for line in in_force(parse_tmpfiles(text, "x.conf"))}
    assert expected == {str(first): "10%", str(second): '"q"'}
    assert {str(path): path.read_text().strip() for path in (first, second)} == expected


@given(st.text())
def test_any_text_is_answered(text: str) -> None:
    for line in in_force(parse_tmpfiles(text, "f")):
        assert line.path.startswith("/")


@given(st.text(st.sampled_from('w!+-~^ \t\n/ab"\\%x0'), max_size=60))
def test_text_that_looks_like_lines_is_answered(text: str) -> None:
    assert len(in_force(parse_tmpfiles(text, "f"))) <= text.count("\n") + 1
