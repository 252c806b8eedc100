from __future__ import annotations

from moetuned.cli.capabilities_view import HERE, render
from moetuned.schema.capability import Action, Answer, Capabilities, Capability

YES = Capability("sockets", "AF_UNIX", (Action.ALERT,), Answer.YES)
NO = Capability("signals", "kill", (Action.PAUSE, Action.RESTART), Answer.NO, "not per\x1bmitted", "allow it", "glm")
UNKNOWN = Capability("hooks", "/h", (Action.ALERT,), Answer.UNKNOWN, "no such directory")


def test_what_is_refused_comes_first_and_says_what_to_do() -> None:
    text = render(Capabilities("done", cannot=("pause glm: x",), capabilities=(YES, UNKNOWN, NO)), 200, colour=False)
    assert text.splitlines() == [
        "cannot pause glm: x",
        "3 rehearsed: 1 no, 1 unknown, 1 yes",
        "  no      signals kill of glm (for: pause, restart): not per?mitted; to do: allow it",
        "  unknown hooks /h (for: alert): no such directory",
        "  yes     sockets AF_UNIX (for: alert)",
    ]


def test_one_by_the_command_says_that_a_service_may_be_different() -> None:
    text = render(Capabilities("done", by="command"), 400, colour=False)
    assert text.splitlines() == [HERE, "0 rehearsed: this config needs nothing"]


def test_what_is_not_known_says_why() -> None:
    assert render(Capabilities("failed", "no process"), 80, colour=False) == "Not known: no process\n"
    assert render(Capabilities(), 80, colour=False) == "Not known\n"


def test_lines_are_not_wider_than_asked_and_colour_is_colour_only() -> None:
    found = Capabilities("done", cannot=("x " * 60,), capabilities=(NO,))
    plain = render(found, 60, colour=False)
    assert max(map(len, plain.splitlines())) <= 60
    coloured = render(found, 60, colour=True)
    assert "\x1b[31m" in coloured
    assert coloured.replace("\x1b[31m", "").replace("\x1b[0m", "") == plain
