"""`moetunectl evict`: drop a model's pages from the page cache. What a running backend has mapped stays."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click
import msgspec

from moetuned.cli.model_command import (
    EXIT_NO,
    EXIT_REFUSED,
    EXIT_USAGE,
    SETTINGS,
    exit_code,
    fail,
    looked,
    print_json,
    read_or_fail,
)
from moetuned.cli.model_residency import IN_MEMORY, Look, cache_notes, filesystem_of
from moetuned.cli.progress_line import Bar, width_of_output
from moetuned.cli.residency_view import change_line, wrapped
from moetuned.cli.warm_place import MappedBy, users_of
from moetuned.cli.warm_report import ResidentNow, resident_now
from moetuned.gguf.experts import expert_ranges
from moetuned.host.model_files import ModelFile
from moetuned.host.page_cache import PAGE_BYTES, expert_page_runs
from moetuned.host.page_drop import drop_pages
from moetuned.schema.units import format_bytes


class EvictReport(msgspec.Struct, frozen=True):
    """The documented JSON of `moetunectl evict`, bytes. `stayed_bytes` is of what should have gone; `stayed_because` says why.

    `mapped_by`: processes that have the model mapped.
    """

    model: str
    experts_only: bool
    before: ResidentNow | None
    after: ResidentNow | None
    dropped_bytes: int | None
    stayed_bytes: int | None
    stayed_because: str | None
    mapped_by: tuple[MappedBy, ...]
    unknown: str | None
    notes: tuple[str, ...] = ()


@click.command(
    context_settings=SETTINGS,
    epilog="Examples:\n\n\b\n  sudo moetunectl evict /models/glm-00001-of-00007.gguf\n"
    "  sudo moetunectl evict /models/model.gguf --experts-only\n  sudo moetunectl evict /models/model.gguf --yes --json",
)
@click.argument("model", metavar="MODEL", type=click.Path(readable=False))
@click.option("--experts-only", is_flag=True, help="Keep what every token needs.")
@click.option("--yes", is_flag=True, help="Do not ask, also when a running backend has MODEL mapped.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON, for programs.")
def command(*, model: str, experts_only: bool, yes: bool, as_json: bool) -> None:
    """Drop MODEL (any part of it) from memory, to start cold or to make room. The files stay as they are.

    What a running backend has mapped and used stays: only the kernel can take that away. Exits 1 when something stayed, 4 when
    this user may not know what is in memory.
    """
    found = read_or_fail(model)
    if experts_only and (found.experts is None or not found.experts.tensors):
        why = found.identity.unknown if found.experts is None else "it has none"
        fail(f"{model}: which of its bytes are experts is unknown: {why}", EXIT_USAGE)
    before = looked(found)
    if before.unknown is not None:
        fail(before.unknown, exit_code(before))
    users = users_of(found.identity.paths)
    _ask(users, yes=yes)
    try:
        _drop(found, experts_only=experts_only)
    except OSError as error:
        fail(f"{error.filename or model}: {error.strerror or error}", EXIT_NO)
    after = looked(found)
    report = _report(found, before, after, users, experts_only=experts_only)
    if as_json:
        print_json(report)
    else:
        for line in _lines(report, change_line(before, after), width_of_output()):
            click.echo(line)
    sys.exit(EXIT_NO if report.stayed_bytes or report.unknown is not None else 0)


def _ask(users: Sequence[MappedBy], *, yes: bool) -> None:
    """On a terminal, when a running backend would have to read again what it loses. Ends the program on a no."""
    backends = [one for one in users if one.kind is not None]
    if yes or not backends or not _on_a_terminal():
        return
    told = f"{_named(backends)} has the model mapped and reads again what it loses. Drop it all the same?"
    if not click.confirm(told, err=True):
        fail("nothing was dropped", EXIT_REFUSED)


def _on_a_terminal() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def _drop(model: ModelFile, *, experts_only: bool) -> None:
    """Raises OSError."""
    paths = model.identity.paths
    runs: Sequence[tuple[tuple[int, int], ...]] | None = None
    total = model.identity.size_bytes
    if experts_only and model.experts is not None:
        runs = expert_page_runs(expert_ranges(model.experts), len(paths))
        total = sum((last - first) * PAGE_BYTES for of_part in runs for first, last in of_part)
    bar, earlier = Bar(sys.stderr, total), 0
    try:
        for part, path in enumerate(paths):
            done_before, name = earlier, os.path.basename(path)

            def follow(done: int, done_before: int = done_before, name: str = name) -> None:
                bar.draw(done_before + done, name)

            drop_pages(path, None if runs is None else runs[part], follow)
            earlier += model.part_bytes[part]
    finally:
        bar.clear()


def _report(
    model: ModelFile, before: Look, after: Look, users: tuple[MappedBy, ...], *, experts_only: bool
) -> EvictReport:
    was = before.expert_resident_bytes if experts_only else before.resident_bytes
    stays = after.expert_resident_bytes if experts_only else after.resident_bytes
    filesystem = filesystem_of(model)
    return EvictReport(
        model=model.identity.paths[0],
        experts_only=experts_only,
        before=resident_now(before),
        after=resident_now(after),
        dropped_bytes=None if was is None or stays is None else max(0, was - stays),
        stayed_bytes=stays,
        stayed_because=_why(users, filesystem, experts_only=experts_only) if stays else None,
        mapped_by=users,
        unknown=after.unknown,
        notes=() if stays and filesystem in IN_MEMORY else cache_notes(filesystem),
    )


def _why(users: Sequence[MappedBy], filesystem: str | None, *, experts_only: bool) -> str:
    """Why pages stayed, as far as can be told."""
    if filesystem in IN_MEMORY:
        return f"a file on {filesystem} is memory"
    if users:
        return f"{_named(users)} has it mapped, and the kernel keeps what is mapped and used; end it to drop the rest"
    unseen = "" if os.geteuid() == 0 else "; processes of other users are seen only with sudo"
    if experts_only:
        return f"pages that are kept in one piece with what is no expert, or that are being read or locked{unseen}"
    return f"it is being read, written or locked{unseen}"


def _named(users: Sequence[MappedBy]) -> str:
    first = f"{users[0].name} (pid {users[0].pid})"
    return first if len(users) == 1 else f"{first} and {len(users) - 1} more"


def _lines(report: EvictReport, change: str, width: int) -> list[str]:
    name = os.path.basename(report.model)
    if report.before is None or report.after is None:
        return wrapped(f"{name}: dropped; what is in memory now is unknown: {report.unknown}", width)
    what = (
        f"dropped {format_bytes(report.dropped_bytes)}"
        if report.dropped_bytes or report.stayed_bytes
        else "was not in memory"
    )
    below = list(report.notes)
    if report.stayed_bytes:
        below.insert(0, f"{format_bytes(report.stayed_bytes)} stayed: {report.stayed_because}")
    return [
        *wrapped(f"{name}: {what}; {change}", width),
        *(line for text in below for line in wrapped(text, width, inside=True)),
    ]
