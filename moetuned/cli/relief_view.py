"""What `moetunectl relief plan` prints: a pure function of the plans. Control characters of what came from outside are taken out."""

from __future__ import annotations

import textwrap

import click

from moetuned.cli.text_width import printable
from moetuned.schema.relief import ReliefPlan, ReliefPlans, ReliefStep
from moetuned.schema.units import format_bytes, format_duration

_SMALLEST_WIDTH = 40


def render(plans: ReliefPlans, width: int, colour: bool) -> str:
    """All backends, ending in a newline; lines are at most `width` wide (at least 40)."""
    lines: list[str] = []

    def say(text: str, lead: str = "", fg: str | None = None, *, bold: bool = False) -> None:
        room = max(width, _SMALLEST_WIDTH) - len(lead)
        for number, line in enumerate(textwrap.wrap(printable(text), room, break_on_hyphens=False) or [""]):
            whole = (lead if number == 0 else " " * len(lead)) + line
            lines.append(click.style(whole, fg=fg, bold=bold or None) if colour and (fg or bold) else whole)

    if not plans.backends:
        say("There is no backend: none runs that moetuned knows.")
    for number, plan in enumerate(plans.backends):
        if number:
            say("")
        say(f"{plan.backend}: {plan.decision}", bold=True)
        say(_figures(plan), "  ")
        for step in plan.steps:
            say(_step(step), f"  {'take' if step.taken else 'skip'}  ", "yellow" if step.taken else None)
        if plan.restart:
            say(_restart(plan), "  ")
            if plan.conversations is not None:
                say(plan.conversations, "  ")
        if plan.mode == "observe" and any(step.taken and step.restart for step in plan.steps):
            say("relief.mode is observe: moetuned only says this and restarts nothing", "  ")
        if plan.grow_back is not None:
            say(plan.grow_back, "  ")
        for report in plan.reports:
            say(report, "  before: ")
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _figures(plan: ReliefPlan) -> str:
    if plan.headroom_bytes is None or plan.target_headroom_bytes is None or plan.near_headroom_bytes is None:
        return f"memory: {plan.memory}"
    return (
        f"memory: {plan.memory}, headroom {format_bytes(plan.headroom_bytes)}, near its limit below "
        f"{format_bytes(plan.near_headroom_bytes)}, relief restores {format_bytes(plan.target_headroom_bytes)}: "
        f"{format_bytes(plan.missing_bytes)} missing"
    )


def _step(step: ReliefStep) -> str:
    text = step.what if step.why_not is None else f"{step.what}: {step.why_not}"
    if step.frees_bytes is None:
        return text if not step.taken else f"{text}: frees an unknown amount"
    if step.frees_bytes == 0:
        return text if not step.taken else f"{text}: frees nothing now, and cannot grow so far any more"
    amount = f"frees {format_bytes(step.frees_bytes)}"
    if step.sure_bytes < step.frees_bytes:
        amount = f"frees up to {format_bytes(step.frees_bytes)}, surely {format_bytes(step.sure_bytes)}"
    return f"{text} ({amount}{', needs a restart' if step.restart else ''})"


def _restart(plan: ReliefPlan) -> str:
    if plan.restart_seconds is None:
        return f"one restart for all of it; how long that takes is unknown: {plan.restart_source}"
    took = format_duration(max(1.0, round(plan.restart_seconds)))
    return f"one restart for all of it takes about {took} ({plan.restart_source})"
