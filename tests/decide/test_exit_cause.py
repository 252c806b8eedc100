"""Why a backend ended: only what there is evidence for."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.decide.exit_cause import EVENT_OF, WAITS_FOR, Cause, Evidence, Obstacle, ending
from moetuned.schema.event import EventName, is_kind_of
from moetuned.schema.oom_kill import OomKill

KILLED = Evidence(812, "was ended by SIGKILL", 9)
OTHER = OomKill(813, 5.0, "/x")
TAKEN = Obstacle(Cause.PORT_TAKEN, "port 8080 is taken by nginx (pid 7)")


@pytest.mark.parametrize(
    ("changes", "cause", "text"),
    [
        ({"logged": (OTHER, OomKill(812, 6.0, "/m/glm"))}, Cause.OOM_KILLED, "the cgroup /m/glm was at its limit"),
        ({"logged": (OomKill(812, 6.0, ""),)}, Cause.OOM_KILLED, "the machine had no memory left"),
        ({"logged": (OomKill(812, 6.0),)}, Cause.OOM_KILLED, "the kernel log names it"),
        ({"counted": 1}, Cause.OOM_KILLED, "in its memory cgroup at that moment"),
        ({"counted": 1, "logged": (OTHER,)}, Cause.EXIT, "not by the kernel's OOM killer, whose log does not name it"),
        ({"counted": 0, "logged": ()}, Cause.EXIT, "not by the kernel's OOM killer, whose log does not name it"),
        ({"counted": 0}, Cause.EXIT, "its memory cgroup counts no kill"),
        ({}, Cause.EXIT, "whether by the kernel's OOM killer is not known"),
    ],
)
def test_a_sigkill(changes: dict, cause: Cause, text: str) -> None:
    found = ending(msgspec.structs.replace(KILLED, **changes))
    assert found.cause is cause
    assert text in found.how


def test_one_whose_signal_is_not_known() -> None:
    adopted = Evidence(812, "ended")
    assert ending(adopted) == ending(msgspec.structs.replace(adopted, logged=()))
    assert ending(adopted).how == "ended"
    assert ending(msgspec.structs.replace(adopted, logged=(OomKill(812, 6.0),))).cause is Cause.OOM_KILLED
    assert ending(msgspec.structs.replace(adopted, obstacle=TAKEN)).cause is Cause.PORT_TAKEN


def test_an_exit_code_is_no_signal() -> None:
    plain = Evidence(812, "exited with code 1", 0, counted=3, logged=(OomKill(812, 6.0),))
    assert ending(plain).cause is Cause.EXIT
    taken = ending(msgspec.structs.replace(plain, obstacle=TAKEN))
    assert taken.cause is Cause.PORT_TAKEN
    assert taken.how == "exited with code 1: port 8080 is taken by nginx (pid 7)"


def test_what_another_signal_ended_did_not_end_for_its_port() -> None:
    assert ending(Evidence(812, "was ended by SIGSEGV", 11, counted=1, obstacle=TAKEN)).cause is Cause.EXIT


def test_each_cause_has_an_event_of_the_family() -> None:
    assert set(EVENT_OF) == set(Cause)
    assert all(is_kind_of(name, EventName.BACKEND_DOWN) for name in EVENT_OF.values())
    assert set(WAITS_FOR) < set(Cause)


kills = st.lists(st.builds(OomKill, st.integers(1, 4), st.just(1.0), st.sampled_from([None, "", "/x"]))).map(tuple)


@given(
    st.sampled_from([None, 0, 9, 11, 15]),
    st.none() | st.integers(0, 3),
    st.none() | kills,
    st.none() | st.just(TAKEN),
)
def test_the_oom_killer_is_named_only_on_evidence(
    number: int | None, counted: int | None, logged: tuple[OomKill, ...] | None, obstacle: Obstacle | None
) -> None:
    found = ending(Evidence(2, "ended", number, counted, logged, obstacle))
    named = any(kill.pid == 2 for kill in logged or ())
    if found.cause is Cause.OOM_KILLED:
        assert number in (None, 9)
        assert named or (logged is None and counted)
    elif number in (None, 9):
        assert not named
    if found.cause in WAITS_FOR:
        assert obstacle is not None
        assert not number
