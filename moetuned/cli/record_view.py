"""What `moetunectl record` says: one line while it goes on, and at the end what the file holds and how to replay it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import TextIO

from moetuned.cli.progress_line import OneLine
from moetuned.cli.record_run import Ended, Head
from moetuned.cli.verify_view import printable
from moetuned.host.recording import Subject
from moetuned.parse.redact_command import HIDDEN
from moetuned.schema.units import format_bytes, format_duration
from moetuned.schema.verdict import Verdict
from moetuned.state.trace import TraceBackend
from moetuned.state.trace_writer import TraceWriter

_METRICS_OFF = "!501"
_WANTS_KEY = "!401"


def progress(name: str, seconds: float, size_bytes: int, verdict: Verdict) -> str:
    """One line: how long, how large, what the backend does now."""
    what = f"{verdict.paging} ({verdict.phase})"
    memory = "" if verdict.memory in ("ok", "unknown") else f", memory {verdict.memory}"
    return f"recording {printable(name)}: {round(seconds)} s, {format_bytes(size_bytes)}, {what}{memory}"


class ProgressText:
    """That line on a terminal, drawn over itself; nothing anywhere else."""

    def __init__(self, stream: TextIO) -> None:
        self._line = OneLine(stream)
        self.clear = self._line.clear

    def draw(self, name: str, seconds: float, size_bytes: int, verdict: Verdict) -> None:
        """Draw it as it is now."""
        self._line.draw(progress(name, seconds, size_bytes, verdict))


def summary(
    writer: TraceWriter, subject: Subject, head: Head, ended: Ended, residency_unknown: str | None
) -> Iterator[str]:
    """Lines for people: what the file holds, from what stands in it."""
    told, last, lines = head.told, ended.last, writer.lines
    assert last is not None
    size, path = format_bytes(writer.size_bytes), printable(writer.path)
    yield f"{path}: {format_duration(ended.seconds)} of {printable(told.name)} (process {told.pid}), {lines} lines, {size}; {ended.why}."
    yield "It holds, each second:" if lines > 1 else "It holds:"
    yield from (f"  {line}" for line in _files(told, last.files))
    yield f"  {_http(subject, last.backends[told.name].http)}"
    yield "and once:"
    yield f"  model    {_model(subject, told)}"
    if residency_unknown is not None:
        yield f"           how much of it is in memory is unknown: {residency_unknown}"
    command = printable(" ".join(head.command))
    yield f"  command  {command or 'none: its process has no command line (a kernel thread, or it has wiped its own)'}"
    yield "  machine  kernel, processor, memory and disk settings"
    yield f"No prompts, no answers, no keys; {HIDDEN} stands for what was taken out."
    if not head.privacy.anonymous:
        yield "It names the directories of model and program and the backend's cgroup; --anonymous leaves them out."
    yield f"Replay it anywhere: moetunectl replay {shlex.quote(path)}"


def _files(told: TraceBackend, files: Mapping[str, str | None]) -> Iterator[str]:
    own = f"/proc/{told.pid}/"
    groups: dict[str, list[str]] = {}
    for name in files:
        directory, _, last = name.rpartition("/")
        if name.startswith(own):
            groups.setdefault(f"process  {own}", []).append(last)
        elif name.startswith("/proc/"):
            groups.setdefault("machine  /proc/", []).append(name.removeprefix("/proc/"))
        elif name.startswith("/sys/block/"):
            groups.setdefault("disk     ", []).append(name.split("/")[3])
        else:
            groups.setdefault(f"cgroup   {directory}/", []).append(last)
    for group, names in groups.items():
        yield group + (
            names[0] if len(names) == 1 else ", ".join(names) if group[-1] == " " else "{" + ", ".join(names) + "}"
        )
    missing = [name for name, text in files.items() if text is None]
    if missing:
        yield f"         of these could not be read at the end: {', '.join(missing)}"


def _http(subject: Subject, answers: Mapping[str, str]) -> str:
    if subject.url is None:
        return f"http     nothing: {subject.url_unknown or 'its address is unknown'}"
    if not answers:
        return "http     nothing at the end: it did not answer"
    silent = [path for path, body in answers.items() if body.startswith("!")]
    said = ", ".join(path for path in answers if path not in silent)
    line = f"http     numbers of {said}" if said else "http    "
    if silent:
        line += f"{'; ' if said else ' '}no answer of {', '.join(f'{path} ({answers[path][1:]})' for path in silent)}"
    if any(answers.get(name, "").startswith(_WANTS_KEY) for name in ("/slots", "/metrics")):
        line += "; it wants an API key, so phase and speed stay unknown"
    elif answers.get("/metrics", "").startswith(_METRICS_OFF):
        line += "; start the backend with --metrics to see its tokens"
    return line


def _model(subject: Subject, told: TraceBackend) -> str:
    if subject.model is None or told.model is None:
        return f"unknown: {subject.model_unknown}"
    layout = told.model.layout
    what = "layout unknown" if layout is None else f"{layout.layers} layers, {layout.experts} experts"
    return f"{printable(told.model.path or '')}: {format_bytes(told.model.size)}, {what}"
