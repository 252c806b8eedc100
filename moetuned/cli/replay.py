"""moetunectl replay: recorded seconds through the same parsers, signals and detector as the daemon's."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from moetuned.decide.detector import Step
    from moetuned.schema.sample import Sample
    from moetuned.state.trace import Trace

WINDOW_SECONDS = 60.0


def replay(trace: Trace) -> Iterator[Step]:
    """A detector's step for each sample of the trace."""
    from moetuned.decide.detector import DetectorSettings, initial, step
    from moetuned.decide.signals import derive
    from moetuned.parse.assemble import assemble

    settings, state = DetectorSettings(), initial(trace.identity.name)
    window: list[Sample] = []
    for raw in trace.samples:
        sample = assemble(raw, (trace.identity,))
        window = [kept for kept in window if sample.at_seconds - WINDOW_SECONDS <= kept.at_seconds < sample.at_seconds]
        window.append(sample)
        signals = derive(window, trace.identity.name, trace.facts)
        stepped = step(state, signals, sample.backends[0], trace.facts, settings)
        state = stepped.state
        yield stepped


@click.command(
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Examples:\n\n\b\n  moetunectl replay thrash.jsonl.gz\n"
    "  moetunectl replay thrash.jsonl.gz --json | jq -c 'select(.events != [])'",
)
@click.argument("trace", metavar="TRACE")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each sample, for programs.")
def command(*, trace: str, as_json: bool) -> None:
    """Say what the daemon would have said at each second of a recorded TRACE (.jsonl or .jsonl.gz).

    Needs no daemon and no root. Without --json a line is printed when the verdict changes or something begins.
    """
    from moetuned.state.trace import TraceError, read_trace

    try:
        opened = read_trace(trace)
        lines = _json_lines(opened) if as_json else _lines(opened)
        for line in lines:
            click.echo(line)
    except TraceError as error:
        click.echo(f"moetunectl replay: {error}", err=True)
        sys.exit(2)
    except OSError as error:
        click.echo(f"moetunectl replay: {trace}: {error.strerror}", err=True)
        sys.exit(4 if isinstance(error, PermissionError) else 2)


def _json_lines(trace: Trace) -> Iterator[str]:
    import msgspec

    for stepped in replay(trace):
        verdict = stepped.verdict
        yield msgspec.json.encode(
            {
                "t": verdict.at_seconds,
                "backend": verdict.backend,
                "phase": verdict.phase,
                "paging": verdict.paging,
                "memory": verdict.memory,
                "events": [begun.name for begun in stepped.begun],
                "reasons": [reason.text for reason in verdict.reasons],
            }
        ).decode()


def _lines(trace: Trace) -> Iterator[str]:
    start: float | None = None
    before: tuple[str, str, str] | None = None
    for stepped in replay(trace):
        verdict = stepped.verdict
        start = verdict.at_seconds if start is None else start
        now = (verdict.phase, verdict.paging, verdict.memory)
        if now != before:
            why = "; ".join(reason.text for reason in verdict.reasons if reason.axis == "paging")
            yield f"{verdict.at_seconds - start:7.1f} s  {verdict.phase:8} {verdict.paging:9} memory {verdict.memory:10}  {why}"
        for begun in stepped.begun:
            yield f"{verdict.at_seconds - start:7.1f} s  {begun.name}: {begun.message}"
        before = now
