"""`moetunectl tune readahead MODEL`: measures which read-ahead suits a model on the disk that it is on, and says how to keep it.

The kernel takes the read-ahead when a file is opened. So for each value the setting is changed, the model's files are opened and the
setting is put back, all within microseconds, and the measuring is done with what was opened (state/borrowed_setting.py has the undo
journal for it). The machine itself keeps its setting; killed in the very moment, the next run or `tune rollback` puts it back.
Page cache is dropped around the slices that are read, of this model only.
"""

from __future__ import annotations

import math
import os
import shutil
import statistics
import sys
import textwrap
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click
import msgspec

from moetuned import tunables
from moetuned.cli.read_ahead_advice import how_to_keep
from moetuned.cli.read_ahead_view import ReadAheadReport, ValueLine, render
from moetuned.cli.tune_options import (
    EXIT_NO,
    EXIT_REFUSED,
    EXIT_USAGE,
    Options,
    fail,
    options_of,
    places,
    print_json,
    require_root,
)
from moetuned.decide.read_ahead import (
    Expected,
    Point,
    best,
    computed,
    expected,
    is_noisy,
    noise_ratio,
    typical_slice_bytes,
    window_bytes,
)
from moetuned.gguf.experts import ExpertMap
from moetuned.host.block_devices import FileDevices, under_file
from moetuned.host.fs import RealFS
from moetuned.host.machine import MachineError, own_cpus, read_machine
from moetuned.host.model_files import ModelFile, ModelFileError, read_model
from moetuned.host.page_cache import PAGE_BYTES
from moetuned.host.processes import command_line
from moetuned.host.read_ahead_measure import (
    ReadAheadMeasureError,
    Round,
    cached_bytes,
    choose_slices,
    mapped_by,
    read_round,
)
from moetuned.host.slice_faults import open_part
from moetuned.schema.model import ByteRange
from moetuned.schema.snapshot import TunableView
from moetuned.schema.tunable import Cell, Codec, Place, PlannedStep, StepKind, TunableSpec, Wanted
from moetuned.schema.units import format_bytes, parse_bytes
from moetuned.state import tuning
from moetuned.state.borrowed_setting import BorrowError, borrow, clear_up, open_borrowed
from moetuned.state.undo_journal import Held, JournalBusyError, JournalError, UndoJournal, open_journal, read_boot_id

_VALUES = (16, 32, 64, 128, 256, 512, 1024, 2048)
_LOWEST_KIB, _HIGHEST_KIB, _MOST_VALUES = 4, 65536, 16
_ROUNDS, _MOST_ROUNDS = 3, 5
"""More than three where these do not agree."""
_FEWEST_SLICES = 24
_EXIT_STOPPED = 130
_MOST_THREADS = 8
_SEED = 1
_REACHED_THE_DISK = 0.5


class _Asked(msgspec.Struct, frozen=True):
    """What is to be measured. `devices`, `place` and `device` are of what all of the model's parts are on."""

    model: ModelFile
    experts: ExpertMap
    devices: FileDevices
    place: Place
    device: str
    now_kib: int
    values: tuple[int, ...]
    slices: tuple[ByteRange, ...]
    threads: int
    seconds: float
    budget_bytes: int


class _Measured(msgspec.Struct, frozen=True):
    points: tuple[Point, ...]
    read_bytes: int | None
    seconds: float
    notes: tuple[str, ...]


def _size(_context: click.Context, _option: click.Parameter, value: str | None) -> int | None:
    if value is None:
        return None
    try:
        return parse_bytes(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def _seconds(_context: click.Context, _option: click.Parameter, value: float) -> float:
    if not math.isfinite(value):  # a range lets nan through
        raise click.BadParameter("write a number of seconds")
    return value


def _kibs(_context: click.Context, _option: click.Parameter, value: str | None) -> tuple[int, ...] | None:
    """The numbers of "32,64,128"; a usage error otherwise."""
    if value is None:
        return None
    words = [word.strip() for word in value.split(",")]
    page = PAGE_BYTES >> 10
    if not all(word.isascii() and word.isdigit() and len(word) <= 5 for word in words):
        raise click.BadParameter("write numbers of KiB with commas between, e.g. 32,128,512")
    numbers = sorted({int(word) for word in words})
    if not max(_LOWEST_KIB, page) <= numbers[0] or numbers[-1] > _HIGHEST_KIB or len(numbers) > _MOST_VALUES:
        raise click.BadParameter(f"at most {_MOST_VALUES} values, each from {max(_LOWEST_KIB, page)} to {_HIGHEST_KIB}")
    if any(number % page for number in numbers):
        raise click.BadParameter(f"the kernel rounds to whole pages of {page} KiB")
    return tuple(numbers)


@click.command(
    name="readahead",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Examples:\n\n\b\n  sudo moetunectl tune readahead /models/model.gguf\n"
    "  sudo moetunectl tune readahead /models/model.gguf --values 64,128,256 --memory 24G\n"
    "  sudo moetunectl tune readahead /models/model.gguf --apply",
)
@click.argument("model", metavar="MODEL", type=click.Path(readable=False))
@click.option(
    "--bytes", "budget", metavar="SIZE", default="4G", show_default=True, callback=_size, help="Most bytes to read."
)
@click.option(
    "--seconds",
    metavar="SECONDS",
    type=click.FloatRange(1, 3600),
    default=40,
    show_default=True,
    callback=_seconds,
    help="Time to measure for, all values together.",
)
@click.option(
    "--values", metavar="KIB,...", callback=_kibs, help="Values to try. [16 to 2048 by doubling, and the present one]"
)
@click.option(
    "--memory",
    metavar="SIZE",
    callback=_size,
    help="How much of the model will be in memory. [what this machine or container has left]",
)
@click.option(
    "--apply",
    "apply_it",
    is_flag=True,
    help="Set the best one now. The next `tune apply` or start of the daemon takes it away unless the config has it.",
)
@click.option("--config", metavar="FILE", type=click.Path(), help="Config that the advice is for. [the daemon's]")
@places
def readahead(**values: Any) -> None:
    """Measure which read-ahead suits MODEL on the disk that it is on, and propose the best.

    Reads expert slices at random for less than a minute in all. Stop backends that have MODEL open first. The setting itself stays
    as it is, unless --apply is given; a backend takes a new value when it is restarted.
    """
    options = options_of(values)
    if options.root != "/":
        fail("--root: a read-ahead can only be measured on the machine itself", EXIT_USAGE)
    require_root(options)
    model, experts = _model(values["model"])
    if values["apply_it"]:
        _journal_is_free(options)
    cached, cached_ratio, notes = _memory(values["memory"], model)
    try:
        with open_borrowed(options.journal, read_boot_id(RealFS())) as journal:
            notes += [
                f"an earlier measurement was killed: {view.name} is {view.state}, {view.now}"
                for view in clear_up(RealFS(), journal)
            ]
            asked = _asked(values, model, experts)
            measured = _measure(asked, journal, cached_ratio)
            journal.tidy()
    except KeyboardInterrupt:
        click.echo("moetunectl: stopped; the setting is as it was", err=True)
        sys.exit(_EXIT_STOPPED)
    except JournalBusyError:
        fail("another `moetunectl tune readahead` runs; wait until it is done", EXIT_REFUSED)
    except (JournalError, BorrowError) as error:
        fail(str(error), EXIT_REFUSED)
    except (ReadAheadMeasureError, OSError) as error:
        fail(f"{values['model']}: {error}", EXIT_NO)
    report = _report(asked, measured, cached, cached_ratio, notes)
    if values["apply_it"] and not report.noisy and report.best_kib != report.now_kib:
        report = msgspec.structs.replace(report, applied=_apply(options, asked, report.best_kib))
    _show(options, report, asked, apply_it=values["apply_it"])


def _model(path: str) -> tuple[ModelFile, ExpertMap]:
    """The model and where its experts lie; ends the program when there is nothing to measure in it."""
    try:
        model = read_model(path)
    except ModelFileError as error:
        fail(str(error), EXIT_REFUSED if error.refused else EXIT_USAGE)
    if model.experts is None:
        fail(f"{path}: {model.identity.unknown}", EXIT_USAGE)
    if not model.experts.tensors:
        fail(
            f"{path} has no experts: it is read from end to end, and a large read-ahead is right for it; nothing to measure",
            EXIT_USAGE,
        )
    return model, model.experts


def _asked(values: dict[str, Any], model: ModelFile, experts: ExpertMap) -> _Asked:
    path = values["model"]
    slices = choose_slices(experts, _SEED)
    if len(slices) < _FEWEST_SLICES:
        fail(f"{path} has only {len(slices)} expert slices, too few to measure with", EXIT_USAGE)
    paths = [model.identity.paths[part] for part in sorted({each.part for each in slices})]
    devices = _one_device(path, paths)
    now = devices.read_ahead_kb
    if devices.read_ahead_path is None or devices.read_ahead_device is None or now is None:
        why = devices.unknown or f"the kernel does not say which read-ahead counts for it ({devices.filesystem})"
        fail(f"{path}: {why}", EXIT_REFUSED)
    users = mapped_by(paths)
    if users:
        who = ", ".join(f"{os.path.basename((command_line(pid) or ('?',))[0])} (pid {pid})" for pid in users[:3])
        fail(
            f"{path} is open in {who}: measuring would take its pages away and be wrong; stop it first, then measure",
            EXIT_REFUSED,
        )
    kibs = values["values"] or tuple(each for each in _VALUES if each << 10 >= PAGE_BYTES)
    kibs = tuple(sorted({*kibs, *((now,) if now << 10 >= PAGE_BYTES else ())}))
    least = _ROUNDS * sum((typical_slice_bytes(experts) or 0) + window_bytes(kib) for kib in kibs)
    if values["budget"] < least:
        fail(
            f"--bytes: reading one slice with each value in each round takes {format_bytes(least)}; give more",
            EXIT_USAGE,
        )
    return _Asked(
        model=model,
        experts=experts,
        devices=devices,
        place=Place(devices.read_ahead_path, Codec.INTEGER, taken_at_open=True),
        device=devices.read_ahead_device,
        now_kib=now,
        values=kibs,
        slices=slices,
        threads=_threads(),
        seconds=values["seconds"],
        budget_bytes=values["budget"],
    )


def _one_device(model: str, paths: Sequence[str]) -> FileDevices:
    """The devices under all parts; ends the program when they are on several, each of which has a value of its own."""
    found = [under_file(path) for path in paths]
    if len({devices.read_ahead_path for devices in found}) > 1:
        fail(f"{model}: its parts are on several file systems, each with a read-ahead of its own", EXIT_REFUSED)
    return found[0]


def _threads() -> int:
    """As many as a backend would use: its default is one for each physical core."""
    try:
        cores = read_machine(os.getpid(), own_cpus()).physical_cores
    except MachineError:
        cores = None
    return max(1, min(_MOST_THREADS, cores or 1))


def _memory(asked: int | None, model: ModelFile) -> tuple[int, float, list[str]]:
    """Bytes of the model that will be in memory, the share of its experts that these leave room for, and notes."""
    size, layout = model.identity.size_bytes, model.identity.layout
    notes: list[str] = []
    room = asked
    if room is None:
        try:
            here = read_machine(os.getpid(), own_cpus())
        except MachineError as error:
            fail(f"{error} (here: --memory)", EXIT_USAGE)
        room = max(0, here.limit.low_bytes - here.system.high_bytes)
    cached = min(room, size)
    if cached == size:
        notes.append("all of the model fits into memory: its read-ahead counts only until it is there; see --memory")
        return cached, 1.0, notes
    if layout is None or layout.expert_bytes == 0:
        return cached, 0.0, notes
    return cached, max(0.0, min(1.0, (cached - layout.other_bytes) / layout.expert_bytes)), notes


def _measure(asked: _Asked, journal: UndoJournal, cached_ratio: float) -> _Measured:
    """Raises BorrowError, JournalError, ReadAheadMeasureError, OSError."""
    opened: dict[int, dict[int, int]] = {}
    rounds: dict[int, list[Round]] = {kib: [] for kib in asked.values}
    began = time.monotonic()
    try:
        for kib in asked.values:
            opened[kib] = _opened_at(asked, journal, kib)
        cached = cached_bytes(opened[asked.values[0]], asked.slices)
        share = _MOST_ROUNDS * len(asked.values)
        for number in range(_MOST_ROUNDS):
            if number >= _ROUNDS and not is_noisy(expected(_points(rounds), cached_ratio)):
                break
            ours = asked.slices[number % _ROUNDS :: _ROUNDS]
            for kib in asked.values if number % 2 == 0 else asked.values[::-1]:
                _progress(f"round {number + 1} of {max(_ROUNDS, number + 1)}, {kib} KiB")
                rounds[kib].append(
                    read_round(
                        opened[kib],
                        iter(ours),
                        window_bytes(kib),
                        threads=asked.threads,
                        seconds=asked.seconds / share,
                        budget_bytes=asked.budget_bytes // share,
                    )
                )
    finally:
        _progress("")
        for descriptors in opened.values():
            for descriptor in descriptors.values():
                os.close(descriptor)
    everything = [each for of_one in rounds.values() for each in of_one]
    counts = [each.read_bytes for each in everything]
    read = None if None in counts else sum(count for count in counts if count is not None)
    if read is not None and read < _REACHED_THE_DISK * sum(each.useful_bytes for each in everything):
        raise ReadAheadMeasureError(
            "most of what was read did not come from the disk (a sparse file, a compressing file system, or another process "
            "holds it in memory), so nothing can be said about the read-ahead"
        )
    notes = []
    if cached:
        notes.append(
            f"up to {format_bytes(cached)} of the model were in memory and what was read of it is not any more; it comes back as it "
            "is used"
        )
    return _Measured(_points(rounds), read, time.monotonic() - began, tuple(notes))


def _opened_at(asked: _Asked, journal: UndoJournal, kib: int) -> dict[int, int]:
    """Descriptors of the parts, opened while the setting is `kib`."""
    paths = {each.part: asked.model.identity.paths[each.part] for each in asked.slices}

    def opening() -> dict[int, int]:
        opened: dict[int, int] = {}
        try:
            for part, path in paths.items():
                opened[part] = open_part(path)
        except OSError:
            for descriptor in opened.values():
                os.close(descriptor)
            raise
        return opened

    return borrow(RealFS(), journal, _name(asked.device), asked.place, str(kib), opening)


def _points(rounds: Mapping[int, Sequence[Round]]) -> tuple[Point, ...]:
    return tuple(_point(kib, of_one) for kib, of_one in rounds.items())


def _point(kib: int, rounds: Sequence[Round]) -> Point:
    """The median of the rounds' speeds: virtual disks are throttled by spells."""
    useful = sum(each.useful_bytes for each in rounds)
    read = [each.read_bytes for each in rounds if each.read_bytes is not None]
    speeds = tuple(each.useful_bytes / max(each.seconds, 1e-9) for each in rounds)
    return Point(
        kib=kib,
        useful_bytes_per_second=statistics.median(speeds),
        amplification=sum(read) / useful if len(read) == len(rounds) and useful else None,
        slices=sum(each.slices for each in rounds),
        rounds=speeds,
    )


def _report(
    asked: _Asked, measured: _Measured, cached: int, cached_ratio: float, notes: Sequence[str]
) -> ReadAheadReport:
    curve = expected(measured.points, cached_ratio)
    chosen = best(curve)
    assert chosen is not None
    slice_bytes = typical_slice_bytes(asked.experts) or 0
    by_rule = computed(slice_bytes, asked.devices.rotational, nvme=asked.devices.nvme)
    noisy = is_noisy(curve)
    return ReadAheadReport(
        model=asked.model.identity.paths[0],
        model_bytes=asked.model.identity.size_bytes,
        slice_bytes=slice_bytes,
        device=asked.device,
        setting=asked.place.path,
        now_kib=asked.now_kib,
        best_kib=(by_rule.kib or asked.now_kib) if noisy else chosen.kib,
        computed_kib=by_rule.kib,
        computed_because=by_rule.because,
        cached_bytes=cached,
        cached_ratio=cached_ratio,
        threads=asked.threads,
        seconds=measured.seconds,
        read_bytes=measured.read_bytes,
        values=tuple(_line(each) for each in curve),
        notes=(*notes, *measured.notes),
        noisy=noisy,
        noise_ratio=noise_ratio(measured.points),
    )


def _line(each: Expected) -> ValueLine:
    point = each.point
    return ValueLine(point.kib, point.slices, point.useful_bytes_per_second, point.amplification, each.speed_ratio)


def _journal_is_free(options: Options) -> None:
    """Ends the program when applying would be refused, before anything is measured."""
    try:
        open_journal(options.journal, read_boot_id(RealFS())).close()
    except JournalBusyError:
        fail(
            "a running daemon holds the undo journal, so --apply is refused; measure without it, write the value into the config "
            "(tuning: {read_ahead: ...}) and reload the daemon",
            EXIT_REFUSED,
        )
    except JournalError as error:
        fail(str(error), EXIT_REFUSED)


def _apply(options: Options, asked: _Asked, kib: int) -> TunableView:
    """Set it through the undo journal; all other settings that the journal holds are kept."""
    try:
        with open_journal(options.journal, read_boot_id(RealFS())) as journal:
            views = tuning.apply(
                RealFS(), journal, steps_with(journal.held.values(), asked.device, asked.place, kib), by_hand=True
            )
    except JournalError as error:
        fail(str(error), EXIT_REFUSED)
    return next(view for view in views if view.name == _name(asked.device))


def steps_with(held: Iterable[Held], device: str, place: Place, kib: int) -> tuple[PlannedStep, ...]:
    """A plan of what is held already, as it is, and of this one read-ahead: applying it gives nothing back."""
    spec = msgspec.structs.replace(tunables.load("read_ahead_kb").spec, name=_name(device), place=place)
    others = [each for each in held if each.tunable != spec.name]
    wanted = [
        *(Wanted(_spec_of(each), each.intended, "an earlier `tune apply`") for each in others),
        Wanted(spec, Cell(place.path, str(kib)), "tune readahead --apply"),
    ]
    return tuple(PlannedStep(each, StepKind.WRITE, None, each.asked_by) for each in wanted)


def _spec_of(entry: Held) -> TunableSpec:
    return TunableSpec(name=entry.tunable, config_key="", place=entry.place, wanted={})


def _name(device: str) -> str:
    return f"read_ahead_kb {device}"


def _show(options: Options, report: ReadAheadReport, asked: _Asked, *, apply_it: bool) -> None:
    if options.as_json:
        print_json(report)
    else:
        click.echo(render(report, min(100, shutil.get_terminal_size().columns)), nl=False)
        if report.best_kib != report.now_kib:
            for line in how_to_keep(options, report, asked.place.path, apply_it):
                click.echo(textwrap.fill(line, 80, break_long_words=False, break_on_hyphens=False))
    applied = report.applied is None or report.applied.state in ("applied", "adjusted", "already")
    if report.noisy or not applied:
        sys.exit(EXIT_NO)


def _progress(text: str) -> None:
    """What is being done, on a line of its own that is written over; nothing where nobody watches."""
    if sys.stderr.isatty():
        click.echo(f"\r\033[K{text}", nl=False, err=True)
