"""State of one backend: stale answers, what it runs with, and a clean slate for the next process."""

from __future__ import annotations

import pytest

from moetuned.daemon.watched import Watched
from moetuned.decide.supervision import LaunchPlan, Supervision
from moetuned.host.processes import ProcessIdentity
from moetuned.schema.backend_description import BackendDescription
from moetuned.schema.config import Backend
from moetuned.schema.sample import BackendHttp, BackendSample, RawResidency, Slot

ONE, OTHER = ProcessIdentity(10, 1), ProcessIdentity(11, 5)


class Warmer:
    stopped = False

    def stop(self) -> None:
        self.stopped = True


class Owner:
    def __init__(self, placeholders: str, plan: LaunchPlan) -> None:
        self.placeholders, self.process = placeholders, object()
        self.state = Supervision("glm", plan)

    def knows(self, placeholder: str) -> bool:
        return self.sets(placeholder)

    def sets(self, placeholder: str) -> bool:
        return placeholder in self.placeholders


@pytest.fixture
def watched() -> Watched:
    watched = Watched("glm", Backend("glm"), 0.0)
    watched.follow_process(ONE, 5.0)
    return watched


def test_an_old_answer_is_none(watched: Watched) -> None:
    watched.http, watched.http_at = {"/health": "{}"}, 10.0
    assert watched.raw(13.9, 4.0).http == {"/health": "{}"}
    assert watched.raw(14.1, 4.0).http == {}


def test_residency_is_handed_out_once(watched: Watched) -> None:
    watched.fresh_residency = RawResidency(cached=3)
    assert watched.raw(1.0, 4.0).residency == RawResidency(cached=3)
    assert watched.raw(2.0, 4.0).residency is None


@pytest.mark.parametrize("successor", [None, OTHER])
def test_nothing_of_one_process_speaks_for_the_next(watched: Watched, successor: ProcessIdentity | None) -> None:
    watched.http, watched.http_at, watched.ready_at, watched.residency_at = {"/health": "{}"}, 5.0, 5.0, 5.0
    watched.description = BackendDescription(context_length=4096)
    watched.fresh_residency, watched.seen_loading, watched.would_do = RawResidency(cached=1), True, ("restart",)
    watched.warming = warmer = Warmer()  # type: ignore[assignment]
    if successor is None:
        watched.forget_process(6.0)
    else:
        watched.follow_process(successor, 6.0)
    assert watched.raw(6.0, 4.0).http == {}
    assert watched.raw(6.0, 4.0).residency is None
    assert (watched.ready_at, watched.residency_at, watched.description, watched.seen_loading) == (None,) * 3 + (False,)
    assert watched.context_now() is None
    assert watched.would_do == ()
    assert warmer.stopped
    assert watched.identity.pid == (None if successor is None else successor.pid)


def test_following_the_same_process_changes_nothing(watched: Watched) -> None:
    watched.ready_at = 5.0
    watched.follow_process(ONE, 6.0)
    assert watched.ready_at == 5.0


def test_context_by_supervisor_else_command_line_else_slots(watched: Watched) -> None:
    slots = (Slot(0, context_length=1024), Slot(1, context_length=1024))
    watched.sample = BackendSample("glm", http=BackendHttp(slots=slots))
    assert watched.context_now() is None, "they may share it"
    for slots_said, unified, expected in ((2, None, 2048), (None, None, 1024), (2, True, 1024), (None, False, 2048)):
        watched.description = BackendDescription(slots=slots_said, kv_unified=unified)
        assert watched.context_now() == expected
    watched.sample = BackendSample("glm", http=BackendHttp(slots=slots[:1]))
    watched.description = None
    assert watched.context_now() == 1024
    watched.description = BackendDescription(context_length=4096, prompt_cache_mib=128)
    assert watched.context_now() == 4096
    assert watched.prompt_cache_mib() == 128
    watched.supervisor = Owner("", LaunchPlan(16384, None))  # type: ignore[assignment]
    assert watched.context_now() == 4096
    assert watched.prompt_cache_mib() == 128
    watched.supervisor = Owner("{context}{prompt_cache_mib}", LaunchPlan(8192, 64))  # type: ignore[assignment]
    assert watched.context_now() == 8192
    assert watched.prompt_cache_mib() == 64


def test_keys_are_of_one_object() -> None:
    assert Watched("a", None, 0.0).key != Watched("a", None, 0.0).key


def test_discovered_is_what_nobody_configured() -> None:
    assert Watched("a", None, 0.0).discovered
    assert not Watched("a", Backend("a"), 0.0).discovered
