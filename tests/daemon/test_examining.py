"""Why a backend ended, looked at off the loop."""

from __future__ import annotations

from pathlib import Path

import pytest
from daemon_fakes import HeldWorkers

from moetuned.daemon import examining, obstacles
from moetuned.daemon.examining import Examining, look
from moetuned.daemon.process_supervisor import Ended
from moetuned.decide.exit_cause import Cause, Ending
from moetuned.host.processes import ProcessIdentity
from moetuned.host.spawn import Exit
from moetuned.schema.config import Backend
from moetuned.schema.oom_kill import OomKill
from moetuned.schema.supervise import SuperviseProcess

CONFIG = Backend("glm", supervise=SuperviseProcess(command=["llama-server"]))


def ended(code: int | None, *command: str, oom_kills: int | None = None) -> Ended:
    return Ended(CONFIG, ProcessIdentity(812, 5), Exit(code), command, oom_kills)


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> list[tuple[OomKill, ...] | None]:
    """What the kernel log says, each time it is read."""
    texts: list[tuple[OomKill, ...] | None] = []
    monkeypatch.setattr(examining, "oom_kills_since", lambda start, ticks: texts.pop(0))
    monkeypatch.setattr(examining, "LOG_LATE_SECONDS", 0.0)
    monkeypatch.setattr(obstacles, "is_taken", lambda host, port: False)
    return texts


def test_the_kernel_log_is_read_for_a_sigkill_only(logged: list, tmp_path: Path) -> None:
    logged[:] = [(OomKill(812, 9.0, ""),)]
    assert look(ended(-9)).cause is Cause.OOM_KILLED
    assert look(ended(1)) == Ending(Cause.EXIT, "exited with code 1")
    assert look(ended(-11)).how == "was ended by SIGSEGV"
    logged[:] = [()]
    assert "somebody" in look(ended(-9)).how
    logged[:] = [None]
    assert look(ended(None)) == Ending(Cause.EXIT, "ended")


def test_a_log_that_comes_after_the_end_is_waited_for(logged: list) -> None:
    logged[:] = [(), (OomKill(812, 9.0, "/glm"),)]
    assert look(ended(-9, oom_kills=1)).cause is Cause.OOM_KILLED
    logged[:] = [(OomKill(7, 9.0),), (OomKill(7, 9.0),)]
    assert look(ended(-9, oom_kills=1)).cause is Cause.EXIT, "it was a neighbour"


def test_a_model_that_is_gone_is_why_it_exited(logged: list, tmp_path: Path) -> None:
    found = look(ended(1, "llama-server", "-m", str(tmp_path / "no.gguf")), {})
    assert found == Ending(Cause.MODEL_MISSING, f"exited with code 1: its model {tmp_path}/no.gguf is not there")


def test_what_fails_or_cannot_be_asked_is_a_plain_end() -> None:
    workers, got = HeldWorkers(), []
    examine = Examining(workers)  # type: ignore[arg-type]
    examine.examine(ended(1), got.append)
    assert got == []
    examine.examine(ended(1), got.append)
    assert got == [Ending(Cause.EXIT, "exited with code 1")], "the same is being asked already"
    workers.finish("finding out why glm", OSError("broken"))
    assert got[1:] == [Ending(Cause.EXIT, "exited with code 1")]
    examine.examine(ended(1), got.append)
    workers.finish("finding out why glm", Ending(Cause.OOM_KILLED, "was ended"))
    assert got[2].cause is Cause.OOM_KILLED
