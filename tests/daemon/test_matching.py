"""Which found process is which backend."""

from __future__ import annotations

import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.daemon.discovery import FoundBackend
from moetuned.daemon.matching import match
from moetuned.daemon.watched import Watched
from moetuned.decide.supervision import LaunchPlan, Supervision
from moetuned.host.processes import ProcessIdentity
from moetuned.schema.backend_description import BackendDescription
from moetuned.schema.config import Backend
from moetuned.schema.supervise import SuperviseUnit


class Owner:
    """As much of a supervisor as matching looks at."""

    def __init__(self, pid: int | None) -> None:
        self.identity = None if pid is None else ProcessIdentity(pid, 1)
        self.by_search = False
        self.state = Supervision("glm", LaunchPlan(2048))


def found(pid: int, session: int | None = None, port: int = 8080, kind: str = "llama-server") -> FoundBackend:
    url = f"http://127.0.0.1:{port}"
    return FoundBackend(ProcessIdentity(pid, 1), kind, BackendDescription(url=url), (), session or pid, None)


def watched(name: str, config: Backend | None = None, holds: int | None = None, main: int | None = None) -> Watched:
    each = Watched(name, config, 0.0)
    each.process = None if holds is None else ProcessIdentity(holds, 1)
    if main is not None:
        each.supervisor = Owner(main)  # type: ignore[assignment]
    return each


def names(matches: list) -> dict[int, str | None]:
    return {each.identity.pid: None if owner is None else owner.name for each, owner in matches}


def test_a_process_in_a_supervised_session_is_that_backend() -> None:
    glm = watched("glm", Backend("glm"), main=10)
    assert names(match([found(11, session=10), found(20)], [glm])) == {11: "glm", 20: None}


def test_what_runs_in_its_unit_is_the_units_backend_and_no_second_one() -> None:
    """A server that its launcher left alone is the child of PID 1, in a session of its own."""
    glm = watched("glm", Backend("glm", supervise=SuperviseUnit(unit="glm.service")), main=10)
    glm.supervisor.state = Supervision("glm", LaunchPlan(2048), managed=True)
    server = msgspec.structs.replace(found(30), services=frozenset({"glm.service"}))
    other = msgspec.structs.replace(found(40), services=frozenset({"other.service"}))
    assert names(match([server, other], [glm])) == {30: "glm", 40: None}


@pytest.mark.parametrize("managed", [True, False])
def test_below_a_managers_main_process_also_in_another_session(managed: bool) -> None:
    """A child of the daemon's is ended with its session only, so what left that is not taken for it."""
    glm = watched("glm", Backend("glm"), main=10)
    glm.supervisor.state = Supervision("glm", LaunchPlan(2048), managed=managed)
    server = msgspec.structs.replace(found(30), above=(20, 10))
    forked = found(10, session=5)
    assert names(match([server, found(40)], [glm])) == {30: "glm" if managed else None, 40: None}
    assert names(match([forked], [glm])) == {10: "glm" if managed else None}


@pytest.mark.parametrize(("holds", "expected"), [(None, 10), (12, 12), (10, 10), (99, 10)])
def test_of_several_in_a_session_one_is_taken_and_kept(holds: int | None, expected: int) -> None:
    glm = watched("glm", Backend("glm"), holds=holds, main=10)
    in_session = [found(pid, session=10) for pid in (10, 11, 12)]
    assert names(match(in_session, [glm])) == {expected: "glm"}


def test_what_is_being_ended_is_nobodys() -> None:
    assert match([found(11, session=10)], [], leaving={10}) == []


def test_a_configured_backend_goes_before_one_that_was_found() -> None:
    nobodys = watched("llama-server-8080", None, holds=20)
    glm = watched("glm", Backend("glm", url="http://127.0.0.1:8080"))
    assert names(match([found(20)], [nobodys, glm])) == {20: "glm"}


def test_it_keeps_the_process_it_has() -> None:
    one = watched("one", Backend("one", kind="llama-server"), holds=21)
    other = watched("other", Backend("other", kind="llama-server"))
    assert names(match([found(20), found(21)], [one, other])) == {21: "one", 20: "other"}
    known = watched("llama-server-8080", None, holds=20)
    assert names(match([found(20)], [known])) == {20: "llama-server-8080"}


def test_a_supervised_backend_without_a_process_takes_nobody_elses() -> None:
    glm = watched("glm", Backend("glm", url="http://127.0.0.1:8080"))
    glm.supervisor = Owner(None)  # type: ignore[assignment]
    assert names(match([found(20)], [glm])) == {20: None}


@given(
    st.lists(st.tuples(st.integers(10, 14), st.integers(10, 14)), max_size=6, unique_by=lambda pair: pair[0]),
    st.lists(st.tuples(st.sampled_from(["own", "kind", "found"]), st.integers(10, 14)), max_size=6),
    st.sets(st.integers(10, 14), max_size=2),
)
def test_nobody_gets_two_and_no_process_is_given_twice(processes, entries, leaving) -> None:
    owners = []
    for number, (what, pid) in enumerate(entries):
        config = None if what == "found" else Backend(f"b{number}", kind="llama-server")
        owners.append(watched(f"b{number}", config, holds=pid, main=pid if what == "own" else None))
    matches = match([found(pid, session) for pid, session in processes], owners, leaving)
    given_to = [owner for _, owner in matches if owner is not None]
    assert all(one is not other for one, other in itertools.combinations(given_to, 2))
    pids = [each.identity.pid for each, _ in matches]
    assert len(pids) == len(set(pids))
    assert not {each.session for each, _ in matches} & leaving


def test_one_whose_manager_knows_no_process_is_found_by_what_it_is() -> None:
    script = watched("script", Backend(name="script", url="http://127.0.0.1:8080"))
    script.supervisor = Owner(None)  # type: ignore[assignment]
    script.supervisor.by_search = True  # type: ignore[misc]
    each = found(7)
    assert match([each], [script]) == [(each, script)]
