"""The questions of `moetunectl setup`, as a state machine: facts and the answers so far give the next question, or none.

An answer is text, as it was typed or given as an option; `accept` makes it what is kept, or says what is wrong with it. Nothing is asked
whose answer would change nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec
from msgspec import inspect

from moetuned.parse.config_problem import any_of
from moetuned.schema.alert import MailAddress, MailAlert, NtfyAlert, TopicUrl, kind_of_sink
from moetuned.schema.config import Context, Mode, Profile
from moetuned.schema.setup import Candidate, SetupFacts, Way

BACKEND, RELIEF, PROFILE, ALERT, MAIL_TO, NTFY_URL = "backend", "relief", "profile", "alert", "mail_to", "ntfy_url"
CONTEXT, SLOTS, MINIMUM = "context", "slots", "minimum"
"""Asked for each backend: the key is followed by a blank and its name."""
NONE = "none"
KINDS = ("exec", "desktop", "mail", "ntfy")
LEAST_CONTEXT, MOST_CONTEXT = 256, 1 << 24
_MOST_SLOTS = 256
_USUAL_MINIMUM = Context().minimum
_MOST_SETTINGS = 8
_NUMBER = re.compile(r"[0-9]{1,8}")
_SPLIT = re.compile(r"[\s,]+")

Answers = Mapping[str, str]


class WrongAnswer(ValueError):  # noqa: N818
    """An answer that cannot be taken; the text says what can be, one sentence."""


class Choice(msgspec.Struct, frozen=True):
    """One of several answers. `also`: other words for it. `problem`: why it cannot be chosen."""

    value: str
    about: str
    also: tuple[str, ...] = ()
    problem: str | None = None


class Question(msgspec.Struct, frozen=True):
    """What is asked. `default` is an answer; "": there is none. `several`: more than one choice may be named; no `choices`: a number or a text."""

    key: str
    text: str
    default: str
    help: tuple[str, ...] = ()
    choices: tuple[Choice, ...] = ()
    several: bool = False
    least: int | None = None
    most: int | None = None
    pattern: str | None = None
    allowed: str = ""


def next_question(facts: SetupFacts, answers: Answers) -> Question | None:
    """The first question that has no answer yet; None: all is answered."""
    return next((each for each in _questions(facts, answers) if each.key not in answers), None)


def default_answers(facts: SetupFacts, given: Answers | None = None) -> dict[str, str]:
    """`given`, and the default of every question that is left. Raises WrongAnswer for one that has none."""
    answers = dict(given or {})
    while (question := next_question(facts, answers)) is not None:
        answers[question.key] = accept(question, "")
    return answers


def accept(question: Question, typed: str) -> str:
    """The answer that `typed` is; nothing typed is the default. Raises WrongAnswer."""
    text = typed.strip()
    if not text:
        if not question.default:
            raise WrongAnswer(f"nothing {question.allowed}" if question.allowed else "there is no default")
        return question.default
    if question.choices:
        return _chosen(question, text)
    if question.least is not None or question.most is not None:
        return _number(question, text)
    if question.pattern is not None and re.fullmatch(question.pattern, text) is None:
        raise WrongAnswer(f"{_shown(text)} {question.allowed}")
    return text


def chosen(facts: SetupFacts, answers: Answers) -> tuple[Candidate, ...]:
    """The backends that were chosen, in the order of the facts."""
    names = _split(answers.get(BACKEND, ""))
    return tuple(each for each in facts.candidates if each.name in names)


def kinds_of(answers: Answers) -> tuple[str, ...]:
    """The kinds of sinks that were chosen."""
    return tuple(_split(answers.get(ALERT, "")))


def _split(text: str) -> list[str]:
    return [word for word in _SPLIT.split(text) if word and word != NONE]


def _shown(text: str) -> str:
    text = text if text.isprintable() else repr(text)
    return text if len(text) <= 60 else text[:59] + "…"


def _chosen(question: Question, text: str) -> str:
    words = _SPLIT.split(text) if question.several else [text]
    found: list[str] = []
    for word in filter(None, words):
        if question.several and word.lower() == "all":
            found += [each.value for each in question.choices if each.problem is None and each.value != NONE]
            continue
        found.append(_one(question, word))
    values = [each.value for each in question.choices if each.value in found and each.value != NONE]
    if NONE in found and values:
        raise WrongAnswer(f"none and {values[0]} do not go together")
    return " ".join(values) or NONE


def _one(question: Question, word: str) -> str:
    fitting = [each for each in question.choices if word == each.value or word in each.also]
    if not fitting and _NUMBER.fullmatch(word) and 1 <= int(word) <= len(question.choices):
        fitting = [question.choices[int(word) - 1]]
    fitting = fitting or [each for each in question.choices if word.lower() == each.value.lower()]
    if not fitting:
        several = ", several with commas between them" if question.several and len(question.choices) > 2 else ""
        raise WrongAnswer(
            f"{_shown(word)} is none of them; write a number from 1 to {len(question.choices)}, or "
            f"{any_of(each.value for each in question.choices)}{several}"
        )
    choice = fitting[0]
    if choice.problem is not None:
        raise WrongAnswer(f"{choice.value} cannot be taken: {choice.problem}")
    return choice.value


def _number(question: Question, text: str) -> str:
    least, most = question.least or 0, question.most or MOST_CONTEXT
    if _NUMBER.fullmatch(text) is None or not least <= int(text) <= most:
        raise WrongAnswer(f"{_shown(text)} is no whole number from {least} to {most}")
    return str(int(text))


def _questions(facts: SetupFacts, answers: Answers) -> list[Question]:
    """Those that are to be asked as far as it is known by now. Each is made from answers to the ones before it only."""
    found: list[Question] = []
    if facts.candidates:
        found.append(_backend(facts))
        if BACKEND not in answers:
            return found
    backends = chosen(facts, answers)
    for each in backends:
        found += _of_backend(each, answers)
    if any(each.can_be_restarted for each in backends):
        found.append(_relief(facts))
    found.append(_profile(facts))
    found.append(_alert(facts))
    kinds = kinds_of(answers)
    if "mail" in kinds:
        found.append(_mail_to(facts))
    if "ntfy" in kinds:
        found.append(_ntfy_url(facts))
    return found


def _backend(facts: SetupFacts) -> Question:
    choices = [
        Choice(
            each.name,
            "; ".join(
                filter(None, (each.about, each.judgement, each.doubt and f"only taken where you name it: {each.doubt}"))
            ),
            tuple(
                dict.fromkeys(
                    filter(None, (each.unit, (each.unit or "").removesuffix(".service"), each.container, each.model))
                )
            ),
            each.problem,
        )
        for each in facts.candidates
    ]
    choices.append(Choice(NONE, "only watch what runs"))
    names = [each.name for each in default_backends(facts)]
    return Question(
        BACKEND,
        "Which backends shall moetuned look after?",
        " ".join(names) or NONE,
        choices=tuple(choices),
        several=True,
    )


def default_backends(facts: SetupFacts) -> tuple[Candidate, ...]:
    """What was chosen before; else what runs; else units; else the largest model that fits. None of them where somebody else has a hand in it."""
    good = [each for each in facts.candidates if each.problem is None]
    if facts.config_text is not None:
        return tuple(each for each in good if each.entry is not None)
    new = [each for each in good if not each.named_in_config and each.doubt is None]
    running = tuple(each for each in new if each.runs)
    if running or any(each.named_in_config for each in good):
        return running
    units = tuple(each for each in new if each.way is Way.UNIT)
    if units:
        return units
    models = [each for each in new if each.fits]
    return (max(models, key=lambda each: each.size_bytes or 0),) if models else ()


def _of_backend(one: Candidate, answers: Answers) -> list[Question]:
    if not one.can_be_restarted:
        return []
    found = []
    told = None if one.entry is None else one.entry.context
    context = one.context
    if one.way in (Way.CREATED, Way.CHILD):
        most = max(LEAST_CONTEXT, min(MOST_CONTEXT, one.trained or MOST_CONTEXT))
        default = context or (Context().preferred if told is None else told.preferred)
        longest = () if one.longest is None else (f"Up to {one.longest} tokens cost next to no memory for experts.",)
        found.append(
            Question(
                f"{CONTEXT} {one.name}",
                f"Context of {one.name} (tokens)?",
                str(min(most, max(LEAST_CONTEXT, default))),
                longest,
                least=LEAST_CONTEXT,
                most=most,
            )
        )
        context = int(answers.get(found[0].key, found[0].default))
        found.append(
            Question(
                f"{SLOTS} {one.name}",
                f"Requests that {one.name} works on at the same time?",
                str(one.slots or 1),
                ("They share the context.",),
                least=1,
                most=_MOST_SLOTS,
            )
        )
    most = min(MOST_CONTEXT, max(LEAST_CONTEXT, context or MOST_CONTEXT))
    minimum = told.minimum if told is not None else _USUAL_MINIMUM
    found.append(
        Question(
            f"{MINIMUM} {one.name}",
            f"How short may the context of {one.name} become when memory runs out (tokens)?",
            str(min(most, max(LEAST_CONTEXT, minimum))),
            least=LEAST_CONTEXT,
            most=most,
        )
    )
    return found


def _relief(facts: SetupFacts) -> Question:
    return Question(
        RELIEF,
        "When memory is about to run out, may moetuned restart it with a shorter context, before the kernel kills it?",
        facts.current.relief.mode.value,
        choices=(
            Choice(Mode.OBSERVE.value, "only say what it would do, until you have seen it do well", ("no", "n")),
            Choice(Mode.ACT.value, "do it, at most three times an hour", ("yes", "y")),
        ),
    )


def _profile(facts: SetupFacts) -> Question:
    changes = [f"{each.name}: {each.now} -> {each.wanted}" for each in facts.settings]
    help_lines = changes[:_MOST_SETTINGS] or ["None would be changed here as it is now."]
    if len(changes) > _MOST_SETTINGS:
        help_lines.append(f"and {len(changes) - _MOST_SETTINGS} more: moetunectl tune plan --profile moe-offload")
    known = facts.has_main_config or facts.config_text is not None
    return Question(
        PROFILE,
        "May moetuned change kernel settings while it runs? All are put back when it stops.",
        (facts.current.tuning.profile if known else Profile.MOE_OFFLOAD).value,
        tuple(help_lines),
        (
            Choice(Profile.MOE_OFFLOAD.value, "yes, what helps a model larger than memory", ("yes", "y")),
            Choice(Profile.MOE_OFFLOAD_ZRAM.value, "that, and swap in compressed memory"),
            Choice(Profile.OBSERVE.value, "no, change nothing", ("no", "n")),
        ),
    )


def _alert(facts: SetupFacts) -> Question:
    there = {kind_of_sink(each) for each in facts.current.alerts}
    known = facts.has_main_config or facts.config_text is not None
    default = [kind for kind in KINDS if kind in there] if known else ["exec"] if facts.hooks_directory else []
    no_hooks = None if facts.hooks_directory or "exec" in there else "there is no such directory"
    no_mail = None if facts.mail_program or "mail" in there else "there is no /usr/sbin/sendmail here"
    return Question(
        ALERT,
        "How shall it tell you? The journal has everything anyway.",
        " ".join(default) or NONE,
        choices=(
            Choice("exec", "run the hooks in /etc/moetuned/hooks.d", ("hooks",), no_hooks),
            Choice("desktop", "a notification on your desktop"),
            Choice("mail", "a mail", (), no_mail),
            Choice("ntfy", "a push to your phone (ntfy)"),
            Choice(NONE, "not at all"),
        ),
        several=True,
    )


def _mail_to(facts: SetupFacts) -> Question:
    now = next((each.to for each in facts.current.alerts if isinstance(each, MailAlert)), ["root"])
    pattern, allowed = _rule(MailAddress)
    return Question(MAIL_TO, "Mail address?", now[0], pattern=pattern, allowed=allowed)


def _ntfy_url(facts: SetupFacts) -> Question:
    now = next((each.url for each in facts.current.alerts if isinstance(each, NtfyAlert)), "")
    pattern, allowed = _rule(TopicUrl)
    help_lines = ("Whoever knows the topic can read it, so give it a name that nobody guesses.",)
    return Question(NTFY_URL, "URL of the ntfy topic?", now, help_lines, pattern=pattern, allowed=allowed)


def _rule(annotated: object) -> tuple[str, str]:
    """Pattern of a type of the config, and what it allows in words."""
    info = inspect.type_info(annotated)
    assert isinstance(info, inspect.Metadata)
    assert isinstance(info.type, inspect.StrType)
    return info.type.pattern or "", str((info.extra or {}).get("allowed", ""))
