from __future__ import annotations

import contextlib
import os
import resource
import signal
import time
from pathlib import Path

import msgspec
import pytest

from moetuned.host.rehearsal_answers import YES
from moetuned.host.rehearsing import attempted, rehearse_all, run
from moetuned.schema.capability import Action, Answer, Found, Need, RehearsalFacts

NEED = Need("subject", (Action.WARM,), "glm", other_user=True)


def answers(*tries: object, try_seconds: float = 5.0) -> list[tuple[Answer, str]]:
    found = run([("name", NEED, each) for each in tries], try_seconds)  # type: ignore[misc]
    return [(one.answer, one.why) for one in found]


def killed(number: int) -> Found:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    raise AssertionError


def raising(error: BaseException) -> Found:
    raise error


def test_what_it_says_is_told_with_what_it_was_about() -> None:
    (one,) = run([("name", NEED, lambda: Found(Answer.NO, "  why\nnot ", "do this"))])
    assert (one.rehearsal, one.subject, one.actions, one.backend, one.other_user) == (
        "name",
        "subject",
        (Action.WARM,),
        "glm",
        True,
    )
    assert (one.answer, one.why, one.cure) == (Answer.NO, "why not", "do this")


def test_an_answer_for_each_end_in_the_order_asked() -> None:
    said = answers(
        lambda: YES,
        lambda: killed(signal.SIGSYS),
        lambda: killed(signal.SIGKILL),
        lambda: raising(PermissionError(1, "Operation not permitted", "/x")),
        lambda: raising(FileNotFoundError(2, "No such file or directory", "/x")),
        lambda: raising(RuntimeError("a fault of ours")),
        lambda: os._exit(0),
        lambda: YES,
    )
    assert [answer for answer, _ in said] == [
        Answer.YES,
        Answer.NO,
        Answer.UNKNOWN,
        Answer.NO,
        Answer.UNKNOWN,
        Answer.UNKNOWN,
        Answer.UNKNOWN,
        Answer.YES,
    ]
    assert "filter of the service kills" in said[1][1]
    assert "SIGKILL" in said[2][1]
    assert "a fault of ours" in said[5][1]


def test_what_hangs_is_ended_with_all_it_started_and_is_not_known() -> None:
    reading, writing = os.pipe()

    def hang() -> Found:
        if os.fork() == 0:
            os.write(writing, str(os.getpid()).encode())
        while True:
            signal.pause()

    assert answers(hang, lambda: YES, try_seconds=0.3) == [
        (Answer.UNKNOWN, "no answer within 0.3 s"),
        (Answer.YES, ""),
    ]
    started = int(os.read(reading, 20))
    os.close(reading)
    os.close(writing)
    until = time.monotonic() + 20
    while os.path.exists(f"/proc/{started}") and time.monotonic() < until:
        state = Path(f"/proc/{started}/stat").read_text().rpartition(")")[2].split()[0]
        if state == "Z":  # nobody here collects what is not our child
            break
    else:
        assert not os.path.exists(f"/proc/{started}")


def test_what_cannot_be_killed_holds_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a server of files does not answer: it sleeps in the kernel, and SIGKILL waits for that."""
    left: list[int] = []
    monkeypatch.setattr("moetuned.host.rehearsing._end", lambda one: left.append(one.pid))
    try:
        began = time.monotonic()
        assert answers(signal.pause, lambda: YES, try_seconds=0.3)[0] == (Answer.UNKNOWN, "no answer within 0.3 s")
        assert time.monotonic() - began < 15
    finally:
        for pid in left:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


def test_nothing_more_is_begun_once_all_took_too_long() -> None:
    found = run([("name", NEED, lambda: raising(AssertionError()))], all_seconds=0.0)
    assert (found[0].answer, found[0].why) == (Answer.UNKNOWN, "not tried: the others took too long")


def test_a_long_reason_is_cut() -> None:
    assert len(answers(lambda: Found(Answer.NO, "x" * 5000))[0][1]) == 500


def test_attempted_never_raises() -> None:
    assert attempted(lambda: raising(ValueError("odd"))).answer is Answer.UNKNOWN


def test_what_is_asked_for_alone_is_tried_alone(tmp_path: Path) -> None:
    facts = RehearsalFacts(state_directory=str(tmp_path), runtime_directory=str(tmp_path), discovers=False)
    everything = rehearse_all(facts)
    asked = next(one.tried for one in everything if one.rehearsal == "own_directories")
    found = rehearse_all(msgspec.structs.replace(facts, only=(asked,)))
    assert [one.tried for one in found] == [asked]
    assert len(everything) > 1
    assert rehearse_all(msgspec.structs.replace(facts, only=())) == ()
