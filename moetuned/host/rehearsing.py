"""Rehearses all that a config may need, each try in a process of its own with a deadline: the facts as JSON on standard input, what came of
it as JSON on standard output.

A system call filter may kill for a call instead of refusing it (systemd.exec(5), SystemCallFilter=): then that, too, is an answer.
"""

from __future__ import annotations

import contextlib
import os
import resource
import selectors
import signal
import sys
import time
from collections.abc import Callable, Iterable

import msgspec

from moetuned.host import rehearsals
from moetuned.host.rehearsal_answers import no, of_error, unknown
from moetuned.schema.capability import Answer, Capability, Found, Need, RehearsalFacts

TRY_SECONDS = 8.0
"""What takes longer is not known. All take milliseconds on a machine that has time."""
COLLECT_SECONDS = 0.5
"""What was killed and has not ended by then is left to end when the kernel lets it."""
AT_ONCE = 4
LIMIT_BYTES = 1 << 20
ALL_SECONDS = 30.0
"""After this nothing more is begun."""
_ANSWER_BYTES = 16 << 10

Order = tuple[str, Need, Callable[[], Found]]
"""A rehearsal's name, what it is to try, and the try."""


class _Try:
    """One that runs."""

    def __init__(self, name: str, need: Need, pid: int, reading: int) -> None:
        self.name = name
        self.need = need
        self.pid = pid
        self.reading = reading
        self.began = time.monotonic()
        self.said = b""


def rehearse_all(facts: RehearsalFacts) -> tuple[Capability, ...]:
    """All there is to try, or what of it is asked for, in order of name. The process that calls this has one thread and may be forked."""
    orders: list[Order] = []
    for name in rehearsals.names():
        if facts.only is not None and all(tried.rehearsal != name for tried in facts.only):
            continue
        one = rehearsals.load(name)
        needs = [need for need in one.needs(facts) if facts.only is None or need.by(name) in facts.only]
        orders += [(name, need, lambda one=one, need=need: one.rehearse(need, facts)) for need in needs]  # type: ignore[misc]
    return run(orders)


def run(
    orders: Iterable[Order], try_seconds: float = TRY_SECONDS, all_seconds: float = ALL_SECONDS
) -> tuple[Capability, ...]:
    """Each in a process of its own, a few at once; the answers in the order asked."""
    waiting = list(enumerate(orders))
    found: dict[int, Capability] = {}
    running: dict[int, _Try] = {}
    until = time.monotonic() + all_seconds
    with selectors.DefaultSelector() as selector:
        while waiting or running:
            while waiting and len(running) < AT_ONCE:
                number, (name, need, attempt) = waiting.pop(0)
                if time.monotonic() >= until:
                    found[number] = _told(name, need, unknown("not tried: the others took too long"), 0.0)
                    continue
                one = _begin(name, need, attempt)
                running[number] = one
                selector.register(one.reading, selectors.EVENT_READ, number)
            if not running:
                continue
            first = min(one.began for one in running.values()) + try_seconds
            ready = {key.data for key, _ in selector.select(max(0.0, first - time.monotonic()))}
            for number, one in list(running.items()):
                answer = _advance(one, try_seconds) if number in ready else None
                if answer is None and time.monotonic() - one.began >= try_seconds:
                    answer = _too_late(one, try_seconds)
                if answer is not None:
                    selector.unregister(one.reading)
                    os.close(one.reading)
                    found[number] = _told(one.name, one.need, answer, time.monotonic() - one.began)
                    del running[number]
    return tuple(found[number] for number in sorted(found))


def _begin(name: str, need: Need, attempt: Callable[[], Found]) -> _Try:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writing)
        return _Try(name, need, pid, reading)
    try:
        os.close(reading)
        os.setpgid(0, 0)
        os.write(writing, msgspec.json.encode(attempted(attempt)))
    finally:
        os._exit(0)


def attempted(attempt: Callable[[], Found]) -> Found:
    """What came of a try in this process; never raises."""
    try:
        return attempt()
    except OSError as error:
        return of_error(error)
    except Exception as error:  # noqa: BLE001  one action may fail in any way; that is not known then
        return unknown(f"the try failed: {type(error).__name__}: {error}")


def _advance(one: _Try, try_seconds: float) -> Found | None:
    """What it said once it has ended; None: it goes on."""
    data = os.read(one.reading, _ANSWER_BYTES)
    if data and len(one.said) < _ANSWER_BYTES:
        one.said += data
        return None
    _end(one)
    status = _collected(one.pid)
    if status is None:
        return unknown("the try hangs in the kernel and cannot be ended")
    if one.said:
        try:
            return msgspec.json.decode(one.said, type=Found)
        except msgspec.MsgspecError:
            return unknown("the try gave no answer that can be read")
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    if number == signal.SIGSYS:
        return no(
            "the system call filter of the service kills who does it", "allow the call in a drop-in (SystemCallFilter=)"
        )
    if number:
        return unknown(f"the try was ended by {signal.Signals(number).name}")
    return unknown(f"the try gave no answer within {try_seconds:g} s")


def _too_late(one: _Try, try_seconds: float) -> Found:
    _end(one)
    _collected(one.pid)
    return unknown(f"no answer within {try_seconds:g} s")


def _collected(pid: int) -> int | None:
    """How it ended; None: it hangs in the kernel (a server of files that does not answer), and ends by itself once it is let."""
    until = time.monotonic() + COLLECT_SECONDS
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return status
        if time.monotonic() >= until:
            return None
        time.sleep(0.005)


def _end(one: _Try) -> None:
    """It, and what it left of its own group. It is not collected yet, so the number is still its own."""
    for end in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            end(one.pid, signal.SIGKILL)


def _told(name: str, need: Need, found: Found, seconds: float) -> Capability:
    why, cure = (" ".join(text.split())[:500] for text in (found.why, found.cure))
    return Capability(
        rehearsal=name,
        subject=need.subject,
        actions=need.actions,
        answer=Answer(found.answer),
        why=why,
        cure=cure,
        backend=need.backend,
        other_user=need.other_user,
        seconds=round(seconds, 3),
    )


def main() -> int:
    """Rehearse for the facts on standard input; 0: standard output has what came of it."""
    facts = msgspec.json.decode(sys.stdin.buffer.read(LIMIT_BYTES), type=RehearsalFacts)
    signal.alarm(int(ALL_SECONDS) + 10)  # where who asked is gone
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # one that is killed for its try leaves nothing
    sys.stdout.buffer.write(msgspec.json.encode(rehearse_all(facts)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
