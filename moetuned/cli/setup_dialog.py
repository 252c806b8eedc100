"""Asks the questions of `moetunectl setup` on a terminal, or answers them from options; shows what was found and what will be done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click

from moetuned.cli.backend_client import width
from moetuned.cli.text_width import columns_of, printable, wrap
from moetuned.decide.persist import preview
from moetuned.decide.setup_questions import BACKEND, Choice, Question, WrongAnswer, accept, next_question
from moetuned.schema.persisted import FileChange, FileStep
from moetuned.schema.setup import PlannedDeed, SetupFacts, SetupPlan, Step

_VERBS: Mapping[Step, str] = {
    Step.WRITE: "write",
    Step.REMOVE: "remove",
    Step.ADOPT: "adopt the unit",
    Step.GIVE_BACK: "give back the unit",
    Step.START_BACKEND: "start",
    Step.RESTART_BACKEND: "restart",
    Step.STOP_BACKEND: "stop and disable",
    Step.START_SERVICE: "start",
    Step.RELOAD_SERVICE: "reload",
}


class OptionError(Exception):
    """An option's value, or its lack, leaves a question without an answer; the text names the option."""


def option_of(key: str) -> str:
    """The option that answers a question: "context glm" is --context."""
    return f"--{key.partition(' ')[0].replace('_', '-')}"


def answers_of(facts: SetupFacts, given: Mapping[str, str], *, ask: bool) -> dict[str, str]:
    """An answer to every question: what was given, by its key without the name of a backend; else asked, or the default.

    Raises OptionError, click.Abort for Ctrl-C or the end of input.
    """
    answers: dict[str, str] = {}
    while (question := next_question(facts, answers)) is not None:
        key = question.key.partition(" ")[0]
        if key in given:
            try:
                answers[question.key] = accept(question, given[key])
            except WrongAnswer as error:
                raise OptionError(f"{option_of(key)}: {error}") from error
        elif ask:
            answers[question.key] = _asked(question)
        else:
            try:
                answers[question.key] = accept(question, "")
            except WrongAnswer as error:
                raise OptionError(f"{option_of(key)} is needed: {error}") from error
    return answers


def unused(answers: Mapping[str, str], given: Mapping[str, str]) -> tuple[str, ...]:
    """Options that answered nothing."""
    asked = {key.partition(" ")[0] for key in answers}
    return tuple(option_of(key) for key in given if key not in asked)


def _asked(question: Question) -> str:
    show_question(question)
    while True:
        typed = click.prompt("", prompt_suffix=_prompt(question), default="", show_default=False)
        try:
            return accept(question, str(typed))
        except WrongAnswer as error:
            _wrapped(str(error), "  ")


def _prompt(question: Question) -> str:
    return f"[{printable(question.default)}] > " if question.default else "> "


def show_question(question: Question) -> None:
    """The question, what helps to answer it, and the choices with their numbers."""
    click.echo()
    _wrapped(question.text, "")
    for line in question.help:
        _wrapped(line, "    ")
    _show_choices(question.choices)


def _show_choices(choices: Sequence[Choice]) -> None:
    names = max((columns_of(each.value) for each in choices), default=0)
    for number, each in enumerate(choices, 1):
        about = each.about if each.problem is None else f"{each.about}; cannot be taken: {each.problem}"
        head = f"  {number}  {each.value}{' ' * (names - columns_of(each.value))}  "
        if columns_of(head) > width() // 2:
            click.echo(printable(head).rstrip())
            _wrapped(about, "       ")
        else:
            _wrapped(about, " " * columns_of(head), head)


def _wrapped(text: str, margin: str, first: str | None = None) -> None:
    lines = wrap(printable(text), max(20, width() - columns_of(margin))) or [""]
    for number, line in enumerate(lines):
        click.echo(f"{printable(first) if first is not None and number == 0 else margin}{line}".rstrip())


def show_looked(facts: SetupFacts, *, asks: bool) -> None:
    """Where models were looked for, and what was found; where questions are asked, the first one shows that."""
    places = [f"{each.place} ({each.found}{'' if each.note is None else f'; {each.note}'})" for each in facts.looked]
    _wrapped(
        f"Looked for models in {', '.join(places) if places else 'the usual places, of which none is there'}.", "  ", ""
    )
    if not facts.candidates:
        _wrapped(
            "Found neither a backend nor a model. If you have one elsewhere: moetunectl setup --model PATH. Without one moetuned watches what is "
            "started later.",
            "  ",
            "",
        )
    question = None if asks else next_question(facts, {})
    if question is not None and question.key == BACKEND:
        click.echo("Found:")
        _show_choices(question.choices[:-1])


def deed_words(deed: PlannedDeed) -> str:
    """A step in one sentence."""
    edited = f", which was edited since setup wrote it and is kept as {deed.target}.bak" if deed.edited else ""
    return f"{_VERBS[deed.step]} {deed.target}{edited}: {deed.why}"


def done_words(deed: PlannedDeed) -> str:
    """The same once it is done, without the reason."""
    return f"{_VERBS[deed.step]} {deed.target}"


def show_plan(plan: SetupPlan) -> None:
    """Each step, and of each file what changes in it."""
    click.echo()
    if not plan.deeds:
        click.echo("Nothing to do: all is as it was set up.")
    else:
        click.echo("This will be done:")
    for number, deed in enumerate(plan.deeds, 1):
        click.echo()
        _wrapped(deed_words(deed), "     ", f"  {number}. ")
        if deed.step is not Step.REMOVE and (deed.before is not None or deed.after is not None):
            show_change(deed)
    click.echo()
    for note in plan.notes:
        _wrapped(note, "  ", "! ")


def show_change(deed: PlannedDeed) -> None:
    """What changes in a file; of a new one, its text. Lines stay as they are: they are what is written."""
    if deed.before is None and deed.step is Step.WRITE:
        lines = (deed.after or "").splitlines()
    else:
        path = deed.target
        lines = preview(FileChange(path, FileStep.WRITE, deed.before, deed.after)).splitlines()
    for line in lines:
        click.echo(f"     | {printable(line)}".rstrip())
