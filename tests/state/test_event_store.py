from __future__ import annotations

import os
import resource
import stat
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.host.durable_file import NotPrivateError
from moetuned.schema.event import Event, EventName
from moetuned.schema.verdict import Reason
from moetuned.state import event_store
from moetuned.state.event_store import append, last, read_all


def event(number: int) -> Event:
    reason = Reason("paging", "refault_ratio", 0.9, 0.5, 12.0, "refaults")
    return Event(
        f"1-{number:06x}", EventName.THRASH_BEGIN, 1.0 * number, 2.0, "glm", f"event {number} ünd\nso", (reason,)
    )


@pytest.fixture
def directory(tmp_path: Path) -> str:
    return str(tmp_path / "state")


def numbers(events: list[Event]) -> list[int]:
    return [int(each.id.partition("-")[2], 16) for each in events]


def test_they_come_back_in_order(directory: str) -> None:
    assert last(5, directory) == read_all(directory) == []
    append([event(1), event(2)], directory)
    append([event(3)], directory)
    assert read_all(directory) == [event(1), event(2), event(3)]
    assert last(2, directory) == [event(2), event(3)]
    assert last(3, directory) == last(99, directory) == read_all(directory)
    assert stat.S_IMODE(os.stat(f"{directory}/events.jsonl").st_mode) == 0o600


def test_the_two_files_are_bounded(directory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_store, "LIMIT_BYTES", 1000)
    for number in range(50):
        append([event(number)], directory)
        assert sum(os.stat(f"{directory}/{name}").st_size for name in os.listdir(directory)) <= 2000
    found = numbers(read_all(directory))
    assert found == list(range(found[0], 50))
    assert len(found) >= 4
    assert numbers(last(len(found), directory)) == found
    assert sorted(os.listdir(directory)) == ["events.jsonl", "events.jsonl.1"]


@pytest.mark.parametrize("cut", range(1, 12))
def test_a_last_line_that_was_cut_spoils_no_other(directory: str, cut: int) -> None:
    append([event(1), event(2)], directory)
    path = Path(directory, "events.jsonl")
    path.write_bytes(path.read_bytes()[:-cut])
    append([event(3)], directory)
    assert numbers(read_all(directory)) in ([1, 3], [1, 2, 3])
    assert numbers(last(2, directory))[-1] == 3


def test_rubbish_is_passed_over(directory: str) -> None:
    append([event(1)], directory)
    with open(f"{directory}/events.jsonl", "ab") as file:
        file.write(b'\x00\xff\n[]\n{"id": 5}\n\n' + b'"' * 100_000 + b"\n")
    append([event(2)], directory)
    assert numbers(read_all(directory)) == [1, 2]


@pytest.mark.parametrize("wall_seconds", [1e300, -1e300, -5.0, 4e11])
def test_a_time_that_no_calendar_has_makes_no_sense(directory: str, wall_seconds: float) -> None:
    append([event(1), msgspec.structs.replace(event(2), wall_seconds=wall_seconds), event(3)], directory)
    assert numbers(read_all(directory)) == numbers(last(9, directory)) == [1, 3]


def test_what_fits_only_in_part_is_not_there_twice_later(directory: str) -> None:
    append([event(1)], directory)
    before = os.stat(f"{directory}/events.jsonl").st_size
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (before + 500, limits[1]))  # stands for a disk that is full
    try:
        for _ in range(2):
            with pytest.raises(OSError, match="too large"):
                append([event(number) for number in range(2, 6)], directory)
            assert os.stat(f"{directory}/events.jsonl").st_size == before
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    append([event(number) for number in range(2, 6)], directory)
    assert numbers(read_all(directory)) == [1, 2, 3, 4, 5]


def test_nothing_is_kept_where_nobody_would_read_it(directory: str) -> None:
    append([event(1)], directory)
    os.unlink(f"{directory}/events.jsonl")
    os.mkfifo(f"{directory}/events.jsonl")
    with pytest.raises(NotPrivateError) as caught:
        append([event(2)], directory)
    assert str(caught.value) == f"{directory}/events.jsonl {caught.value.strerror}"


def test_links_are_not_followed(directory: str, tmp_path: Path) -> None:
    append([event(1)], directory)
    os.rename(f"{directory}/events.jsonl", tmp_path / "elsewhere")
    os.symlink(tmp_path / "elsewhere", f"{directory}/events.jsonl")
    with pytest.raises(OSError, match="symbolic links"):
        append([event(2)], directory)


@given(st.lists(st.integers(1, 8), max_size=20), st.integers(1, 30))
def test_the_newest_are_the_end_of_all(
    tmp_path_factory: pytest.TempPathFactory, batches: list[int], count: int
) -> None:
    directory = str(tmp_path_factory.mktemp("events") / "state")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(event_store, "LIMIT_BYTES", 2500)
        number = 0
        for batch in batches:
            append([event(number + each) for each in range(batch)], directory)
            number += batch
        kept = read_all(directory)
        assert kept == [event(each) for each in range(number)][-len(kept) :] if kept else number == 0
        assert last(count, directory) == kept[-count:]
