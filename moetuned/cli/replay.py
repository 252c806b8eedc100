"""moetunectl replay: recorded seconds through the same parsers, signals and detector as the daemon's."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NoReturn

import click

if TYPE_CHECKING:
    from moetuned.decide.detector import DetectorSettings
    from moetuned.decide.following import Followed
    from moetuned.state.trace import Trace

EXIT_NO = 1
EXIT_USAGE = 2
EXIT_REFUSED = 4


def replay(trace: Trace, settings: DetectorSettings) -> Iterator[Followed]:
    """Signals and the detector's step for each sample of the trace. Raises what going through its samples raises."""
    from moetuned.decide.following import begin, follow
    from moetuned.parse.assemble import assemble

    following = begin(trace.identity.name)
    for raw in trace.samples:
        followed = follow(following, assemble(raw, (trace.identity,)), trace.facts, settings)
        following = followed.following
        yield followed


@click.command(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Examples:\n\n\b\n  moetunectl replay thrash.jsonl.gz\n"
    "  moetunectl replay thrash.jsonl.gz --config /etc/moetuned/moetuned.yaml --signals\n"
    "  moetunectl replay thrash.jsonl.gz --json | jq -c 'select(.events != [])'",
)
@click.argument("trace", metavar="TRACE")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each sample, for programs.")
@click.option("--signals", "with_signals", is_flag=True, help="Print also the value of every signal.")
@click.option(
    "--config", metavar="FILE", help="Use the memory limits of this config. [the defaults, whatever this machine has]"
)
def command(*, trace: str, as_json: bool, with_signals: bool, config: str | None) -> None:
    """Say what the daemon would have said at each second of a recorded TRACE (.jsonl or .jsonl.gz).

    Needs no daemon and no root. Without --json a line is printed when the verdict changes or something begins. Exits 2 when the
    trace cannot be read to its end; what came before is printed.
    """
    from moetuned.state.trace import TraceError, read_trace

    settings = settings_of_config(config)
    opened: Trace | None = None
    lines: Iterator[str] = iter(())
    while True:
        try:
            if opened is None:
                opened = read_trace(trace)
                lines = (_json_lines if as_json else _lines)(opened, settings, with_signals)
            line = next(lines, None)
        except TraceError as error:
            _fail(str(error), EXIT_USAGE)
        except OSError as error:
            _fail(f"{trace}: {error.strerror}", EXIT_REFUSED if isinstance(error, PermissionError) else EXIT_USAGE)
        if line is None:
            return
        click.echo(line)


def settings_of_config(config: str | None) -> DetectorSettings:
    """With the limits of the config; None: the defaults. Ends the program where the config is wrong."""
    from moetuned.decide.detector import DetectorSettings

    if config is None:
        return DetectorSettings()
    from moetuned import backends, tunables
    from moetuned.decide.detector_limits import settings_of
    from moetuned.host.config_files import load_files
    from moetuned.parse.config_problem import ConfigError

    try:
        loaded = load_files(
            config, tunables.known_sysctls(), known_kinds=backends.names(), further=(tunables.check_tuning,)
        )
    except ConfigError as error:
        click.echo(str(error), err=True)
        sys.exit(EXIT_NO)
    return settings_of(loaded.config)


def _fail(sentence: str, code: int) -> NoReturn:
    from moetuned.cli.verify_view import printable

    sys.stdout.flush()  # what came before the fault comes before its sentence
    click.echo(f"moetunectl replay: {printable(sentence)}", err=True)
    sys.exit(code)


def _json_lines(trace: Trace, settings: DetectorSettings, with_signals: bool) -> Iterator[str]:
    import msgspec

    for followed in replay(trace, settings):
        verdict = followed.step.verdict
        row: dict[str, Any] = {
            "t": verdict.at_seconds,
            "backend": verdict.backend,
            "phase": verdict.phase,
            "paging": verdict.paging,
            "memory": verdict.memory,
            "events": [begun.name for begun in followed.step.begun],
            "reasons": [reason.text for reason in verdict.reasons],
        }
        if with_signals:
            row["signals"] = followed.signals.values
        yield msgspec.json.encode(row).decode()


def _lines(trace: Trace, settings: DetectorSettings, with_signals: bool) -> Iterator[str]:
    from moetuned.cli.verify_view import printable
    from moetuned.decide.window import MAX_GAP_SECONDS

    start = at = None
    before: tuple[str, str, str] | None = None
    for followed in replay(trace, settings):
        verdict = followed.step.verdict
        start = verdict.at_seconds if start is None else start
        when = f"{verdict.at_seconds - start:7.1f} s"
        if at is not None and verdict.at_seconds - at > MAX_GAP_SECONDS:
            yield f"{when}  {verdict.at_seconds - at:.0f} s after the one before: rates over more than {MAX_GAP_SECONDS:.0f} s are unknown"
        at = verdict.at_seconds
        now = (verdict.phase, verdict.paging, verdict.memory)
        if now != before:
            why = "; ".join(reason.text for reason in verdict.reasons if reason.axis == "paging")
            yield printable(f"{when}  {verdict.phase:8} {verdict.paging:9} memory {verdict.memory:10}  {why}")
        for begun in followed.step.begun:
            yield printable(f"{when}  {begun.name}: {begun.message}")
        if with_signals and (now != before or followed.step.begun):
            yield from _signal_lines(followed)
        before = now


def _signal_lines(followed: Followed) -> Iterator[str]:
    from moetuned.decide.signals import signal_units

    values = followed.signals.values
    for name, unit in signal_units().items():
        value = values.get(name)
        if value is not None:
            yield f"{'':11}{name} {_with_unit(value, unit)}"
    unknown = [name for name in signal_units() if values.get(name) is None]
    if unknown:
        yield f"{'':11}unknown: {', '.join(unknown)}"


def _with_unit(value: float, unit: str) -> str:
    from moetuned.schema.units import format_bytes, format_rate, format_ratio

    match unit:
        case "bytes":
            return format_bytes(value)
        case "bytes/s":
            return format_rate(value)
        case "ratio":
            return format_ratio(value) if value < 10 else f"{value:.1f}"
    return f"{value:.4g} {unit}"
