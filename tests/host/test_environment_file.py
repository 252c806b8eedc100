"""The file of variables: whole or not at all, and the way back."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.host.environment_file import age_seconds, forget, read_variables, settled, take_back, write_variables


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "run/backends")


def test_it_says_what_was_written_for_root_alone(place: str) -> None:
    assert read_variables("glm", place) == {}
    write_variables("glm", {"MOETUNED_CONTEXT": "4096", "LLAMA_ARG_CACHE_TYPE_K": "q8_0"}, place)
    assert read_variables("glm", place) == {"MOETUNED_CONTEXT": "4096", "LLAMA_ARG_CACHE_TYPE_K": "q8_0"}
    status = os.stat(f"{place}/glm.env")
    assert stat.S_IMODE(status.st_mode) == 0o600
    assert sorted(os.listdir(place)) == ["glm.env", "glm.env.before"]


def test_the_way_back_over_one_change(place: str) -> None:
    assert not take_back("glm", place)
    write_variables("glm", {"A": "1"}, place)
    settled("glm", place)
    assert not take_back("glm", place)
    write_variables("glm", {"A": "2", "B": "3"}, place)
    assert take_back("glm", place)
    assert read_variables("glm", place) == {"A": "1"}
    assert not take_back("glm", place)


def test_the_way_back_over_a_change_that_was_interrupted_and_tried_again(place: str) -> None:
    write_variables("glm", {"A": "1"}, place)
    settled("glm", place)
    for value in ("2", "3"):  # the daemon was killed in between
        write_variables("glm", {"A": value}, place)
    assert take_back("glm", place)
    assert read_variables("glm", place) == {"A": "1"}


def test_its_age(place: str) -> None:
    assert age_seconds("glm", place) is None
    write_variables("glm", {"A": "1"}, place)
    os.utime(f"{place}/glm.env", (0, 1_000_000_000))
    age = age_seconds("glm", place)
    assert age is not None
    assert age > 1e8


def test_back_to_no_file(place: str) -> None:
    write_variables("glm", {"A": "1"}, place)
    assert take_back("glm", place)
    assert os.listdir(place) == []


def test_forgetting_leaves_nothing(place: str) -> None:
    forget("glm", place)
    write_variables("glm", {"A": "1"}, place)
    forget("glm", place)
    assert os.listdir(place) == []


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("A", "1\nB=2"), ("A", "$(x)"), ("A", ""), ("A", "a b"), ("A", "--x"), ("a", "1"), ("A=B", "1"), ("", "1"), ("A", "1" * 11),
        ("A", "Q8_0"), ("A", '"1"'),
    ],
)  # fmt: skip
def test_only_numbers_and_words_are_written(place: str, variable: str, value: str) -> None:
    with pytest.raises(ValueError, match="is nothing that moetuned gives a backend"):
        write_variables("glm", {variable: value}, place)
    assert not os.path.exists(place)


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "a\n", "x" * 64])
def test_a_name_is_no_path(place: str, name: str) -> None:
    for act in (
        lambda: write_variables(name, {}, place),
        lambda: read_variables(name, place),
        lambda: forget(name, place),
    ):
        with pytest.raises(ValueError, match="no name of a backend"):
            act()


@pytest.mark.parametrize("step", ["open", "fsync", "replace"])
@pytest.mark.parametrize("after", [0, 1])
def test_a_disk_that_is_full_changes_nothing(
    place: str, monkeypatch: pytest.MonkeyPatch, step: str, after: int
) -> None:
    """Also where what was kept of the time before could be written and the file itself could not."""
    write_variables("glm", {"A": "1"}, place)
    settled("glm", place)
    real = getattr(os, step)
    calls = 0

    def full(*arguments: object, **keys: object) -> object:
        nonlocal calls
        mine = step == "fsync" or any(str(each).endswith(".new") for each in arguments)
        calls += mine
        if mine and calls == after + 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(*arguments, **keys)

    monkeypatch.setattr(os, step, full)
    with pytest.raises(OSError, match="No space left") as caught:
        write_variables("glm", {"A": "2"}, place)
    monkeypatch.undo()
    assert caught.value.filename.startswith(f"{place}/glm.env")
    assert read_variables("glm", place) == {"A": "1"}
    assert not [name for name in os.listdir(place) if name.endswith(".new")]


def test_a_link_in_its_place_is_not_followed(place: str, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.write_text("A=5\n")
    os.makedirs(place, 0o700)
    os.symlink(theirs, f"{place}/glm.env")
    with pytest.raises(OSError, match="symbolic links"):
        read_variables("glm", place)
    with pytest.raises(OSError, match="symbolic links"):
        write_variables("glm", {"A": "1"}, place)
    assert theirs.read_text() == "A=5\n"


def test_a_directory_that_others_may_write_in_is_refused(place: str) -> None:
    os.makedirs(place)
    os.chmod(place, 0o777)
    with pytest.raises(OSError, match="writable by nobody else"):
        write_variables("glm", {"A": "1"}, place)


def test_lines_of_somebody_else_are_passed_over(place: str) -> None:
    write_variables("glm", {"A": "1"}, place)
    with open(f"{place}/glm.env", "ab") as file:
        file.write(b"PATH=/tmp:/bin\nB='2'\n\xff\nC=3")
    assert read_variables("glm", place) == {"A": "1", "C": "3"}


@given(
    st.dictionaries(
        st.from_regex(r"[A-Z][A-Z0-9_]{0,9}", fullmatch=True),
        st.from_regex(r"-?[0-9]{1,10}|q[0-9]_[01]", fullmatch=True),
    )
)
def test_what_was_written_is_read(tmp_path_factory: pytest.TempPathFactory, values: dict[str, str]) -> None:
    place = str(tmp_path_factory.mktemp("env") / "b")
    write_variables("x", values, place)
    assert read_variables("x", place) == values
