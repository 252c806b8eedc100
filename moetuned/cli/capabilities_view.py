"""What `moetunectl status --capabilities` prints: a pure function of the answer. What came from outside is stripped of control characters."""

from __future__ import annotations

import textwrap

import click

from moetuned.cli.text_width import printable
from moetuned.schema.capability import Answer, Capabilities, Capability

HERE = (
    "No daemon answers, so this was rehearsed by moetunectl itself, with the rights of who runs it: the sandbox of a service may differ "
    "(systemctl cat moetuned)."
)
_SMALLEST_WIDTH = 40
_COLOURS = {Answer.YES: "green", Answer.NO: "red", Answer.UNKNOWN: "yellow"}
_ORDER = (Answer.NO, Answer.UNKNOWN, Answer.YES)


def render(found: Capabilities, width: int, colour: bool) -> str:
    """All of it, what is refused first, ending in a newline; lines are at most `width` wide (at least 40)."""
    lines: list[str] = []
    room = max(width, _SMALLEST_WIDTH)

    def say(text: str, lead: str = "", fg: str | None = None) -> None:
        for number, line in enumerate(textwrap.wrap(printable(text), room - len(lead), break_on_hyphens=False) or [""]):
            whole = (lead if number == 0 else " " * len(lead)) + line
            lines.append(click.style(whole, fg=fg) if colour and fg else whole)

    if found.by == "command":
        say(HERE, fg="yellow")
    if found.state != "done":
        say(f"Not known{': ' if found.detail else ''}{found.detail}", fg="yellow")
    for text in found.cannot:
        say(f"cannot {text}", fg="red")
    counts = {answer: sum(one.answer is answer for one in found.capabilities) for answer in _ORDER}
    if found.state == "done":
        said = ", ".join(f"{count} {answer}" for answer, count in counts.items() if count)
        say(f"{len(found.capabilities)} rehearsed: {said or 'this config needs nothing'}")
    for answer in _ORDER:
        for one in found.capabilities:
            if one.answer is answer:
                say(_line(one), f"  {answer.value.ljust(7)} ", _COLOURS[answer])
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _line(one: Capability) -> str:
    about = f" of {one.backend}" if one.backend is not None else ""
    actions = ", ".join(action.value.replace("_", " ") for action in one.actions)
    text = f"{one.rehearsal} {one.subject}{about} (for: {actions})"
    if one.why:
        text += f": {one.why}"
    return f"{text}; to do: {one.cure}" if one.cure else text
