"""`moetunectl verify`: is a model on this disk the one that was meant? Headers, split files, extents, SHA-256.

Needs no daemon and no root. Nothing is changed, neither files nor what is resident of them.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from typing import Any, NoReturn

import click
import msgspec

from moetuned.cli.verify_report import GivenSums, build_report
from moetuned.cli.verify_view import ProgressLine, printable, report_json, report_text
from moetuned.host.checksum_sources import Expected, SourceError, expected_of, find_expected, read_list
from moetuned.host.file_hash import FileStamp, stamp_of
from moetuned.host.model_check import ModelCheck, PartCheck, Problem, check_model, hole_problem, named_parts
from moetuned.host.model_hash import HashJob, HashOutcome, ModelHash, worker_count
from moetuned.host.sha256_state import can_resume
from moetuned.host.verify_state import (
    PartState,
    VerifyState,
    default_state_path,
    load_state,
    prepare_directory,
    remove_state,
    save_state,
    usable,
)
from moetuned.parse.checksum_list import Checksum, is_sha256
from moetuned.schema.units import format_bytes

EXIT_NO = 1
EXIT_USAGE = 2
EXIT_REFUSED = 4
EXIT_INTERRUPTED = 130
_DRAW_SECONDS = 0.25
_SAVE_SECONDS = 5.0
_STOP_SECONDS = 2.0


class _Resume(msgspec.Struct, frozen=True):
    """Where the state is kept (None: nowhere) and what an interrupted run left there."""

    path: str | None
    began_at: float
    before: VerifyState | None = None
    note: str | None = None


@click.command(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Examples:\n\n\b\n  moetunectl verify glm-00001-of-00007.gguf\n"
    "  moetunectl verify model.gguf --sha256 SHA256SUMS\n  moetunectl verify model.gguf --json | jq .problems",
)
@click.argument("model", metavar="MODEL")
@click.option(
    "--sha256",
    "sums",
    metavar="FILE",
    help="A list of SHA-256 sums (of sha256sum, or a JSON answer of the Hugging Face Hub), or the sum itself. [one beside MODEL]",
)
@click.option("--quick", is_flag=True, help="Only headers, sizes and holes, in milliseconds; read no content.")
@click.option(
    "--hash", "show_sums", is_flag=True, help="Compute SHA-256 also where there is none to compare; print it."
)
@click.option("--resume", metavar="FILE", help="Keep there how far it got. [in $XDG_CACHE_HOME/moetuned]")
@click.option("--restart", is_flag=True, help="Begin again where an interrupted run could be taken up.")
@click.option(
    "--jobs",
    metavar="N",
    type=click.IntRange(1, 64),
    help="Parts to read at once; 1 suits a hard disk. [half the CPUs, <= 4]",
)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON, for programs.")
def command(**options: Any) -> None:
    """Check that MODEL (any part of it) is complete and undamaged.

    Headers, numbers and names of split files, and that every tensor lies inside its file; then the content, against
    the SHA-256 sums found beside the model or given. Interrupted, it goes on from there the next time. Exits 1 if
    something is wrong.
    """
    model: str = os.path.abspath(options["model"])
    _require_model(model, options["model"])
    if options["quick"] and (options["sums"] or options["show_sums"]):
        raise click.UsageError("--quick reads no content, so it cannot go with --sha256 or --hash")
    given = None if options["sums"] is None else _given(options["sums"])
    check = check_model(model)
    expected, notes = ({}, []) if options["quick"] else _expected(check, given)
    notes += [note for part in check.parts for note in part.notes]
    check = _with_sizes_and_holes(check, expected)
    wanted = [] if options["quick"] else [part for part in check.parts if not part.problems]
    if given is None and not options["show_sums"]:
        wanted = [part for part in wanted if part.path in expected]
    outcomes, read_bytes, seconds = _hash(wanted, options, notes)
    report = build_report(model, check, expected, given, outcomes, notes)
    report = msgspec.structs.replace(report, read_bytes=read_bytes, seconds=seconds, quick=options["quick"])
    if options["as_json"]:
        click.echo(report_json(report))
    else:
        click.echo(report_text(report, options["show_sums"]), nl=False)
    sys.exit(0 if report.ok else EXIT_NO)


def _require_model(model: str, asked: str) -> None:
    directory, name = os.path.split(model)
    if os.path.isdir(model):
        _fail(f"{asked} is a directory; name a GGUF file in it, of a split model any part", EXIT_USAGE)
    try:
        os.lstat(model)
    except PermissionError as error:
        _fail(f"{asked}: {error.strerror}; run this as a user who may read it", EXIT_REFUSED)
    except OSError:
        if not any(os.path.lexists(os.path.join(directory, one)) for one in named_parts(name)):
            _fail(f"{asked}: there is no such file", EXIT_USAGE)


def _given(sums: str) -> GivenSums:
    if is_sha256(sums) and not os.path.exists(sums):
        return GivenSums((Checksum(None, sums.lower()),), "--sha256")
    if not os.path.lexists(sums):
        _fail(f"--sha256 {sums} is neither a file nor a SHA-256 sum (64 hex digits)", EXIT_USAGE)
    try:
        return GivenSums(read_list(sums), sums)
    except SourceError as error:
        _fail(str(error), EXIT_USAGE)


def _expected(check: ModelCheck, given: GivenSums | None) -> tuple[dict[str, Expected], list[str]]:
    """What each part should be, by path, and notes about lists that could not be used or do not name a part."""
    found: dict[str, Expected] = {}
    notes: list[str] = []
    if given is not None and given.sums[0].name is None and len(check.parts) > 1:
        _fail(f"{given.source} holds one sum without a name, and the model has {len(check.parts)} parts", EXIT_USAGE)
    for part in check.parts:
        try:
            if given is not None:
                one = expected_of(part.path, given.sums, given.source)
            else:
                one, unusable = find_expected(part.path)
                notes += [note for note in unusable if note not in notes]
        except SourceError as error:
            _fail(str(error), EXIT_USAGE)
        if one is not None:
            found[part.path] = one
    if given is None and found:
        sources = sorted({one.source for one in found.values()})
        notes += [
            f"{os.path.basename(part.path)} is not in {sources[0]}, so its content was not compared"
            for part in check.parts
            if part.path not in found and not part.problems
        ]
    return found, notes


def _with_sizes_and_holes(check: ModelCheck, expected: dict[str, Expected]) -> ModelCheck:
    """Look at what needs no reading: the size that a list gives, and holes where no sum will tell."""
    parts = []
    for part in check.parts:
        one = expected.get(part.path)
        if not part.problems:
            found = hole_problem(part) if one is None else _wrong_size(part, one)
            part = part if found is None else msgspec.structs.replace(part, problems=(found,))
        parts.append(part)
    return msgspec.structs.replace(check, parts=tuple(parts))


def _wrong_size(part: PartCheck, expected: Expected) -> Problem | None:
    if expected.size_bytes is None or part.size_bytes == expected.size_bytes:
        return None
    return Problem(
        "size",
        f"{os.path.basename(part.path)} has {part.size_bytes} bytes and should have {expected.size_bytes} by "
        f"{expected.source}: it was cut off, joined or is another version; download it again",
    )


def _hash(
    wanted: list[PartCheck], options: dict[str, Any], notes: list[str]
) -> tuple[dict[str, HashOutcome], int, float]:
    """Outcomes by path, bytes read by this run and how long that took in seconds. Ends the program when interrupted."""
    if not wanted:
        return {}, 0, 0.0
    paths = [part.path for part in wanted]
    stamps: dict[str, FileStamp] = {}
    for part in wanted:
        try:
            stamps[part.path] = stamp_of(part.path)
        except OSError as error:
            _fail(f"{part.path}: {error.strerror}", EXIT_NO)
    resume = _resume(paths, options)
    if resume.note is not None:
        notes.append(resume.note)
    before = {path: usable(resume.before, path, stamps[path]) for path in paths}
    outcomes = {path: HashOutcome(one.sha256) for path, one in before.items() if one is not None and one.sha256}
    jobs = []
    for path in paths:
        one = before[path]
        if path not in outcomes:
            start = one.state if one is not None and can_resume() else None
            jobs.append(HashJob(path, stamps[path].size_bytes, start))
    skipped = sum(stamps[path].size_bytes for path in outcomes)
    resumed = sum(0 if job.start is None else job.start.done_bytes for job in jobs)
    if skipped + resumed:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(resume.began_at))
        notes.append(
            f"{format_bytes(skipped + resumed)} were read by the interrupted run of {when} (--restart reads all again)"
        )
    began = time.monotonic()
    running = ModelHash(jobs, options["jobs"] or worker_count(len(jobs)))
    parts = {path: PartState(stamps[path], sha256=outcomes[path].sha256) for path in outcomes}
    try:
        _follow(running, resume, parts, stamps, skipped, notes)
    except KeyboardInterrupt:
        running.stop(_STOP_SECONDS)
        saved = _save(running, resume, parts, stamps)
        _interrupted(running.done_bytes + skipped, sum(stamps[path].size_bytes for path in paths), saved)
    if resume.path is not None:
        remove_state(resume.path)
    return outcomes | running.outcomes, running.done_bytes - resumed, time.monotonic() - began


def _follow(
    running: ModelHash,
    resume: _Resume,
    parts: dict[str, PartState],
    stamps: dict[str, FileStamp],
    skipped: int,
    notes: list[str],
) -> None:
    """Draw and save until all is hashed."""
    total = sum(stamp.size_bytes for stamp in stamps.values())
    line = ProgressLine(sys.stderr, total) if sys.stderr.isatty() else None
    saved_at = time.monotonic()
    try:
        while not running.wait(_DRAW_SECONDS):
            if line is not None:
                name = os.path.basename(running.current or "")
                line.draw(running.done_bytes + skipped, name, shutil.get_terminal_size().columns)
            if resume.path is not None and time.monotonic() - saved_at >= _SAVE_SECONDS:
                saved_at = time.monotonic()
                if not _save(running, resume, parts, stamps):
                    note = f"{resume.path}: cannot be written, so an interrupted run would begin again"
                    notes += [note] if note not in notes else []
    finally:
        if line is not None:
            line.clear()


def _save(running: ModelHash, resume: _Resume, parts: dict[str, PartState], stamps: dict[str, FileStamp]) -> bool:
    """Write down how far it got; False when that failed or is switched off."""
    if resume.path is None:
        return False
    now = dict(parts)
    for path, stamp in stamps.items():
        outcome, state = running.outcomes.get(path), running.states.get(path)
        if outcome is not None and outcome.sha256 is not None:
            now[path] = PartState(stamp, sha256=outcome.sha256)
        elif outcome is None and state is not None:
            now[path] = PartState(stamp, state)
    try:
        save_state(resume.path, resume.began_at, now)
    except OSError:
        return False
    return True


def _resume(paths: list[str], options: dict[str, Any]) -> _Resume:
    named: str | None = options["resume"]
    path = os.path.abspath(named) if named else default_state_path(paths, os.environ)
    now = time.time()
    if path is None:
        return _Resume(
            None, now, note="there is neither $XDG_CACHE_HOME nor $HOME, so an interrupted run would begin again"
        )
    try:
        if named is None:
            prepare_directory(path)
        before = load_state(path)  # also with --restart: a file that is none of ours is never replaced
        before = None if options["restart"] else before
        if named is not None:
            save_state(path, now if before is None else before.began_at, {} if before is None else before.parts)
    except OSError as error:
        if named is not None:
            _fail(f"--resume {named}: {error.strerror or error}", EXIT_USAGE)
        return _Resume(None, now, note=f"{path}: {error.strerror or error}, so an interrupted run would begin again")
    except ValueError as error:
        if named is not None:
            _fail(f"--resume: {error}", EXIT_USAGE)
        return _Resume(path, now, note=f"{error}; it is begun again")
    return _Resume(path, now if before is None else before.began_at, before)


def _interrupted(done_bytes: int, total_bytes: int, saved: bool) -> NoReturn:
    how = f"Interrupted after {format_bytes(done_bytes)} of {format_bytes(total_bytes)}. "
    if not saved:
        how += "How far it got could not be kept; the next run begins again."
    elif can_resume():
        how += "Run the same command again to go on from there."
    else:
        how += "Run the same command again: parts that were finished are kept, the one it was in begins again."
    click.echo(how, err=True)
    sys.exit(EXIT_INTERRUPTED)


def _fail(sentence: str, code: int) -> NoReturn:
    click.echo(f"moetunectl verify: {printable(sentence)}", err=True)
    sys.exit(code)
