"""Small builders for detector tests: signals by name (the rest unknown), a backend's sample, a detector that walks."""

from __future__ import annotations

from moetuned.decide.detector import DetectorSettings, DetectorState, Step, initial, step
from moetuned.decide.facts import BackendFacts
from moetuned.decide.signals import signal_functions
from moetuned.schema.model import ModelLayout
from moetuned.schema.sample import BackendHttp, BackendSample, CgroupMemory, ProcessCounters, Residency, Slot
from moetuned.schema.signals import Signals

MB = 1e6
FACTS = BackendFacts(
    model_bytes=1_840_000_000,
    layout=ModelLayout(16, 64, 4, 590_000, 1_810_000_000, 30_000_000, 113_000_000),
)
PREFILL = (Slot(0, processing=True, task_id=1, decoded_tokens=0),)
DECODE = (Slot(0, processing=True, task_id=1, decoded_tokens=5),)
IDLE = (Slot(0, processing=False),)

QUIET = {"process_read_bytes_per_second": 0.0, "tokens_per_second": 100.0, "bytes_per_token": 0.0, "busy_slots": 1.0}
FILLING = {"process_read_bytes_per_second": 600 * MB, "refault_ratio": 1.0, "cache_fill_ratio": 1.0, "busy_slots": 1.0}
STREAMING = {
    "process_read_bytes_per_second": 180 * MB,
    "refault_bytes_per_second": 180 * MB,
    "refault_ratio": 1.0,
    "cache_fill_ratio": 0.0,
    "cache_lost_ratio": 0.0,
    "bytes_per_token": 60 * MB,
    "missing_bytes_per_token": 54 * MB,
    "read_amplification": 1.1,
    "tokens_per_second": 3.0,
    "bytes_per_major_fault": 0.4 * MB,
    "busy_slots": 1.0,
}
AMPLIFIED = {**STREAMING, "bytes_per_token": 900 * MB, "read_amplification": 16.0, "tokens_per_second": 0.5}
SQUEEZED = {
    **STREAMING,
    "cache_lost_ratio": 0.5,
    "bytes_per_token": None,
    "read_amplification": None,
    "tokens_per_second": None,
}
ROOMY = {"headroom_bytes": 800 * MB, "headroom_ratio": 0.8}


def signals_at(at: float, values: dict[str, float | None], dt: float | None = 1.0) -> Signals:
    return Signals("one", at, dt, {**dict.fromkeys(signal_functions()), **values})


def backend(
    slots: tuple[Slot, ...] | None = DECODE,
    health: str | None = "ok",
    pid: int = 7,
    rss_file: int | None = None,
    resident: int | None = None,
    oom_kills: int | None = None,
) -> BackendSample:
    return BackendSample(
        "one",
        process=ProcessCounters(pid, start_ticks=1, rss_file_bytes=rss_file),
        http=BackendHttp(health=health, slots=slots),
        residency=None if resident is None else Residency(resident),
        cgroup=None if oom_kills is None else CgroupMemory(2, oom_kills=oom_kills),
    )


GONE = BackendSample("one", process_gone=True)


class Walk:
    """A detector that is given one second after another."""

    def __init__(self, facts: BackendFacts = FACTS, settings: DetectorSettings | None = None) -> None:
        self.state: DetectorState = initial("one")
        self.at = 0.0
        self.facts = facts
        self.settings = settings or DetectorSettings()
        self.events: list[tuple[float, str]] = []
        self.last: Step | None = None

    def go(self, seconds: int, values: dict[str, float | None], sample: BackendSample | None = None) -> Step:
        for _ in range(seconds):
            self.at += 1.0
            signals = signals_at(self.at, values)
            self.last = step(self.state, signals, sample or backend(), self.facts, self.settings)
            self.state = self.last.state
            self.events += [(self.at, begun.name.value) for begun in self.last.begun]
        assert self.last is not None
        return self.last

    def names(self) -> list[str]:
        return [name for _, name in self.events]
