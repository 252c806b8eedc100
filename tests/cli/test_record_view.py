"""What a recording says while it goes on and when it is done."""

from __future__ import annotations

import io

import pytest

from moetuned.cli.record_run import Ended, Head
from moetuned.cli.record_view import ProgressText, progress, summary
from moetuned.decide.facts import BackendFacts
from moetuned.host.processes import ProcessIdentity
from moetuned.host.recording import Subject
from moetuned.schema.sample import BackendIdentity, RawBackend, RawSample
from moetuned.schema.verdict import MemoryState, Paging, Phase, Verdict
from moetuned.state.trace import TraceBackend, TraceRecorder
from moetuned.state.trace_privacy import Privacy
from moetuned.state.trace_writer import TraceWriter

VERDICT = Verdict("glm", 3.0, Phase.DECODE, Paging.STEADY, MemoryState.OK)
FILES = {
    "/proc/meminfo": "x",
    "/proc/7/io": None,
    "/proc/7/stat": "x",
    "/cg/memory.current": "1",
    "/sys/block/vda/stat": "1",
}


def test_one_line_tells_how_it_goes() -> None:
    assert progress("glm", 12.4, 87_000, VERDICT) == "recording glm: 12 s, 85 KiB, steady (decode)"
    near = Verdict("glm", 3.0, Phase.DECODE, Paging.STEADY, MemoryState.NEAR_LIMIT)
    assert progress("g\nlm", 1, 1, near).startswith("recording g\\nlm: 1 s")
    assert progress("glm", 1, 1, near).endswith("memory near_limit")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_it_is_drawn_over_itself_on_terminals_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    terminal, file = Terminal(), io.StringIO()
    for stream in (terminal, file):
        line = ProgressText(stream)
        line.draw("a-rather-long-name-of-a-backend", 1, 1, VERDICT)
        line.draw("glm", 1, 1, VERDICT)
        line.clear()
        line.clear()
    assert file.getvalue() == ""
    drawn = terminal.getvalue().split("\r")
    assert max(map(len, drawn)) == 39
    assert drawn[-2].strip() == drawn[-1] == ""


def told(  # type: ignore[no-untyped-def]
    tmp_path,
    answers: dict[str, str],
    *,
    anonymous: bool = False,
    url: str | None = "http://127.0.0.1:1",
    command: tuple[str, ...] = ("llama-server", "--api-key", "***"),
) -> str:
    identity = BackendIdentity("glm", 7, url)
    privacy = Privacy(identity, anonymous=anonymous)
    backend = privacy.backend(TraceBackend("glm", 7, url))
    head = Head(privacy, backend, privacy.identity, BackendFacts(), {}, TraceRecorder(), command)
    subject = Subject(
        "glm", "llama-server", ProcessIdentity(7, 1), url=url, url_unknown="it serves TLS", model_unknown="no model"
    )
    ended = Ended("stopped", 40.2, RawSample(1, 2, FILES, {privacy.name: RawBackend(answers)}))
    writer = TraceWriter(str(tmp_path / "out.jsonl"), 1000, overwrite=True)
    writer.lines, writer.size_bytes = 41, 35_000
    writer.close()
    return "\n".join(summary(writer, subject, head, ended, "not looked at"))


def test_the_end_states_what_the_file_holds(tmp_path) -> None:  # type: ignore[no-untyped-def]
    text = told(tmp_path, {"/health": "{}", "/slots": "[]", "/metrics": "!501"})
    assert "out.jsonl: 40 s of glm (process 7), 41 lines, 34 KiB; stopped." in text
    assert "process  /proc/7/{io, stat}" in text
    assert "could not be read at the end: /proc/7/io" in text
    assert "cgroup   /cg/memory.current" in text
    assert "disk     vda" in text
    assert "numbers of /health, /slots; no answer of /metrics (501); start the backend with --metrics" in text
    assert "model    unknown: no model" in text
    assert "in memory is unknown: not looked at" in text
    assert "command  llama-server --api-key ***" in text
    assert "--anonymous leaves them out" in text
    assert text.endswith(f"moetunectl replay {tmp_path}/out.jsonl")


def test_what_it_does_not_hold_is_said_too(tmp_path) -> None:  # type: ignore[no-untyped-def]
    assert "http     nothing at the end: it did not answer" in told(tmp_path, {})
    key = told(tmp_path, {"/health": "{}", "/slots": "!401", "/metrics": "!401"})
    assert "no answer of /slots (401), /metrics (401); it wants an API key, so phase and speed stay unknown" in key
    assert "command  none: its process has no command line" in told(tmp_path, {}, command=())
    assert "http     nothing: it serves TLS" in told(tmp_path, {}, url=None)
    assert "http     no answer of /health (timeout)" in told(tmp_path, {"/health": "!timeout"})
    assert "--anonymous" not in told(tmp_path, {}, anonymous=True)
