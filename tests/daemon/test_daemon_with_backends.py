"""The daemon in this process with stand-ins as real processes: what it does when they crash, hang, or run out of memory."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes.own_cgroup import memory_stat, own_cgroup
from running import (
    QUICK,
    InProcess,
    backend,
    daemon_process,
    free_port,
    in_process,
    is_running,
    stand_in,
    view_of,
)

from moetuned.decide import context_return
from moetuned.schema.snapshot import Snapshot

pytestmark = pytest.mark.backend
WATCH = {"watch": {"discover": False, "interval": "200ms"}, "warm": {"enabled": False}}
MIB = 1 << 20


def config(*backends: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {**WATCH, "backends": list(backends), **more}


def hook(directory: Path, script: str) -> dict[str, Any]:
    """A sink that runs this; the directory belongs to whoever runs the test."""
    directory.mkdir(mode=0o755)
    path = directory / "10-test"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return {"kind": "exec", "directory": str(directory), "timeout": "60s"}


def test_a_crash_loop_is_told_slowed_and_ended(tmp_path: Path, small_model: Path) -> None:
    entry = backend("glm", small_model, free_port(), "--simulate-exit-code", "3")
    with in_process(tmp_path, config(entry)) as daemon:
        daemon.until(lambda _: (view := daemon.view("glm")) and "failed 5 times" in view.sentence, "the breaker")
        assert daemon.event_names() == ["backend_down", "backend_crash_loop"]
        first, last = (event.message for event in daemon.snapshot.events)
        assert first == "glm exited with code 3; it is started again in 0.0 s"
        assert "5 times" in last
        assert "`moetunectl backend restart glm` or a reload" in last
        assert daemon.app.reload() is None
        daemon.until(lambda _: len(daemon.snapshot.events) == 3, "five more tries after the reload")
        assert daemon.event_names()[-1] == "backend_crash_loop", "it was down all the time: only the end is told again"
        last_id = daemon.snapshot.events[-1].id
        daemon.write({**config(entry), "backends": []})
        assert daemon.app.reload() is None
        daemon.until(lambda _: len(daemon.snapshot.events) == 4, "the end of what its owner took out")
        end = daemon.snapshot.events[-1]
        assert (end.name, end.ended) == ("backend_recovered", (last_id,))
        assert "taken out of the configuration" in end.message


def test_one_that_ignores_sigterm_is_killed(tmp_path: Path, small_model: Path) -> None:
    entry = backend("glm", small_model, free_port(), "--simulate-ignore-sigterm")
    with in_process(tmp_path, config(entry)) as daemon:
        daemon.until(daemon.phase_is("glm", "idle"), "ready")
        pid = daemon.view("glm").pid
        daemon.stop()
        assert not is_running(pid)
        assert QUICK.terminate_seconds < 1


def test_a_kill_from_outside_is_told_and_mended(tmp_path: Path, small_model: Path) -> None:
    with in_process(tmp_path, config(backend("glm", small_model, free_port()))) as daemon:
        daemon.until(daemon.phase_is("glm", "idle"), "ready")
        first = daemon.view("glm").pid
        os.kill(first, signal.SIGKILL)
        daemon.until(lambda _: "backend_recovered" in daemon.event_names(), "recovery")
        assert daemon.event_names() == ["backend_down", "backend_recovered"]
        message = daemon.snapshot.events[0].message
        assert "was ended by SIGKILL" in message
        assert "not by the kernel's OOM killer" in message or "is not known" in message or "counts no kill" in message
        assert daemon.view("glm").pid != first


def test_a_reload_by_signal_ends_one_and_starts_another(tmp_path: Path, small_model: Path) -> None:
    one, other = backend("one", small_model, free_port()), backend("other", small_model, free_port())
    with in_process(tmp_path, config(one)) as daemon:
        daemon.until(daemon.phase_is("one", "idle"), "the first is ready")
        pid = daemon.view("one").pid
        daemon.write(config(other))
        os.kill(os.getpid(), signal.SIGHUP)
        daemon.until(daemon.phase_is("other", "idle"), "the second is ready")
        daemon.until(lambda _: not is_running(pid), "the first has ended")
        assert daemon.view("one") is None
        assert daemon.event_names() == []
        daemon.write("backends: [{name: other, supervise: {by: magic}}]")
        os.kill(os.getpid(), signal.SIGHUP)
        daemon.until(lambda snapshot: any("is not used" in note for note in snapshot.notes), "the bad config is told")
        assert is_running(daemon.view("other").pid)


SILENT_SERVER = """
import socket, sys
listener = socket.socket(); listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind(("127.0.0.1", int(sys.argv[1]))); listener.listen(50)
kept = []
while True:
    kept.append(listener.accept())
"""


def test_what_hangs_delays_no_tick(tmp_path: Path, small_model: Path) -> None:
    """A hook that never ends, and a backend that takes connections and never answers."""
    port = free_port()
    silent = backend("silent", small_model, port)
    silent["supervise"]["command"] = [sys.executable, "-c", SILENT_SERVER, str(port)]
    silent["context"] = {"preferred": 8192, "minimum": 8192}
    del silent["prompt_cache_mib"]
    crashing = backend("crashing", small_model, free_port(), "--simulate-exit-code", "3")
    began = tmp_path / "began"
    alerts = [hook(tmp_path / "hooks", f"echo $$ > {began}; exec sleep 1000")]
    with in_process(tmp_path, config(silent, crashing, alerts=alerts)) as daemon:
        daemon.until(lambda _: began.exists() and began.read_text().strip(), "the hook runs")
        hook_pid = int(began.read_text())
        asking = f"asking {_key(daemon, 'silent')}"
        daemon.until(
            lambda _: asking in [key for key, _ in daemon.app._workers.running_longer_than(0.0)], "it is being asked"
        )
        ticks = daemon.snapshot.daemon.ticks
        daemon.until(lambda snapshot: snapshot.daemon.ticks >= ticks + 15, "ticks go on")
        assert is_running(hook_pid)
        assert daemon.app._alerting.pending
        assert daemon.view("silent").verdict.phase in ("unknown", "loading")
        os.kill(hook_pid, signal.SIGKILL)


def _key(daemon: InProcess, name: str) -> str:
    return daemon.app._roster.get(name).key


def test_a_backend_that_hangs_in_the_middle_of_a_request_keeps_its_phase(tmp_path: Path, small_model: Path) -> None:
    port = free_port()
    entry = backend("glm", small_model, port, "--simulate-hang-after", "3")
    with in_process(tmp_path, config(entry)) as daemon:
        daemon.until(daemon.phase_is("glm", "idle"), "ready")
        asking = subprocess.Popen(
            [sys.executable, "-m", "moetuned.simulator", "ask", f"http://127.0.0.1:{port}"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            daemon.until(daemon.phase_is("glm", "decode"), "a slot is busy")
            ticks = daemon.snapshot.daemon.ticks
            daemon.until(lambda snapshot: snapshot.daemon.ticks >= ticks + 10, "ticks go on")
            assert daemon.view("glm").verdict.phase == "decode"
        finally:
            asking.kill()
            asking.wait()


def test_a_model_that_the_load_left_in_memory_is_not_read_again(tmp_path: Path, small_model: Path) -> None:
    with in_process(tmp_path, config(backend("glm", small_model, free_port()), warm={"enabled": True})) as daemon:
        daemon.until(lambda _: (view := daemon.view("glm")) and view.warm.state == "done", "warming was thought of")
        assert "in memory already" in daemon.view("glm").warm.detail
        assert daemon.view("glm").residency.resident_bytes == daemon.view("glm").model_bytes


HOG = """
import os, sys
with open(sys.argv[1] + "/cgroup.procs", "w") as file:
    file.write("0")
held = []
for line in sys.stdin:
    block = bytearray(int(line))
    block[::4096] = bytes([1]) * len(block[::4096])
    held.append(block)
    print("held", flush=True)
"""


class Hog:
    """A process in the backend's cgroup that takes anonymous memory when told to."""

    def __init__(self, cgroup: str, limit_bytes: int) -> None:
        self.cgroup, self.limit_bytes = cgroup, limit_bytes
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOG, cgroup], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def leave(self, headroom_bytes: int) -> None:
        """Take all but this much of the limit."""
        size = self.limit_bytes - anonymous_bytes(self.cgroup) - headroom_bytes
        assert size > 0
        self.process.stdin.write(f"{size}\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "held\n"


def is_v2(cgroup: str) -> bool:
    return os.path.exists(f"{cgroup}/memory.max")


def anonymous_bytes(cgroup: str) -> int:
    return memory_stat(cgroup, "anon" if is_v2(cgroup) else "total_rss")


def set_limit(cgroup: str, size: int) -> None:
    """Lowering it pushes page cache out."""
    name = "memory.max" if is_v2(cgroup) else "memory.limit_in_bytes"
    Path(cgroup, name).write_text(str(size))


LIMIT_BYTES = 512 * MIB


@pytest.fixture
def cgroup() -> Iterator[str]:
    with own_cgroup(LIMIT_BYTES) as directory:
        yield directory


@pytest.fixture
def hog(cgroup: str) -> Iterator[Hog]:
    hog = Hog(cgroup, LIMIT_BYTES)
    yield hog
    hog.process.kill()
    hog.process.communicate()


def squeezed(model: Path, cgroup: str, mode: str, **more: Any) -> dict[str, Any]:
    entry = backend("glm", model, free_port(), cgroup=cgroup)
    entry["context"] = {"preferred": 24576, "minimum": 1024}
    entry["prompt_cache_mib"] = 256
    return config(entry, relief={"mode": mode, "cool_down": "10m", "before_start": "off"}, **more)


@pytest.mark.kernel
def test_near_its_limit_it_is_restarted_once_with_less(
    tmp_path: Path, small_model: Path, cgroup: str, hog: Hog, caplog: pytest.LogCaptureFixture
) -> None:
    facts = tmp_path / "facts"
    alerts = [
        {
            **hook(tmp_path / "hooks", f'echo "$MOETUNED_EVENT $MOETUNED_MESSAGE" >> {facts}'),
            "on": ["backend_restarted"],
        }
    ]
    with in_process(tmp_path, squeezed(small_model, cgroup, "act", alerts=alerts)) as daemon:
        daemon.until(daemon.phase_is("glm", "idle"), "ready")
        daemon.until(lambda _: daemon.view("glm").cgroup == cgroup, "its cgroup is known")
        daemon.until(lambda _: daemon.view("glm").verdict.memory == "ok", "memory is ok")
        before = daemon.view("glm")
        hog.leave(30 * MIB)
        daemon.until(lambda _: "backend_restarted" in daemon.event_names(), "restarted")
        daemon.until(daemon.phase_is("glm", "idle"), "ready again")
        after = daemon.view("glm")
        assert after.pid != before.pid
        assert not is_running(before.pid)
        assert 1024 <= after.context.now < before.context.now == 24576
        assert after.prompt_cache_mib < before.prompt_cache_mib == 256
        assert after.restarts == 1
        daemon.until(lambda _: daemon.view("glm").verdict.memory == "ok", "memory is ok again")
        names = daemon.event_names()
        assert names.index("memory_near_limit") < names.index("backend_restarted")
        assert "backend_down" not in names
        message = next(event.message for event in daemon.snapshot.events if event.name == "backend_restarted")
        assert f"a context of {after.context.now} tokens and is healthy again after" in message
        daemon.until(lambda _: facts.exists() and facts.read_text(), "the hook ran")
        assert facts.read_text() == f"backend_restarted {message}\n"
        hog.leave(25 * MIB)
        daemon.until(lambda _: daemon.view("glm").would_do, "near its limit once more")
        assert "cool-down" in daemon.view("glm").would_do[0]
        ticks = daemon.snapshot.daemon.ticks
        daemon.until(lambda snapshot: snapshot.daemon.ticks >= ticks + 20, "some more ticks")
        assert daemon.view("glm").pid == after.pid
        assert daemon.view("glm").restarts == 1


@pytest.mark.kernel
def test_what_was_taken_is_given_back_once_there_is_room_and_not_again_after_that_led_to_relief(
    tmp_path: Path, small_model: Path, cgroup: str, hog: Hog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(context_return, "AMPLE_SECONDS", 4.0)
    monkeypatch.setattr(context_return, "IDLE_SECONDS", 2.0)
    wanted = squeezed(small_model, cgroup, "act")
    wanted["relief"] |= {"cool_down": "10s"}
    with in_process(tmp_path, wanted) as daemon:
        daemon.until(daemon.phase_is("glm", "idle"), "ready")
        daemon.until(lambda _: daemon.view("glm").cgroup == cgroup, "its cgroup is known")
        hog.leave(30 * MIB)
        daemon.until(lambda _: "backend_restarted" in daemon.event_names(), "restarted")
        daemon.until(daemon.phase_is("glm", "idle"), "ready again")
        taken = daemon.view("glm")
        assert taken.context.now < 24576
        daemon.until(lambda _: daemon.view("glm").grow_back, "it says what it waits for")
        hog.process.kill()
        daemon.until(
            lambda _: (now := daemon.view("glm").context.now) and now > taken.context.now, "the context is back"
        )
        daemon.until(daemon.phase_is("glm", "idle"), "ready once more")
        given = daemon.view("glm")
        assert (given.context.now, given.restarts) == (24576, 2)
        assert given.prompt_cache_mib > taken.prompt_cache_mib
        begun = [event.message for event in daemon.snapshot.events if event.name == "backend_restarting"]
        assert "gives back context" in begun[-1]
        with_hog = Hog(cgroup, LIMIT_BYTES)
        try:
            with_hog.leave(30 * MIB)
            daemon.until(lambda _: daemon.view("glm").restarts == 3, "relieved at once")
            daemon.until(daemon.phase_is("glm", "idle"), "ready after that")
        finally:
            with_hog.process.kill()
            with_hog.process.communicate()
        daemon.until(
            lambda _: (
                "does not give back" in (daemon.view("glm").grow_back or "")
                and "neared" in daemon.view("glm").grow_back
            ),
            "it says that it does not again",
        )
        assert daemon.view("glm").restarts == 3


@pytest.mark.kernel
def test_what_cannot_fit_is_started_with_what_fits(tmp_path: Path, small_model: Path, cgroup: str) -> None:
    entry = backend("glm", small_model, free_port(), cgroup=cgroup)
    entry |= {"context": {"preferred": 131072, "minimum": 1024}, "prompt_cache_mib": 4096}
    with in_process(tmp_path, config(entry)) as daemon:
        daemon.until(daemon.phase_is("glm", "idle"), "ready")
        view = daemon.view("glm")
        assert 1024 <= view.context.now < 131072
        assert view.prompt_cache_mib < 512
        assert "of 512 MiB (limit of the cgroup" in view.before_start
        assert view.context.now * 9216 < LIMIT_BYTES


@pytest.mark.kernel
def test_observing_it_is_not_restarted(tmp_path: Path, small_model: Path, cgroup: str, hog: Hog) -> None:
    with in_process(tmp_path, squeezed(small_model, cgroup, "observe")) as daemon:
        daemon.until(daemon.phase_is("glm", "idle"), "ready")
        daemon.until(lambda _: daemon.view("glm").cgroup == cgroup, "its cgroup is known")
        pid = daemon.view("glm").pid
        hog.leave(30 * MIB)
        daemon.until(lambda _: daemon.view("glm").would_do, "it says what it would do")
        assert "context 24576 ->" in daemon.view("glm").would_do[0]
        assert "relief.mode is observe" in daemon.view("glm").would_do[0]
        ticks = daemon.snapshot.daemon.ticks
        daemon.until(lambda snapshot: snapshot.daemon.ticks >= ticks + 20, "some more ticks")
        assert daemon.view("glm").pid == pid
        assert "backend_restarted" not in daemon.event_names()


@pytest.mark.kernel
def test_warmed_from_inside_its_cgroup(tmp_path: Path, small_model: Path, cgroup: str) -> None:
    # Page cache belongs to the cgroup that touches it first: to the backend's own, so that its limit can push it out.
    model = tmp_path / "model.gguf"
    copy = 'echo 0 > "$1"/cgroup.procs && cp "$2" "$3" && sync "$3"'
    subprocess.run(["/bin/sh", "-c", copy, "sh", cgroup, str(small_model), str(model)], check=True)
    with in_process(tmp_path, config(backend("glm", model, free_port(), cgroup=cgroup))) as daemon:
        daemon.until(daemon.phase_is("glm", "idle"), "ready")
        daemon.until(lambda _: daemon.view("glm").cgroup == cgroup, "its cgroup is known")
        set_limit(cgroup, anonymous_bytes(cgroup) + 24 * MIB)
        set_limit(cgroup, LIMIT_BYTES)
        assert daemon.app._request("warm", {"backend": "glm"})[0] == 202
        daemon.until(lambda _: daemon.view("glm").warm.state == "done", "warmed")
        warm = daemon.view("glm").warm
        assert warm.done_bytes == warm.goal_bytes > 0
        full = daemon.view("glm").model_bytes
        daemon.until(lambda _: daemon.view("glm").residency.resident_bytes == full, "all of it is resident")


@pytest.mark.kernel
def test_killed_while_it_warms_the_next_one_warms_and_the_one_after_that_does_not(
    tmp_path: Path, small_model: Path, cgroup: str
) -> None:
    model = tmp_path / "model.gguf"
    copy = 'echo 0 > "$1"/cgroup.procs && cp "$2" "$3" && sync "$3"'
    subprocess.run(["/bin/sh", "-c", copy, "sh", cgroup, str(small_model), str(model)], check=True)
    slow = {"enabled": True, "rate": "8MiB"}
    with daemon_process(tmp_path, config(backend("glm", model, free_port(), cgroup=cgroup), warm=slow)) as daemon:

        def warm_is(*states: str) -> Callable[[Snapshot], Any]:
            return lambda it: (view := view_of(it, "glm")) and view.warm.state in states and view.cgroup == cgroup

        daemon.until(warm_is("done"), "it has loaded")
        set_limit(cgroup, anonymous_bytes(cgroup) + 24 * MIB)
        set_limit(cgroup, LIMIT_BYTES)
        daemon.client.post("/v1/warm", {"backend": "glm"})
        snapshot = daemon.until(lambda it: (view := view_of(it, "glm")) and view.warm.done_bytes > 0, "it warms")
        pid = view_of(snapshot, "glm").pid
        daemon.end(signal.SIGKILL)
        # The longer it takes, the likelier somebody else's memory pressure holds it up.
        daemon.config_path.write_text(daemon.config_path.read_text().replace("8MiB", "1GiB"))
        daemon.again()
        snapshot = daemon.until(lambda it: warm_is("done")(it) and view_of(it, "glm").warm.goal_bytes, "warmed again")
        assert view_of(snapshot, "glm").pid == pid
        assert "because moetuned has not warmed it yet" in daemon.log
        said = daemon.log.count("warming its model")
        daemon.end(signal.SIGKILL)
        daemon.again()
        snapshot = daemon.until(lambda it: (view := view_of(it, "glm")) and view.verdict.phase == "idle", "taken over")
        daemon.until(lambda it: it.daemon.ticks >= snapshot.daemon.ticks + 10, "some more ticks")
        assert view_of(daemon.client.status(), "glm").warm.state == "off"
        assert daemon.log.count("warming its model") == said
        assert daemon.end() == 0
    assert not is_running(pid)


def test_one_that_runs_already_is_watched_and_never_touched(tmp_path: Path, small_model: Path) -> None:
    port = free_port()
    command = [word.format(context=4096, prompt_cache_mib=0) for word in stand_in(small_model, port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        entry = {"name": "mine", "url": f"http://127.0.0.1:{port}"}
        with in_process(tmp_path, config(entry, relief={"mode": "act"})) as daemon:
            daemon.until(daemon.phase_is("mine", "idle"), "ready")
            view = daemon.view("mine")
            assert (view.pid, view.kind, view.supervised) == (process.pid, "simulator", False)
            assert view.model_path == str(small_model)
            assert view.context.now == 4096
            daemon.stop()
        assert process.poll() is None
        assert not (tmp_path / "run" / "backends").exists()
    finally:
        process.kill()
        process.wait()
