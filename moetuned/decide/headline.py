"""What is wrong and what to do now, in plain words: one headline for each backend and for the machine, worst first.

The first of them is the first line of `moetunectl status` and the line of `moetunectl check`. It is read by people who have never
seen the tool, so it holds no word that it does not explain, and a command or an act where something is to be done.
"""

from __future__ import annotations

from collections.abc import Sequence

from moetuned.decide.headline_backend import backend_headline
from moetuned.decide.headline_words import shell_word
from moetuned.schema.headline import Headline, Severity, Situation
from moetuned.schema.snapshot import Snapshot, TunableView
from moetuned.schema.units import format_duration

STALE_SECONDS = 10.0
_ORDER = (Severity.CRITICAL, Severity.WARNING, Severity.UNKNOWN, Severity.OK)
_NAMED = 2
_CHANGED = ("drifted", "yielded")
"""Somebody else changed it after moetuned had set it."""


def headlines(snapshot: Snapshot, now: float) -> tuple[Headline, ...]:
    """At least one. `now`: Unix seconds; a snapshot that is old says so first, since all else may be otherwise by now."""
    found = [backend_headline(view, snapshot.events, snapshot.at_seconds, snapshot.mode) for view in snapshot.backends]
    if (drift := _drifted(snapshot.tuning)) is not None:
        found.append(drift)
    if not snapshot.backends:
        found.append(_no_backend())
    found.sort(key=lambda one: _ORDER.index(one.severity))
    age = stale_seconds(snapshot, now)
    return tuple(found) if age is None else (_stale(age), *found)


def worst(found: Sequence[Headline]) -> Severity:
    """The severity of all of them together."""
    if any(one.is_stale for one in found):
        return Severity.UNKNOWN
    return min((one.severity for one in found), key=_ORDER.index, default=Severity.UNKNOWN)


def stale_seconds(snapshot: Snapshot, now: float) -> float | None:
    """How old it is where that is too old: the daemon has not looked since, for two of its own intervals. None: it is fresh."""
    running = max(0.0, snapshot.wall_seconds - snapshot.daemon.started_wall_seconds)
    age = now - snapshot.wall_seconds
    return age if age > STALE_SECONDS + 2 * running / max(1, snapshot.daemon.ticks) else None


def _stale(age: float) -> Headline:
    text = f"moetuned has not looked for {format_duration(age)}, so nobody knows how things are now; what follows is as old."
    return Headline(
        Severity.UNKNOWN, Situation.STALE, text, "See why: journalctl -u moetuned -e, then: systemctl restart moetuned"
    )


def _no_backend() -> Headline:
    text = "moetuned runs, but finds no model server (llama-server, for one), and its configuration names none."
    advice = "Start one, and it is found by itself; or name it under backends: in /etc/moetuned/moetuned.yaml."
    return Headline(Severity.UNKNOWN, Situation.NO_BACKEND, text, advice)


def _drifted(tuning: Sequence[TunableView]) -> Headline | None:
    drifted = [one for one in tuning if one.state in _CHANGED]
    if not drifted:
        return None
    named = ", ".join(f"{one.name} is {one.now or '?'}{_instead(one)}" for one in drifted[:_NAMED])
    more = "" if len(drifted) <= _NAMED else f", and {len(drifted) - _NAMED} more"
    what = (
        "A kernel setting that moetuned had made was"
        if len(drifted) == 1
        else "Kernel settings that moetuned had made were"
    )
    it = "it" if len(drifted) == 1 else "them"
    text = f"{what} changed by another program or a person: {named}{more}. moetuned leaves {it} so; models larger than memory may run slower."
    first = shell_word(drifted[0].name)
    advice = f"Who else sets it: moetunectl tune explain {first} - to make {it} as before: sudo moetunectl tune apply"
    return Headline(Severity.WARNING, Situation.DRIFTED, text, advice)


def _instead(one: TunableView) -> str:
    return (
        ""
        if one.wanted is None
        else f" instead of {one.wanted.replace('at-most', 'at most').replace('at-least', 'at least')}"
    )
