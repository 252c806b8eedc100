"""`moetunectl residency`: how much of a model is in the page cache, and which of its experts. Needs no daemon; changes nothing."""

from __future__ import annotations

import sys
import time

import click
import msgspec

from moetuned.cli.learned_heat import learned_heat
from moetuned.cli.model_command import SETTINGS, exit_code, looked, print_json, read_or_fail
from moetuned.cli.model_residency import Look, cache_notes, filesystem_of, look_at_experts
from moetuned.cli.progress_line import Elapsed, style_of
from moetuned.cli.residency_view import ResidencyReport, ServedReport, experts_report, render
from moetuned.cli.terminal import wants_colour
from moetuned.decide.heat import RECENT_LOOKS, STAYED, served_ratio
from moetuned.host.model_files import ModelFile
from moetuned.schema.heat import ExpertPages, Heat


@click.command(
    context_settings=SETTINGS,
    epilog="Examples:\n\n\b\n  sudo moetunectl residency /models/glm-00001-of-00007.gguf\n"
    "  sudo moetunectl residency /models/model.gguf --experts\n"
    "  sudo moetunectl residency /models/model.gguf --json | jq .expert_resident_bytes",
)
@click.argument("model", metavar="MODEL", type=click.Path(readable=False))
@click.option("--experts", "by_expert", is_flag=True, help="Also each expert of each layer, as a map.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON, for programs.")
def command(*, model: str, by_expert: bool, as_json: bool) -> None:
    """Say how much of MODEL (any part of it) is in memory: all, its experts, and what every token needs.

    With --experts also how much of what the backend lately used would be served from memory, where the daemon has learned that.
    The kernel tells this only to who owns the files or may write them. Exits 1 when it cannot be known, 4 when this
    user may not know it.
    """
    found = read_or_fail(model)
    look = looked(found)
    report, pages = report_of(found, look), None
    if by_expert and look.unknown is None:
        report, pages = _with_experts(found, report)
    if as_json:
        print_json(report)
    else:
        style = style_of(sys.stdout, colour=wants_colour())
        click.echo(render(report, pages, style), nl=False, color=True if style.colour else None)
    sys.exit(exit_code(look))


def report_of(model: ModelFile, look: Look) -> ResidencyReport:
    """The look as a report, without its experts one by one."""
    filesystem = filesystem_of(model)
    notes = list(cache_notes(filesystem))
    if model.experts is None:
        notes.append(f"which bytes are experts is unknown: {model.identity.unknown}")
    resident, cached, experts = look.resident_bytes, look.expert_resident_bytes, look.expert_size_bytes
    return ResidencyReport(
        model=model.identity.paths[0],
        size_bytes=model.identity.size_bytes,
        resident_bytes=resident,
        expert_size_bytes=experts,
        expert_resident_bytes=cached,
        other_size_bytes=None if experts is None else model.identity.size_bytes - experts,
        other_resident_bytes=None if resident is None or cached is None else resident - cached,
        parts=look.parts,
        filesystem=filesystem,
        by=look.by,
        unknown=look.unknown,
        notes=tuple(notes),
    )


def _with_experts(model: ModelFile, report: ResidencyReport) -> tuple[ResidencyReport, ExpertPages | None]:
    line = Elapsed(sys.stderr, "looking at the experts of")
    try:
        pages = look_at_experts(model, line.draw)
    finally:
        line.clear()
    if isinstance(pages, str):
        return msgspec.structs.replace(report, notes=(*report.notes, f"experts: {pages}")), None
    heat = learned_heat(model, pages)
    notes = report.notes
    if isinstance(heat, Heat) and heat.stayed:
        notes = (*notes, f"learning: {STAYED}")
    report = msgspec.structs.replace(report, experts=experts_report(pages), served=served(heat, pages), notes=notes)
    return report, pages


def served(heat: Heat | str, pages: ExpertPages) -> ServedReport:
    """What the resident experts would have served of the uses that the daemon saw lately; `heat` as `learned_heat` gives it."""
    if isinstance(heat, str):
        return ServedReport(unknown=heat)
    ratio = served_ratio(heat, pages)
    if ratio is None:
        return ServedReport(unknown=f"no use was seen in the last {RECENT_LOOKS} looks")
    return ServedReport(ratio, heat.look, max(0.0, time.time() - heat.saved_wall_seconds))
