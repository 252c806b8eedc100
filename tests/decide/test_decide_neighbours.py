"""Who is named: sums over looks, growth since the smallest, and who cannot have done it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.decide.neighbours import Finding, Look, Person, Seen, growers, is_inside, readers, relevant


def person(pid: int, *, parent: int = 0, cgroups: frozenset[str] = frozenset()) -> Person:
    return Person((pid, pid), pid, f"p{pid}", None, parent, cgroups)


def look(
    at: float, since: float | None, read: dict[int, int] | None = None, held: dict[int, int] | None = None
) -> Look:
    seen = [Seen(person(pid), read_bytes=count) for pid, count in (read or {}).items()]
    seen += [Seen(person(pid), anonymous_bytes=count) for pid, count in (held or {}).items()]
    return Look(at, at, since, tuple(seen))


def test_reads_are_added_up_over_the_window() -> None:
    looks = [look(0, None), look(30, 0, {1: 5}), look(60, 30, {1: 7, 2: 1}), look(90, 60, {2: 3})]
    found = {one.who.pid: (one.bytes, one.seconds) for one in readers(looks, 25)}
    assert found == {1: (7, 60), 2: (4, 60)}
    assert {one.who.pid: one.seconds for one in readers(looks, 85)} == {2: 30}, "the last look when none is as new"


def test_one_look_says_nothing_of_reads() -> None:
    assert readers([look(0, None, {1: 100})], 0) == ()
    assert readers([], 0) == ()


def test_growth_is_since_it_was_smallest() -> None:
    looks = [look(0, None, held={1: 50, 2: 90}), look(30, 0, held={1: 20, 2: 80}), look(60, 30, held={1: 70, 2: 60})]
    assert [(one.who.pid, one.bytes, one.seconds) for one in growers(looks, -1)] == [(1, 50, 30)]


def test_one_that_was_not_among_the_largest_was_smaller_than_they() -> None:
    looks = [look(0, None, held={1: 50, 2: 40}), look(30, 0, held={3: 100, 1: 50})]
    assert [(one.who.pid, one.bytes) for one in growers(looks, -1)] == [(3, 60)]


def test_one_that_has_just_been_started_did_not_grow_before() -> None:
    looks = [
        look(0, None, held={1: 50, 2: 10}),
        look(30, 0, held={1: 50, 2: 20}),
        look(60, 30, held={1: 50, 2: 30}),
        look(70, 60, held={1: 50, 3: 900}),
    ]
    assert [(one.who.pid, one.bytes, one.seconds) for one in growers(looks, -1)] == [(3, 870, 10)]


def test_one_look_says_nothing_of_growth() -> None:
    assert growers([look(0, None, held={1: 50})], -1) == ()


def test_not_the_backend_nor_what_it_started_nor_what_is_small() -> None:
    found = [
        Finding(person(1), "read", 500, 10),
        Finding(person(2, parent=1), "read", 400, 10),
        Finding(person(3), "grew", 300, 10),
        Finding(person(4), "read", 2, 10),
    ]
    assert [one.who.pid for one in relevant(found, {1}, None, 10)] == [3]
    assert [one.who.pid for one in relevant(found, {1}, None, 10, others={2})] == [2, 3], (
        "another backend of ours counts"
    )
    assert relevant(found, {1}, "/sys/fs/cgroup/box", 10) == ()


@pytest.mark.parametrize(
    ("paths", "inside"),
    [({"/box"}, True), ({"/box/inner"}, True), ({"/boxes"}, False), ({"/other", "/"}, False), (set(), False)],
)
def test_inside_a_cgroup(paths: set[str], inside: bool) -> None:
    assert is_inside(paths, "/sys/fs/cgroup/memory/box") is inside


@given(
    st.lists(
        st.tuples(
            st.dictionaries(st.integers(1, 5), st.integers(0, 99), max_size=4),
            st.dictionaries(st.integers(1, 5), st.integers(0, 99), max_size=4),
        ),
        max_size=8,
    ),
    st.floats(-10, 300),
)
def test_nobody_read_or_grew_more_than_was_seen(
    moments: list[tuple[dict[int, int], dict[int, int]]], since: float
) -> None:
    looks = [
        look(30.0 * number, 30.0 * (number - 1) if number else None, read, held)
        for number, (read, held) in enumerate(moments)
    ]
    for one in readers(looks, since):
        assert 0 < one.bytes <= sum(read.get(one.who.pid or 0, 0) for read, _ in moments)
    for one in growers(looks, since):
        assert 0 < one.bytes <= moments[-1][1][one.who.pid or 0]
        assert one.seconds > 0
