"""From the same seconds the daemon and the replay of a recording say the same, to the words of their reasons."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from daemon_fakes import FakeClock, HeldWorkers, no_alerts

from moetuned.cli.record_choice import Choice
from moetuned.cli.record_run import head_of
from moetuned.cli.replay import replay
from moetuned.daemon.announcer import Announcer
from moetuned.daemon.event_log import EventLog
from moetuned.daemon.judging import Judge
from moetuned.daemon.loop import Loop
from moetuned.daemon.model_care import ModelCare
from moetuned.daemon.settings import settings_of
from moetuned.daemon.watched import Watched
from moetuned.decide.detector_limits import settings_of as detector_settings_of
from moetuned.gguf.header import Header
from moetuned.host.block_devices import FileDevices
from moetuned.host.cgroup import MemoryCgroup
from moetuned.host.model_files import ModelFile
from moetuned.host.processes import ProcessIdentity
from moetuned.host.recording import Recording, Scanned, Subject
from moetuned.parse.process import parse_process
from moetuned.schema.backend_description import BackendDescription
from moetuned.schema.config import Config, Limits
from moetuned.schema.model import ModelIdentity
from moetuned.schema.sample import RawSample
from moetuned.state.trace import Trace, read_trace
from moetuned.state.trace_writer import TraceWriter, first_line, next_line

TRACES = Path(__file__).parent.parent / "data" / "traces"
CONFIG = Config(limits=Limits(near="12%", critical="10MiB"))


def subject_of(trace: Trace, first: RawSample) -> Subject:
    """The recorded backend as if it ran here."""
    pid = trace.backend.pid
    process = parse_process(pid, first.files[f"/proc/{pid}/stat"], None, None)
    assert process is not None
    assert process.start_ticks is not None
    assert trace.backend.model is not None
    identity = ModelIdentity(("/models/m.gguf",), trace.backend.model.size or 0, trace.backend.model.layout)
    return Subject(
        name="lab",
        kind="llama-server",
        description=BackendDescription(context_length=4096, prompt_cache_mib=64, batch_tokens=512),
        process=ProcessIdentity(pid, process.start_ticks),
        url="http://127.0.0.1:9",
        model=ModelFile(identity, (Header(3, False, {}, {}, (), 32, 0, 0),), (), None),
        cgroup=MemoryCgroup(trace.identity.cgroup_directory, trace.identity.cgroup_version),
        disks=trace.identity.disks,
    )


class Machine:
    """The recorded machine under a directory, with a daemon and a recording that look at it at the same moments."""

    def __init__(self, root: Path, subject: Subject, out: Path, *, anonymous: bool) -> None:
        self.root, self.subject, self.now = root, subject, RawSample(0, 0, {}, {})
        self.clock = FakeClock()
        self.events = EventLog(1.0)
        self.loop = Loop(self.clock)
        workers = HeldWorkers()
        care = ModelCare(self.loop, self.clock, workers)  # type: ignore[arg-type]
        self.judge = Judge(self.clock, care, Announcer(self.events, no_alerts(), self.clock), str(root))  # type: ignore[arg-type]
        self.watched = Watched("lab", None, self.clock.now)
        self.watched.follow_process(subject.process, self.clock.now)
        self.watched.cgroup, self.watched.disks, self.watched.url = subject.cgroup, subject.disks, subject.url
        self.watched.model, self.watched.description, self.watched.kind = (
            subject.model,
            subject.description,
            subject.kind,
        )
        self.recording = Recording(
            subject, self.clock, 1.0, str(root),
            poll=lambda _idle: self.now.backends["lab"].http,
            scan=lambda: Scanned(self.now.backends["lab"].residency, None, 0.0),
        )  # fmt: skip
        self.head = head_of(Choice(subject, FileDevices()), 1.0, anonymous=anonymous)
        self.writer = TraceWriter(str(out), 64 << 20)
        self.said: list[tuple[str, ...]] = []

    def second(self, raw: RawSample) -> None:
        self.now = raw
        for path, text in raw.files.items():
            file = self.root / path.removeprefix("/")
            if text is None:
                file.unlink(missing_ok=True)
                continue
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        self.recording.ask()
        self.recording.wait(10)
        self.recording._scanning.wait(10)
        self.clock.now = raw.t
        recorded = self.recording.read()
        own = recorded.backends["lab"]
        private = self.head.privacy.sample(recorded)
        line = next_line(private)
        if self.writer.lines == 0:
            line = first_line(private, self.head.told, self.head.static, self.head.recorder)
        assert self.writer.write(line)
        self.watched.http, self.watched.http_at, self.watched.fresh_residency = own.http, self.clock.now, own.residency
        self.judge.look([self.watched], settings_of(CONFIG), self.clock.now, may_restart=False)
        verdict = self.watched.verdict
        reasons = (reason.text for reason in verdict.reasons)
        self.said.append((verdict.phase, verdict.paging, verdict.memory, *reasons))

    def close(self) -> None:
        self.recording.close()
        self.judge.close()
        self.loop.close()
        self.writer.close()


@pytest.mark.parametrize("anonymous", [False, True])
@pytest.mark.parametrize("name", ["squeeze", "anon_hog", "evicted_idle", "streaming"])
def test_verdicts_reasons_and_events(tmp_path: Path, name: str, anonymous: bool) -> None:
    trace = read_trace(str(TRACES / f"{name}.jsonl.gz"))
    seconds = list(trace.samples)
    out = tmp_path / "a.jsonl.gz"
    machine = Machine(tmp_path / "root", subject_of(trace, seconds[0]), out, anonymous=anonymous)
    assert machine.watched.identity == machine.subject.identity
    assert machine.watched.facts == machine.subject.facts
    try:
        for raw in seconds:
            machine.second(raw)
    finally:
        machine.close()
    assert read_trace(str(out)).facts == machine.watched.facts
    replayed = [followed.step for followed in replay(read_trace(str(out)), detector_settings_of(CONFIG))]
    written, real = machine.head.identity.cgroup_directory, machine.subject.cgroup.directory
    assert written is not None
    assert real is not None
    assert (written == real) is not anonymous
    told = [
        (one.phase, one.paging, one.memory, *(reason.text.replace(written, real) for reason in one.reasons))
        for one in (step.verdict for step in replayed)
    ]
    assert told == machine.said
    begun = [one.name.value for step in replayed for one in step.begun]
    # Whether the end of a process is an event depends on who started it, which only the daemon knows.
    kept = [event.name.value for event in machine.events.since(None)]
    assert [one for one in begun if not one.startswith("backend_")] == [
        one for one in kept if not one.startswith("backend_")
    ]
    assert any(begun) or name == "streaming"


def test_an_identity_is_told_as_a_whole() -> None:
    """What a later version adds to an identity must be in a trace, or a replay would not know it."""
    subject = Subject(
        "lab", "llama-server", ProcessIdentity(7, 1), cgroup=MemoryCgroup("/cg/a", 2, limited_above=("/cg",))
    )
    told = head_of(Choice(subject, FileDevices()), 1.0, anonymous=False).told
    assert msgspec.to_builtins(told.identity) == msgspec.to_builtins(subject.identity)
