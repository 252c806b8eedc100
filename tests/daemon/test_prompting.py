"""Prompts after a load: sent one after the other, none while somebody else asks, and never for another process."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from daemon_fakes import FakeClock, HeldWorkers

from moetuned.daemon import prompting as module
from moetuned.daemon.loop import Loop
from moetuned.daemon.prompting import Prompting
from moetuned.daemon.settings import settings_of
from moetuned.daemon.watched import Watched
from moetuned.decide.prompt_warmup import PromptEnd
from moetuned.host.processes import ProcessIdentity
from moetuned.parse.config_problem import ConfigError, Problem
from moetuned.schema.config import Config, Warm
from moetuned.schema.sample import BackendHttp, BackendSample, Slot
from moetuned.schema.snapshot import WarmView
from moetuned.schema.verdict import MemoryState, Paging, Phase, Verdict

ON = settings_of(Config(warm=Warm(prompts="default")))
OFF = settings_of(Config())


class FakeRequest:
    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        self.end: PromptEnd | None = None
        self.cancelled = False

    def fileno(self) -> int:
        return self._read

    def answer(self) -> None:
        self.end = PromptEnd(tokens=20)
        os.write(self._write, b"x")

    def advance(self) -> PromptEnd | None:
        return self.end

    def cancel(self) -> None:
        self.cancelled = True


class Rig:
    def __init__(self) -> None:
        self.clock, self.workers = FakeClock(), HeldWorkers()
        self.loop = Loop(self.clock)
        self.prompting = Prompting(self.loop, self.workers)  # type: ignore[arg-type]
        self.watched = Watched("glm", None, self.clock.now)
        self.watched.url = "http://127.0.0.1:8080"
        self.watched.follow_process(ProcessIdentity(10, 1), self.clock.now)
        self.requests: list[FakeRequest] = []
        self.sent: list[str] = []

    def send_prompt(self, _url: str, prompt: str, _tokens: int) -> FakeRequest:
        self.sent.append(prompt)
        self.requests.append(FakeRequest())
        return self.requests[-1]

    def tick(self, busy: int = 0) -> None:
        self.clock.now += 2.0
        slots = tuple(Slot(number, number < busy) for number in range(4))
        http = BackendHttp(health="ok", slots=slots, requests_processing=float(busy), requests_deferred=0.0)
        self.watched.sample = BackendSample("glm", http=http)
        self.watched.http_at = self.clock.now
        phase = Phase.DECODE if busy else Phase.IDLE
        self.watched.verdict = Verdict("glm", self.clock.now, phase=phase, paging=Paging.STEADY, memory=MemoryState.OK)
        self.prompting.tick(self.watched, ON, self.clock.now)

    def want(self, *prompts: str) -> None:
        self.prompting.want(self.watched, ON)
        self.workers.finish("prompts", prompts)


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    rig = Rig()
    monkeypatch.setattr(module, "send_prompt", rig.send_prompt)
    yield rig
    rig.loop.close()


def test_off_sends_nothing_and_reads_nothing(rig: Rig) -> None:
    rig.prompting.want(rig.watched, OFF)
    rig.tick()
    assert (rig.workers.jobs, rig.sent, rig.watched.prompting) == ([], [], None)


def test_one_after_the_other_then_it_is_over(rig: Rig) -> None:
    rig.want("one", "two")
    for number in range(2):
        rig.tick()
        assert len(rig.sent) == number + 1
        rig.requests[-1].answer()
        rig.loop.run_once(0)
        rig.tick()
        if len(rig.sent) == number + 1:
            rig.tick()
    assert rig.sent == ["one", "two"]
    rig.tick()
    rig.tick()
    assert rig.sent == ["one", "two"]
    assert rig.watched.prompting
    assert not any(request.cancelled for request in rig.requests) or all(request.end for request in rig.requests)


def test_waits_until_the_model_is_warm(rig: Rig) -> None:
    rig.want("one")
    rig.watched.warm = WarmView("running")
    rig.tick()
    assert rig.sent == []
    assert "warmed" in (rig.watched.prompting or "")
    rig.watched.warm = WarmView("done")
    rig.tick()
    assert rig.sent == ["one"]


def test_a_user_comes_first(rig: Rig) -> None:
    rig.want("one", "two")
    rig.tick()
    rig.tick(busy=1)
    rig.tick(busy=2)
    assert rig.requests[0].cancelled
    rig.tick()
    rig.tick()
    assert rig.sent == ["one"]


def test_another_process_gets_none_of_them(rig: Rig) -> None:
    rig.want("one", "two")
    rig.tick()
    rig.watched.process = ProcessIdentity(11, 1)
    rig.tick()
    assert rig.requests[0].cancelled
    rig.tick()
    assert rig.sent == ["one"]


def test_a_file_that_cannot_be_read_is_told(rig: Rig) -> None:
    rig.prompting.want(rig.watched, ON)
    rig.workers.finish("prompts", ConfigError([Problem("/p.yaml", "", None, "is no list")]))
    assert "is no list" in (rig.watched.prompting or "")
    rig.tick()
    assert rig.sent == []


def test_ended_with_the_backend(rig: Rig) -> None:
    rig.want("one")
    rig.tick()
    rig.prompting.end(rig.watched)
    assert rig.requests[0].cancelled
    assert rig.watched.prompting is None


def test_without_an_address_nothing_can_be_sent(rig: Rig) -> None:
    rig.watched.url = None
    rig.want("one")
    for _ in range(4):
        rig.tick()
    assert rig.sent == []
    assert (rig.watched.prompting or "").startswith("0 of 1 prompts")
