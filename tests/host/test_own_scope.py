"""A backend's own scope and its stream into the journal, in words here and at a booted systemd."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from fakes.booted_systemd import BootedSystemd

from moetuned.host import own_scope
from moetuned.host.own_scope import free_name, in_journal, in_scope, is_scope_of, scope_name

DRIVER = """
import json, os, signal, time
os.environ["JOURNAL_STREAM"] = "8:1"
from moetuned.host import spawn
from moetuned.host.processes import identify
words = ["/bin/sh", "-c", "echo it speaks; exec sleep 300"]
process = spawn.start(words, environment={"PATH": "/usr/bin:/bin"}, backend="glm.4")
pid = process.identity.pid
while open(f"/proc/{pid}/comm").read() != "sleep\\n":
    time.sleep(0.01)
cgroup = open(f"/proc/{pid}/cgroup").read()
same = identify(pid) == process.identity
os.kill(pid, signal.SIGKILL)
while process.poll() is None:
    time.sleep(0.01)
again = spawn.start(["/bin/sleep", "300"], environment={"PATH": "/usr/bin:/bin"}, backend="glm.4")
while open(f"/proc/{again.identity.pid}/comm").read() != "sleep\\n":
    time.sleep(0.01)
os.kill(again.identity.pid, signal.SIGTERM)
while again.poll() is None:
    time.sleep(0.01)
print(json.dumps({"cgroup": cgroup, "same": same}))
"""


def test_whose_scope_it_is() -> None:
    assert is_scope_of("glm", scope_name("glm"))
    assert is_scope_of("glm", scope_name("glm", 9))
    for name in ("", "moetuned.slice", scope_name("glm-x"), scope_name("gl"), "llama.scope", "moetuned-backend-.scope"):
        assert not is_scope_of("glm", name)


def test_a_scope_is_asked_for_where_systemd_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_scope, "is_booted", lambda: True)
    monkeypatch.setattr(own_scope, "find_program", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert in_scope("glm", ["server", "--scope"]) == [
        "/usr/bin/systemd-run", "--scope", "--quiet", "--collect", "--unit=moetuned-backend-glm.scope",
        "--slice=moetuned.slice", "--", "server", "--scope",
    ]  # fmt: skip
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert in_scope("glm", ["server"]) is None
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr(own_scope, "is_booted", lambda: False)
    assert in_scope("glm", ["server"]) is None


def test_the_journal_is_spoken_to_only_where_the_daemon_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_scope, "find_program", lambda name: f"/usr/bin/{name}")
    monkeypatch.delenv("JOURNAL_STREAM", raising=False)
    assert in_journal("glm", ["server"]) == ["server"]
    monkeypatch.setenv("JOURNAL_STREAM", "8:1")
    assert in_journal("glm", ["server"]) == ["/usr/bin/systemd-cat", "--identifier=moetuned-glm", "--", "server"]


def test_a_scope_that_something_still_runs_in_is_left_alone(tmp_path: Path) -> None:
    assert free_name("glm", str(tmp_path)) == "moetuned-backend-glm.scope"
    (tmp_path / "unified" / "moetuned.slice" / "moetuned-backend-glm.scope").mkdir(parents=True)
    assert free_name("glm", str(tmp_path)) == "moetuned-backend-glm-2.scope"


@pytest.mark.systemd
def test_at_a_real_systemd_the_process_is_ours_and_its_scope_comes_and_goes(booted_systemd: BootedSystemd) -> None:
    done = booted_systemd.run(sys.executable, "-c", DRIVER)
    told = json.loads(done.stdout)
    assert told["same"], "systemd-run becomes the program"
    assert f"moetuned.slice/{scope_name('glm.4')}" in told["cgroup"]
    assert booted_systemd.show(scope_name("glm.4"), "ActiveState") == "inactive"
    said = booted_systemd.run("journalctl", "--no-pager", "--output=cat", "--identifier=moetuned-glm.4").stdout
    assert "it speaks" in said
