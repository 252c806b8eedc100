"""`moetunectl tune explain`: a setting's manual entry, with what it is on this machine and who else sets it."""

from __future__ import annotations

import difflib
from typing import Any

import click
import msgspec

from moetuned import tunables
from moetuned.cli.tune_options import (
    EXIT_USAGE,
    Options,
    device_of,
    fail,
    look,
    options_of,
    places,
    print_json,
    print_notes,
    print_wrapped,
    read_config,
    targets_of,
)
from moetuned.cli.tune_rivals import Rivals, find
from moetuned.host.fs import RealFS
from moetuned.parse.config_problem import ConfigError
from moetuned.schema.tunable import Bound, Targets, Tunable, TunableSpec
from moetuned.state.tuning import standing_originals
from moetuned.state.tuning_views import show_cell
from moetuned.state.undo_journal import Held

_SWAP = (
    "swap: swap that moetuned makes is no kernel setting but a wish of its own, `tuning.swap` with `file`, `size`, `zram` and "
    "`priority`; see docs/configure.md#swap, and `moetunectl tune plan` for what it would make here. The settings beside it are "
    "vm.swappiness and vm.page-cluster."
)


@click.command(
    epilog="Examples:\n\n\b\n  moetunectl tune explain\n  moetunectl tune explain vm.dirty_ratio\n"
    "  moetunectl tune explain read_ahead --json"
)
@click.argument("key", required=False)
@click.option(
    "--config", metavar="FILE", type=click.Path(), help="Config whose models' devices are shown. [the daemon's]"
)
@places
def explain(key: str | None, **values: Any) -> None:
    """Say what a setting does, why moetuned sets it and when not to; without KEY, list all."""
    options = options_of(values)
    if key is None:
        chosen = [tunables.load(name) for name in tunables.module_names()]
    else:
        found = tunables.find(key)
        if found is None and key.removeprefix("tuning.").partition(".")[0] in ("swap", "zram"):
            _explain_swap(options)
            return
        if found is None:
            fail(f"{key}: moetuned does not know this setting; {_near(key)}", EXIT_USAGE)
        chosen = [found]
    contents, notes = look(options)
    fs = RealFS(options.root)
    targets = _targets(options) if any(tunable.spec.per_device for tunable in chosen) else Targets()
    rivals = find(options)
    entries = [_explained(options, fs, tunable, contents.held, targets, rivals) for tunable in chosen]
    if options.as_json:
        print_json(entries)
        return
    for number, entry in enumerate(entries):
        click.echo(("\n" if number else "") + f"{entry['name']}: {entry['summary']}")
        for label, text in entry.items():
            if label not in ("name", "summary") and text is not None:
                print_wrapped(f"{label.replace('_', ' ')}: {text}")
    print_notes(notes)


def _explain_swap(options: Options) -> None:
    if options.as_json:
        name, _, summary = _SWAP.partition(": ")
        print_json([{"name": name, "summary": summary}])
    else:
        print_wrapped(_SWAP)


def _near(key: str) -> str:
    names = [tunables.load(name).spec.name for name in tunables.module_names()]
    near = difflib.get_close_matches(
        key.replace("/", ".").lower(), {*names, *tunables.known_sysctls()}, n=1, cutoff=0.7
    )
    return f"did you mean {near[0]}?" if near else f"it knows {', '.join(names)}"


def _explained(
    options: Options, fs: RealFS, tunable: Tunable, held: dict[str, Held], targets: Targets | str, rivals: Rivals
) -> dict[str, str | None]:
    spec, manual = tunable.spec, tunable.manual
    if isinstance(targets, str) and spec.per_device:
        found: tuple[TunableSpec, ...] = ()
        now = f"unknown, {targets}"
    else:
        known = Targets() if isinstance(targets, str) else targets
        known = msgspec.structs.replace(known, originals=standing_originals(fs, held))
        found = tunables.instances(fs, tunable, known, device_of(options))
        now = "; ".join(_now(fs, each) for each in found)
    if spec.per_device:
        originals = [f"{name} {show_cell(entry.original)}" for name, entry in held.items() if _is_of(name, spec)]
    else:
        originals = [f"{show_cell(held[spec.name].original)}"] if spec.name in held else []
    return {
        "name": spec.name,
        "summary": manual.summary,
        "why": manual.why,
        "risk": manual.risk,
        "not_when": manual.not_when,
        "side_effect": manual.side_effect or None,
        "computed": manual.computed or None,
        "source": manual.source,
        "wanted": "; ".join(dict.fromkeys(_wanted(each) for each in found or (spec,))) or None,
        "now": now or f"unknown, {_nothing(spec)}",
        "original": "; ".join(originals) or None,
        "also_set_by": "; ".join(dict.fromkeys(who for each in found for who in rivals.of(each.place))) or None,
        "file": " or ".join(path for path in (spec.place.path, spec.place.twin_path) if path is not None),
        "config_key": spec.config_key + (f" or tuning.sysctl.{spec.twin.name}" if spec.twin is not None else ""),
    }


def _wanted(spec: TunableSpec) -> str:
    bound = "" if spec.bound is Bound.SET else f"{spec.bound} "
    text = ", ".join(f"{bound}{value} in {profile}" for profile, value in sorted(spec.wanted.items()))
    because = spec.skip or spec.because
    return f"{text} ({because})" if text and because else text or (f"nothing: {because}" if because else "")


def _now(fs: RealFS, spec: TunableSpec) -> str:
    reading = tunables.read_instance(fs, spec)
    value = show_cell(reading.cell) or f"unknown, {reading.unknown}"
    return f"{spec.name} {value}" if spec.per_device else value


def _is_of(name: str, spec: TunableSpec) -> bool:
    return name.startswith(f"{spec.name} ")


def _targets(options: Options) -> Targets | str:
    """The models of the config; the problem, in a sentence, when there is no reading it."""
    try:
        return targets_of(options, read_config(options))
    except ConfigError as error:
        return f"the config cannot be used: {error.problems[0]}"


def _nothing(spec: TunableSpec) -> str:
    """Why there is none of a setting that each device or each cgroup has."""
    if spec.config_key.startswith("backends."):
        return f"no backend of the config has {spec.config_key.partition('.')[2]}"
    return "no backend of the config has a model"
