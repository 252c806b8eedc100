"""Writes the files that are made from the code: the sample config, the reference and man pages, the table of completion. Run by `make docs`."""  # noqa: INP001

from __future__ import annotations

import importlib
import inspect
import json
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import EnumType, StrEnum
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parent))  # its parts lie beside it

from command_model import Command, Parameter, completion_table, model_of
from house_svg import house_svg, layers
from man_pages import man_pages

from moetuned import alerts, backends, tunables
from moetuned.alerts.exec import environment
from moetuned.alerts.journal import MESSAGE_IDS
from moetuned.api import routes
from moetuned.api.metric_catalogue import catalogue, signal_metric_name
from moetuned.cli.main import group as moetunectl
from moetuned.daemon.main import group as moetuned
from moetuned.decide import signals
from moetuned.decide.alert_text import TITLES
from moetuned.decide.capabilities import TURNED_OFF
from moetuned.decide.nagios import CheckAnswer
from moetuned.host import rehearsals
from moetuned.parse.backend_http import paths_of
from moetuned.parse.config_sample import reference_page, sample_config
from moetuned.schema.alert_view import AlertsAnswer, AlertTestAnswer
from moetuned.schema.backend_abilities import Abilities
from moetuned.schema.capability import Action, Capabilities
from moetuned.schema.config import Profile
from moetuned.schema.event import CLOSES, ENDS, KIND_OF, Event, EventName, KeptEvents, general
from moetuned.schema.explanation import Explanations
from moetuned.schema.headline import StatusReport
from moetuned.schema.history import Histories
from moetuned.schema.relief import ReliefPlans
from moetuned.schema.severity import SEVERITY
from moetuned.schema.snapshot import Snapshot
from moetuned.schema.supervision import BackendAnswer
from moetuned.schema.tunable import Bound, Codec, Tunable, TunableSpec

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = model_of("moetunectl", moetunectl), model_of("moetuned", moetuned)

EXAMPLES = """\
```sh
curl --unix-socket /run/moetuned/api.sock http://localhost/v1/status
curl http://127.0.0.1:9843/v1/events
sudo curl --unix-socket /run/moetuned/api.sock -d '{"backend": "glm"}' http://localhost/v1/warm
```"""
GET_PATHS = {
    "/": "The paths there are, as text.",
    "/healthz": "`ok` as text once the daemon has looked; 503 before.",
    "/metrics": "All [metrics](metrics.md): in OpenMetrics for who prefers it by an `Accept` header, as Prometheus does, else in the text format of "
    "Prometheus.",
    "/v1/alerts": "How the alert sinks are: an `AlertsAnswer`, below.",
    "/v1/capabilities": "What the daemon can do from where it runs: a `Capabilities`, below; see [Capabilities](capabilities.md).",
    "/v1/events": "Events, oldest first: a `KeptEvents`, below; with `?since=` those after the event with that id, or after that time: Unix "
    "seconds, or ISO 8601, UTC where it names no zone.",
    "/v1/explain": "Why the verdicts are what they are now: an `Explanations`, below; with `?backend=NAME` of that one only. "
    "Worked out when it is asked for.",
    "/v1/history": "The last ten minutes, a value every two seconds: a `Histories`, below; with `?seconds=N` (1 to 600) the last N seconds, with "
    "`?backend=NAME` of that one only. A daemon that has just started has less.",
    "/v1/relief": "What relief would do now and why: a `ReliefPlans`, below; with `?backend=NAME` for that one only. Worked out when it "
    "is asked for.",
    "/v1/status": "Everything the daemon knows: a `Snapshot`, below.",
}
"""What each GET path answers. A path that is missing here stops `make docs`."""
ACTIONS = {
    "alerts/test": "Send a test to an alert sink, or to all; answers with an `AlertTestAnswer`, below; 202, what becomes of it is in "
    "`/v1/alerts`.",
    "backend": "Restart, pause or resume a backend that moetuned runs. A restart waits up to a minute for requests that are being answered "
    "(not with `now`) and may change the context; `dry_run` only says what it would be. Answers with a `BackendAnswer`, below; 202 once it is "
    "under way, the progress is in the status; 404 where there is no such backend, 409 with one sentence why it is not done.",
    "reload": "Read the config again, as `systemctl reload moetuned` does; 409 with the problems when it cannot be used.",
    "tune": "Apply the settings of the config that the daemon has read (also those that were yielded to somebody else), or give all "
    "back and rest until the next apply, reload or restart; answers with `tuning` (as in the status) and `notes`; 409 for a "
    "`config`, `profile` or `journal` (each may be left out) that is not the daemon's.",
    "warm": "Warm the model of a backend now; 202, the progress is in the status.",
}
"""What each action does. One that is missing here stops `make docs`."""


def page(title: str, source: str, *parts: str) -> str:
    """A whole page; `source` says where to edit instead."""
    return "\n\n".join((f"# {title}", f"<!-- Made by `make docs` from {source}; edit that. -->", *parts)) + "\n"


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table."""
    columns = list(head)
    lines = [columns, ["---"] * len(columns), *([_cell(text) for text in row] for row in rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _paragraphs(docstring: str | None) -> list[str]:
    return [" ".join(text.split()) for text in inspect.cleandoc(docstring or "").split("\n\n")]


def signals_page() -> str:
    """Every signal: its unit and its module's docstring."""
    parts = [
        (
            "What is derived each tick from two or more samples, for one backend. A verdict's reasons name them. In "
            "`moetunectl status --json` and `/v1/status` they are under `backends[].signals`; null is unknown, and what is unknown "
            "begins nothing. Sizes are bytes, rates are over the measured time."
        ),
    ]
    units = signals.signal_units()
    for name, unit in sorted(units.items()):
        module = importlib.import_module(f"{signals.__name__}.{name}")
        metric = "" if name.startswith("machine_") else f" Metric: `{signal_metric_name(name, unit)}`."
        parts += [f"## {name}", f"Unit: {unit}.{metric}", *_paragraphs(module.__doc__)]
    return page("Signals", "the docstrings in moetuned/decide/signals/", *parts)


def metrics_page() -> str:
    """Every metric."""
    rows = (
        (f"`{metric.name}`", metric.kind, ", ".join(f"`{label}`" for label in metric.labels), metric.help)
        for metric in catalogue()
    )
    return page(
        "Metrics",
        "moetuned/api/metric_catalogue.py",
        "`curl http://127.0.0.1:9843/metrics` or `moetunectl metrics` gives them in the text format of Prometheus; in OpenMetrics to who prefers "
        "that, as Prometheus does. What is unknown has no sample; it is never 0. Units are in the names. An *info* is a gauge in the text format. "
        "How to collect, show and be alerted: [Metrics](../metrics.md).",
        table(("metric", "type", "labels", "what it is"), rows),
    )


def tunables_page() -> str:
    """Every tunable's manual entry."""
    parts = [
        (
            "The kernel settings that moetuned may change. `moetunectl tune explain` prints the same with the values of the machine "
            "it runs on, `moetunectl tune plan` what would be changed there. How they are put back: [Undo](../undo.md). How to choose "
            "other values: [Configure](../configure.md#only-tune-the-machine)."
        ),
    ]
    every = [tunables.load(module_name) for module_name in tunables.module_names()]
    overview = (
        (
            f"[`{each.spec.name}`](#{_anchor(each.spec.name)})",
            "yes" if _in_a_profile(each) else "no",
            each.manual.summary,
        )
        for each in every
    )
    parts.append(table(("setting", "set by the profiles", "what it is"), overview))
    for tunable in every:
        spec, manual = tunable.spec, tunable.manual
        files = [spec.place.path, *([spec.place.twin_path] if spec.place.twin_path else [])]
        keys = [spec.config_key, *([f"tuning.sysctl.{spec.twin.name}"] if spec.twin else [])]
        rows = [
            ("file", " or ".join(f"`{one}`" for one in files)),
            ("config key", " or ".join(f"`{key}`" for key in keys)),
            ("allowed", _allowed(spec)),
            ("set to", _set_to(spec, manual.computed)),
        ]
        rows += [("left alone at", f"`{value}`: {reason}") for value, reason in sorted(spec.keep.items())]
        if spec.place.taken_at_open:
            rows.append(("in force", "for files that are opened after the change: restart the backend"))
        parts += [
            f"## {spec.name}",
            manual.summary,
            table(("", ""), rows),
            f"Why: {manual.why}",
            f"Risk: {manual.risk}",
        ]
        parts += [f"Source: {manual.source}", f"Not when: {manual.not_when}"]
        if manual.side_effect:
            parts.append(f"Side effect: {manual.side_effect}")
        parts.append(f"Undo: {_undo(tunable)}")
    profiles = ", ".join(f"`{profile}`" for profile in Profile)
    parts.append(f"Profiles: {profiles}. `observe` changes nothing, whatever else the config says.")
    return page("Tunables", "the docstrings in moetuned/tunables/", *parts)


def capabilities_page() -> str:
    """Every rehearsal's manual entry."""
    parts = [
        (
            "At start, and when the config or a backend's place changes, the daemon rehearses what its actions may need, each in a harmless form in "
            "a process of its own that has the daemon's sandbox: nothing is changed, and nothing is left. `moetunectl status --capabilities` (and "
            "`/v1/capabilities`, see [API](api.md)) shows what came of it. *no* is a definite refusal: it turns the action off before the day "
            "it is needed, relief and tuning leave it out with the reason, and the status has a line `cannot`. *unknown* turns nothing off. "
            "After a change of the unit: `systemctl daemon-reload && systemctl restart moetuned`."
        ),
        "Turned off by a refusal: "
        + ", ".join(f"`{one.value}`" for one in Action if one in TURNED_OFF)
        + ". The others are tried all the same; of these, that conversations cannot be saved is among what `cannot` says, too.",
    ]
    for name in rehearsals.names():
        manual = rehearsals.load(name).manual
        rows = (("for", manual.actions), ("tried", manual.tried), ("no", manual.no), ("unknown", manual.unknown))
        parts += [f"## {name}", manual.summary, table(("", ""), (*rows, ("to do", manual.cure)))]
    return page("Capabilities", "the docstrings in moetuned/host/rehearsals/", *parts)


def _anchor(heading: str) -> str:
    return "".join(letter for letter in heading.lower() if letter.isalnum() or letter in "-_")


def _in_a_profile(tunable: Tunable) -> bool:
    return bool(tunable.spec.wanted or tunable.manual.computed)


def _undo(tunable: Tunable) -> str:
    """How to have this one setting back as it was; what puts back all of them is on the page that it links."""
    key = tunable.spec.config_key
    if key.startswith("backends."):
        one = f"Take `{key.removeprefix('backends.')}` out of the backend's entry in the config and reload"
    elif _in_a_profile(tunable):
        one = f"Write `keep` for `{key}` into the config and reload"
    else:
        one = f"Take `{key}` out of the config and reload"
    late = (
        "; a backend that has its model open keeps the value until it is restarted"
        if tunable.spec.place.taken_at_open
        else ""
    )
    return f"{one}{late}. All of them at once: `sudo moetunectl tune rollback`, or stop the daemon."


def _allowed(spec: TunableSpec) -> str:
    if spec.choices:
        return ", ".join(spec.choices)
    largest = "any number of bytes" if spec.place.codec is Codec.LIMIT else spec.highest
    return f"{spec.lowest} to {largest}" if spec.highest is not None else str(largest)


def _set_to(spec: TunableSpec, computed: str) -> str:
    """What the profiles set; `computed` is the manual's word on values that depend on the machine."""
    bound = "" if spec.bound is Bound.SET else f"{spec.bound} "
    by_value: dict[str, list[str]] = {}
    for profile, value in sorted(spec.wanted.items()):
        by_value.setdefault(value, []).append(profile)
    fixed = "; ".join(f"{bound}`{value}` in {', '.join(profiles)}" for value, profiles in by_value.items())
    return f"computed: {computed}" if computed else fixed or "nothing, unless the config asks for it"


def cli_page() -> str:
    """Every command with its options."""
    parts = [
        (
            "`moetuned` is the daemon, `moetunectl` asks and steers it. Every command has `--help`; `man moetunectl` leads to their man "
            'pages. Exit codes of `moetunectl`: 0 done; 1 the answer is "no"; 2 usage; 3 the daemon cannot be reached; 4 refused '
            "(permission, unsafe)."
        ),
    ]
    for program in PROGRAMS:
        for command in program.all():
            if not command.is_group or command is program:
                parts += _command(command)
    return page("Commands", "the click commands in moetuned/cli/ and moetuned/daemon/main.py", *parts)


def _command(command: Command) -> list[str]:
    usage = [command.words, *(["COMMAND"] if command.is_group else []), "[OPTIONS]"]
    usage += [each.word if each.required else f"[{each.word}]" for each in command.arguments]
    parts = [f"## {command.words}", f"`{' '.join(usage)}`", *command.paragraphs]
    if command.options:
        parts.append(table(("option", "what it does"), ((_option(each), each.text) for each in command.options)))
    if command.examples:
        parts.append("\n".join(("```sh", *command.examples, "```")))
    return parts


def _option(option: Parameter) -> str:
    names = ", ".join(f"`{name}`" for name in option.names)
    return f"{names} {option.word}".rstrip()


def api_page() -> str:
    """Paths, actions and the data."""
    gets = [(f"`GET {path}`", GET_PATHS[path]) for path in routes._GET_PATHS]  # noqa: SLF001
    posts = [
        (f"`POST /v1/{name}`", f"{ACTIONS[name]} Body: {_body(kind)}") for name, kind in sorted(routes.ACTIONS.items())
    ]
    return page(
        "API",
        "moetuned/api/routes.py and moetuned/schema/snapshot.py",
        "HTTP/1.1 and JSON, on the Unix socket `/run/moetuned/api.sock` and on a loopback TCP port (127.0.0.1:9843; `api.listen`, "
        "false switches it off).",
        EXAMPLES,
        "The TCP port only answers GET, and only to a Host that is this machine's loopback. Actions go over the Unix socket, and only "
        'root and the group of `api.group` may ask for them. An error is `{"error": "one sentence"}` with a status of 400 or more.',
        table(("request", "answer"), gets),
        table(("action", "what it does"), posts),
        "## Data",
        "null is unknown, never zero. Fields are added, never renamed. Times `*_wall_seconds` and `wall_seconds` are Unix time, "
        "`at_seconds` and `*_since` are on the machine's monotonic clock.",
        *structures(Snapshot),
        "`moetunectl status --json` prints the same with `headlines`, a list of `Headline`, worst first ([JSON Schema](status.schema.json)); "
        "`moetunectl check --json` prints a `CheckAnswer` ([JSON Schema](check.schema.json)).",
        *structures(CheckAnswer),
        *(part for part in structures(Explanations) if part not in structures(Snapshot)),
        *(part for part in structures(Capabilities) if part not in structures(Snapshot)),
        *structures(Histories),
        *structures(ReliefPlans),
        *structures(BackendAnswer),
        *structures(KeptEvents)[:1],
        *(part for part in structures(AlertsAnswer) if part not in structures(Snapshot)),
        *structures(AlertTestAnswer),
    )


def _body(kind: type[msgspec.Struct]) -> str:
    fields = ", ".join(f"`{name}`: {shown(hint)}" for name, hint in get_type_hints(kind).items())
    return f"{{{fields}}}." if fields else "none, or `{}`."


def structures(first: type[msgspec.Struct]) -> list[str]:
    """A section for a struct and for each struct in it, in the order they are met."""
    parts: list[str] = []
    waiting, seen = [first], {first}
    while waiting:
        struct = waiting.pop(0)
        hints = get_type_hints(struct)
        rows = [(f"`{name}`", shown(hints[name])) for name in struct.__struct_fields__]
        parts += [f"### {struct.__name__}", *_paragraphs(struct.__doc__), table(("field", "type"), rows)]
        for hint in hints.values():
            for inner in _structs_in(hint):
                if inner not in seen:
                    seen.add(inner)
                    waiting.append(inner)
    return parts


def _structs_in(hint: Any) -> Iterator[type[msgspec.Struct]]:
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        yield hint
    for inner in get_args(hint):
        yield from _structs_in(inner)


def shown(hint: Any) -> str:
    """A type as people write it in JSON."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (types.UnionType, Union):
        return " or ".join("null" if each is types.NoneType else shown(each) for each in arguments)
    if origin is tuple:
        return f"list of {shown(arguments[0])}"
    if origin is dict:
        return f"map of {shown(arguments[1])}"
    if isinstance(hint, EnumType) and issubclass(hint, StrEnum):
        return ", ".join(f"`{each.value}`" for each in hint)
    names = {str: "text", int: "whole number", float: "number", bool: "true or false"}
    return names.get(hint) or f"`{hint.__name__}`"


def _event_row(name: EventName) -> tuple[str, ...]:
    ends = [end for over in (ENDS, CLOSES) for end, begun in over.items() if general(name) in begun]
    kind = f"`{KIND_OF[name]}`" if name in KIND_OF else ""
    return f"[`{name}`](../alerts/{name}.md)", SEVERITY[name].value, kind, ", ".join(f"`{end}`" for end in ends)


def events_page() -> str:
    """Names, JSON and hook environment of events."""
    example = Event("", EventName.THRASH_BEGIN, 0.0, 0.0, None, "")
    about = {
        "MOETUNED_EVENT": "its name",
        "MOETUNED_EVENT_ID": "its id, which no other event ever has",
        "MOETUNED_BACKEND": "the backend's name; empty: about the machine",
        "MOETUNED_MESSAGE": "one sentence a person can act on",
        "MOETUNED_REASONS": "why, one reason a line",
        "MOETUNED_TIME": "when, ISO 8601 in UTC",
        "MOETUNED_WALL_SECONDS": "when, Unix time with milliseconds",
        "PATH": "the usual directories of programs",
        "LANG": "C.UTF-8",
    }
    return page(
        "Events",
        "moetuned/schema/event.py and moetuned/alerts/exec.py",
        "Each has a page with what it means and what to do. Who is told, and how: [Alerts](../alerts.md).",
        table(("event", "severity", "a kind of", "over with"), (_event_row(name) for name in EventName)),
        "## As JSON",
        "In `/v1/events`, in `moetunectl events --json`, and one line on a hook's standard input:",
        *structures(Event),
        "## Environment of a hook",
        table(("variable", "value"), ((f"`{name}`", about[name]) for name in environment(example))),
    )


def sinks_page() -> str:
    """Every alert sink's manual entry, and what the journal calls each event."""
    parts = ["How to use them: [Alerts](../alerts.md#sinks). Their keys: [Config](config.md)."]
    for kind in alerts.kinds():
        parts += [f"## {kind}", *_paragraphs(importlib.import_module(f"moetuned.alerts.{kind}").__doc__)]
    rows = ((f"[`{name}`](../alerts/{name}.md)", SEVERITY[name].value, f"`{MESSAGE_IDS[name]}`") for name in EventName)
    parts += ["## Severities and message ids", table(("event", "severity", "MESSAGE_ID in the journal"), rows)]
    return page("Alert sinks", "the docstrings in moetuned/alerts/ and moetuned/schema/severity.py", *parts)


def backends_page() -> str:
    """Every kind of backend: what it can do, and its manual entry."""
    kinds = [backends.load(name) for name in backends.names()]
    rows = (
        (
            f"[`{kind.NAME}`](#{kind.NAME})",
            *(", ".join(ways) or "no" for ways in _ways(kind.ABILITIES)),
            "yes" if kind.ABILITIES.saves_slots else "no",
            kind.ABILITIES.tokens or "nothing",
        )
        for kind in kinds
    )
    head = ("kind", "context", "slots", "KV types", "prompt cache", "saves slots", "tokens are told by")
    about = (
        "What moetuned knows of each kind of backend, and how a setting is given to it: by a flag, a variable of its environment, or a "
        "request to its API. What does not tell stays unknown and begins nothing. More: [Backends](../backends.md)."
    )
    parts = [about, table(head, rows)]
    for kind in kinds:
        asked = paths_of(kind.ABILITIES.dialect)
        every = () if asked is None else (asked.health, asked.props, asked.slots, asked.metrics)
        told = ", ".join(f"`{path}`" for path in every if path is not None) or "what its entry in the config says"
        parts += [f"## {kind.NAME}", *_paragraphs(kind.__doc__), f"Asked for: {told}."]
    return page("Kinds of backends", "the docstrings and ABILITIES in moetuned/backends/", *parts)


def _ways(abilities: Abilities) -> Iterator[tuple[str, ...]]:
    for ways in (abilities.context, abilities.slots, abilities.cache_types, abilities.prompt_cache):
        yield tuple(way.value for way in ways)


def schema_page(kind: type[msgspec.Struct]) -> str:
    """A JSON Schema (draft 2020-12) of what a command prints with --json."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **msgspec.json.schema(kind)}
    return json.dumps(schema, indent=2) + "\n"


GENERATED: Mapping[str, Callable[[], str]] = {
    "etc/moetuned.yaml": sample_config,
    "docs/reference/config.md": reference_page,
    "docs/reference/signals.md": signals_page,
    "docs/reference/metrics.md": metrics_page,
    "docs/reference/capabilities.md": capabilities_page,
    "docs/reference/tunables.md": tunables_page,
    "docs/reference/cli.md": cli_page,
    "docs/reference/api.md": api_page,
    "docs/reference/events.md": events_page,
    "docs/reference/sinks.md": sinks_page,
    "docs/reference/backends.md": backends_page,
    "docs/pictures/house.svg": lambda: house_svg(layers()),
    "docs/reference/status.schema.json": lambda: schema_page(StatusReport),
    "docs/reference/check.schema.json": lambda: schema_page(CheckAnswer),
    "moetuned/data/completion.json": lambda: completion_table(*PROGRAMS),
    **{f"docs/man/{name}": generate for name, generate in man_pages(*PROGRAMS).items()},
}


def missing_of_events(events: Iterable[str], pages: Path = ROOT / "docs/alerts") -> list[str]:
    """What events lack of what docs/adding.md asks for ("An event"), a line each: which event, what, and the file that it goes into."""
    tables: tuple[tuple[str, Mapping[Any, object], str], ...] = (
        ("severity", SEVERITY, "SEVERITY of moetuned/schema/severity.py"),
        ("title", TITLES, "TITLES of moetuned/decide/alert_text.py"),
        ("MESSAGE_ID", MESSAGE_IDS, "MESSAGE_IDS of moetuned/alerts/journal.py (make one: systemd-id128 new)"),
    )
    found = []
    for name in events:
        found += [
            f"event {name} has no {what}: add it to {where}" for what, table, where in tables if name not in table
        ]
        if not (pages / f"{name}.md").exists():
            found.append(f"event {name} has no page: write docs/alerts/{name}.md, and its row in docs/alerts.md")
    return found


def main() -> int:
    """Write what differs and name it; the exit code. Where an event is not complete, say what it lacks and write nothing."""
    if missing := missing_of_events(EventName):
        sys.stderr.write(
            "".join(f"{line}\n" for line in (*missing, "nothing was written; see docs/adding.md, An event"))
        )
        return 1
    for name, generate in GENERATED.items():
        path, text = ROOT / name, generate()
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            sys.stdout.write(f"wrote {name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
