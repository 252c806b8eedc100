"""The files that `moetunectl setup` writes, as text: its part of the config, and the variables of a unit that it makes.

The config's part says only what the other files do not. Lists are replaced, not merged, where files are read together, so a list that
setup adds to has what the other files name, too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import yaml

from moetuned.decide.setup_questions import (
    CONTEXT,
    KINDS,
    MAIL_TO,
    MINIMUM,
    MOST_CONTEXT,
    NTFY_URL,
    PROFILE,
    RELIEF,
    SLOTS,
    Answers,
    chosen,
    kinds_of,
)
from moetuned.parse.environment_file import in_double_quotes
from moetuned.parse.persisted_file import with_header
from moetuned.schema.alert import Alert, DesktopAlert, ExecAlert, MailAlert, NtfyAlert, kind_of_sink
from moetuned.schema.config import Backend, Context
from moetuned.schema.event import EventName
from moetuned.schema.setup import Candidate, SetupFacts, Way
from moetuned.schema.supervise import SuperviseNone, SuperviseProcess, SuperviseUnit

UNDO = "setup --undo"
_WIDTH = 100
_HOOKS_ON = [EventName.THRASH_BEGIN, EventName.MEMORY_NEAR_LIMIT]
"""As the installed config has it: hooks for what can still be helped."""
_PLAIN = re.compile(r"[A-Za-z0-9_./:@%+=-]*")
_TEXTS: Mapping[str, str] = {
    "tuning": "Kernel settings: moe-offload and moe-offload-zram set them while moetuned runs and put them back; observe sets none.\n"
    "What would be set, and why: moetunectl tune plan",
    "relief": "When memory is about to run out. observe: only say what would be done; act: restart the backend with a shorter context.\n"
    "What it would do now: moetunectl relief plan",
    "backends": "The backends to look after. context.preferred (tokens) is what a backend starts with, context.minimum what it keeps at least.",
    "alerts": "Who is told. Try it: moetunectl alerts test",
}


def unit_of(name: str) -> str:
    """The unit of a backend that setup makes one for."""
    return f"moetuned-backend@{name}.service"


def config_text(facts: SetupFacts, answers: Answers) -> str | None:
    """The whole text of setup's part of the config; None where it would say nothing."""
    said: dict[str, Any] = {}
    if answers[PROFILE] != facts.others.tuning.profile.value:
        said["tuning"] = {"profile": answers[PROFILE]}
    relief = answers.get(RELIEF, facts.current.relief.mode.value)
    if relief != facts.others.relief.mode.value:
        said["relief"] = {"mode": relief}
    notes: dict[str, str] = {}
    own = [entry_of(each, answers) for each in chosen(facts, answers) if not each.named_in_config]
    if own:
        others = facts.others.backends
        said["backends"] = [*map(_told, others), *(_with_context(each, answers) for each in own)]
        notes["backends"] = _copied(len(others), "backend")
    if (alerts := _alerts(facts, answers)) is not None:
        said["alerts"] = [_told(each) for each in alerts]
        notes["alerts"] = _copied(len([each for each in alerts if each in facts.others.alerts]), "alert")
    if not said:
        return None
    parts = [
        "#\n# It is read after moetuned.yaml, so what it says counts. To change it: sudo moetunectl setup, once more; or edit it.\n"
    ]
    for key, value in said.items():
        prose = "\n".join(filter(None, (_TEXTS[key], notes.get(key))))
        parts.append("".join(f"# {line}\n" for line in prose.split("\n")) + _yaml({key: value}))
    return with_header("\n".join(parts), UNDO)


def entry_of(one: Candidate, answers: Answers) -> Backend:
    """Its entry in the config. What was written for it earlier stays, but for what was asked anew."""
    minimum = answers.get(f"{MINIMUM} {one.name}")
    context = Context()
    if minimum is not None:
        preferred = int(answers.get(f"{CONTEXT} {one.name}", _preferred(one)))
        context = Context(min(MOST_CONTEXT, max(preferred, int(minimum))), int(minimum))
    became_a_unit = one.way is Way.UNIT and one.entry is not None and isinstance(one.entry.supervise, SuperviseNone)
    if one.entry is not None and not became_a_unit:
        if minimum is None:
            return one.entry
        entry = msgspec.structs.replace(one.entry, context=context)
        slots = answers.get(f"{SLOTS} {one.name}")
        return msgspec.structs.replace(entry, slots=int(slots)) if slots is not None and one.way is Way.CHILD else entry
    match one.way:
        case Way.UNIT:
            return Backend(one.name, model=None, supervise=SuperviseUnit(one.unit or ""), context=context)
        case Way.CREATED:
            return Backend(one.name, model=one.model, supervise=SuperviseUnit(unit_of(one.name)), context=context)
        case Way.CHILD:
            return _child(one, answers, context)
    url = one.url if one.url is not None else None
    return Backend(one.name, one.kind, None if url is not None else one.model, SuperviseNone(), url)


def _preferred(one: Candidate) -> int:
    if one.entry is not None:
        return one.entry.context.preferred
    return one.context if one.context is not None else Context().preferred


def _child(one: Candidate, answers: Answers, context: Context) -> Backend:
    slots = int(answers.get(f"{SLOTS} {one.name}", "1"))
    cache = one.prompt_cache_mib if (one.prompt_cache_mib or 0) >= 0 else None
    command = [one.program or "llama-server", "-m", "{model}", "-c", "{context}", "-np", "{slots}"]
    command += [] if cache is None else ["--cache-ram", "{prompt_cache_mib}"]
    command += [*one.more, *_address(one.url)]
    return Backend(
        one.name,
        model=one.model,
        supervise=SuperviseProcess(command),
        url=one.url,
        context=context,
        prompt_cache_mib=cache,
        slots=slots,
    )


def _address(url: str | None) -> tuple[str, ...]:
    host, _, port = (url or "http://127.0.0.1:8080").removeprefix("http://").partition(":")
    return ("--host", host, "--port", port)


def _alerts(facts: SetupFacts, answers: Answers) -> list[Alert] | None:
    """The whole list; None where the other files say the same."""
    kinds = kinds_of(answers)
    found: list[Alert] = []
    for each in facts.current.alerts:
        kind = kind_of_sink(each)
        if kind not in KINDS:
            found.append(each)
        elif kind in kinds:
            found.append(_brought_up_to_date(each, answers, first=kind not in map(kind_of_sink, found)))
    there = {kind_of_sink(each) for each in found}
    found += [_new(kind, answers) for kind in KINDS if kind in kinds and kind not in there]
    return None if found == facts.others.alerts else found


def _new(kind: str, answers: Answers) -> Alert:
    match kind:
        case "mail":
            return MailAlert(to=[answers[MAIL_TO]])
        case "ntfy":
            return NtfyAlert(url=answers[NTFY_URL])
        case "desktop":
            return DesktopAlert()
    return ExecAlert(on=_HOOKS_ON)


def _brought_up_to_date(sink: Alert, answers: Answers, *, first: bool) -> Alert:
    """The question is about the first of a kind; others stay as they are."""
    if isinstance(sink, MailAlert) and first and answers[MAIL_TO] != sink.to[0]:
        return msgspec.structs.replace(sink, to=[answers[MAIL_TO], *sink.to[1:]])
    if isinstance(sink, NtfyAlert) and first:
        return msgspec.structs.replace(sink, url=answers[NTFY_URL])
    return sink


def _copied(count: int, what: str) -> str:
    if not count:
        return ""
    return f"This list takes the place of that in other files: {count} {what}{'s' if count > 1 else ''} of theirs {'are' if count > 1 else 'is'} in it, too."


def _told(value: Any) -> Any:
    """A value of the config as YAML has it, without what is as by default."""
    if not isinstance(value, msgspec.Struct):
        return msgspec.to_builtins(value)
    tag = value.__struct_config__.tag_field
    said: dict[str, Any] = {} if tag is None else {tag: value.__struct_config__.tag}
    for field in msgspec.structs.fields(value):
        held = getattr(value, field.name)
        default = field.default if field.default is not msgspec.NODEFAULT else None
        if field.default_factory is not msgspec.NODEFAULT:
            default = field.default_factory()
        if field.required or held != default:
            said[field.encode_name] = _told(held)
    return said


def _with_context(entry: Backend, answers: Answers) -> Any:
    """As `_told`, with the context where it was asked for, also where it is the default."""
    said = _told(entry)
    if f"{MINIMUM} {entry.name}" in answers:
        said["context"] = {"preferred": entry.context.preferred, "minimum": entry.context.minimum}
    return said


def _yaml(value: Any) -> str:
    return str(yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=_WIDTH, default_flow_style=None))


def environment_text(one: Candidate, answers: Answers) -> str:
    """The file of variables of a unit that setup makes (systemd.exec(5), EnvironmentFile=)."""
    values = dict(one.environment)
    values["MOETUNED_CONTEXT"] = answers[f"{CONTEXT} {one.name}"]
    values["MOETUNED_SLOTS"] = answers[f"{SLOTS} {one.name}"]
    prose = {
        "MODEL": "GGUF file; of a split model the first part. It must be readable for everybody.",
        "MOETUNED_CONTEXT": "Context (tokens) of all slots together. moetuned may start it with less when memory runs out; this file stays as it is.",
        "MOETUNED_PROMPT_CACHE_MIB": "Prompt cache (MiB).",
        "MOETUNED_CHECKPOINTS": "Context checkpoints of each slot.",
        "MOETUNED_CACHE_TYPE_K": "KV cache: f16, or q8_0 for half of the memory.",
        "MORE": "More flags, separated by blanks.",
    }
    lines = [f"# What {unit_of(one.name)} is started with."]
    for name, value in values.items():
        if name in prose:
            lines += ["", f"# {prose[name]}"]
        lines.append(f"{name}={quoted(value)}")
    return with_header("".join(f"{line}\n" for line in lines), UNDO)


def quoted(value: str) -> str:
    """As a value of such a file. Raises ValueError for what cannot stand in one: a line break, or what is no printable text."""
    if not value.isprintable():
        raise ValueError("has characters in it that cannot be printed")
    if _PLAIN.fullmatch(value):
        return value
    return in_double_quotes(value)


def launch_words(command: Sequence[str]) -> tuple[str, ...]:
    """Flags of a recommended command that the unit and a child do not say themselves."""
    taken = {
        "-m", "--model", "-c", "--ctx-size", "-np", "--parallel", "--cache-ram", "-cram", "--ctx-checkpoints", "--swa-checkpoints",
        "-ctk", "--cache-type-k", "-ctv", "--cache-type-v",
    }  # fmt: skip
    found: list[str] = []
    skip = False
    for word in command[1:]:
        if skip:
            skip = False
        elif word in taken:
            skip = True
        else:
            found.append(word)
    return tuple(found)
