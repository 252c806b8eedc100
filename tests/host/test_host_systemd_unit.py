"""A unit as a backend's service: what systemctl is asked, and what never. The real systemd: test_systemd_booted.py."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from fakes.fake_systemctl import FakeSystemctl, shown, systemctl

from moetuned.host import systemd_unit
from moetuned.host.environment_file import read_variables, write_variables
from moetuned.host.fs import RealFS
from moetuned.host.processes import identify
from moetuned.host.service import Service, ServiceError, ServiceState
from moetuned.host.systemd_unit import SystemdUnit, is_service, reload_units, unit_files, unit_status
from moetuned.parse.unit_status import UnitStatus

__all__ = ["systemctl"]

TEXT = """\
[Service]
Environment=MOETUNED_CONTEXT=4096
EnvironmentFile=-{environment}
ExecStart=llama-server -c ${{MOETUNED_CONTEXT}}
[X-Moetuned]
context=MOETUNED_CONTEXT
cache_type=LLAMA_ARG_CACHE_TYPE_K LLAMA_ARG_CACHE_TYPE_V
"""


class Place:
    """A unit's file, and where its variables go."""

    def __init__(self, directory: Path) -> None:
        self.variables = str(directory / "backends")
        self.environment = f"{self.variables}/glm.env"
        self.unit_file = directory / "llama.service"
        self.unit_file.write_text(TEXT.format(environment=self.environment))
        self.unit: Service = SystemdUnit("glm", "llama.service", self.variables)

    def shown(self, active: str = "active", sub: str = "running", **more: str | list[str]) -> str:
        files = [f"{self.environment} (ignore_errors=yes)"]
        return shown(active, sub, FragmentPath=str(self.unit_file), **{"EnvironmentFiles": files, **more})


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def verbs(systemctl: FakeSystemctl) -> list[str]:
    return [next(word for word in call if not word.startswith("--")) for call in systemctl.asked()]


def test_what_it_is_called() -> None:
    assert SystemdUnit("glm", "llama@glm.service").what == "the unit llama@glm.service"
    for name in ("", "llama", "llama.target", "-x.service", "a b.service", "../x.service", "llama@.service", "x.slice"):
        assert not is_service(name)
        with pytest.raises(ValueError, match="is no service of systemd"):
            SystemdUnit("glm", name)


def test_looking(systemctl: FakeSystemctl, place: Place) -> None:
    systemctl.set(shown(MainPID="85"))
    assert place.unit.look() == ServiceState(85)
    systemctl.set(shown("failed", "failed", Result="oom-kill", ExecMainCode="2", ExecMainStatus="9"))
    assert place.unit.look() == ServiceState(None, ended="was ended by the kernel's OOM killer", oom_killed=True)
    systemctl.set(shown("inactive", "dead"))
    assert place.unit.look() == ServiceState(None, stopped_by_owner=True)
    systemctl.set(shown("activating", "auto-restart", Result="exit-code", ExecMainCode="1", ExecMainStatus="3"))
    assert place.unit.look() == ServiceState(None, changing=True, ended="exited with code 3")


@pytest.mark.parametrize(
    ("show", "said"),
    [
        (shown("inactive", "dead", LoadState="not-found"), r"systemd has no unit llama\.service \(not-found\)"),
        ("", "its answer is not understood"),
        ("x" * 100_000, "printed more than 65536 bytes"),
    ],
)
def test_looking_at_what_is_not_there_or_makes_no_sense(
    systemctl: FakeSystemctl, place: Place, show: str, said: str
) -> None:
    systemctl.set(show)
    with pytest.raises(ServiceError, match=said):
        place.unit.look()


def test_a_systemctl_that_fails_or_hangs(
    systemctl: FakeSystemctl, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    systemctl.set(fail={"show": "Failed to connect to bus"})
    with pytest.raises(ServiceError, match=r"does not say how llama\.service is: .* Failed to connect to bus"):
        place.unit.look()
    monkeypatch.setattr(systemd_unit, "LOOK_SECONDS", 0.05)
    systemctl.set(hang=("show",))
    with pytest.raises(ServiceError, match="did not end within"):
        place.unit.look()


def test_without_systemd_nothing_is_asked(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moetuned.host.systemd_booted.BOOTED", str(tmp_path / "absent"))
    with pytest.raises(ServiceError, match="which does not run here"):
        place.unit.look()


def test_what_can_be_set_is_what_systemd_has_read(systemctl: FakeSystemctl, place: Place) -> None:
    systemctl.set(place.shown())
    assert place.unit.settable() == {"context", "cache_type"}
    systemctl.set(place.shown(EnvironmentFiles=["/etc/other (ignore_errors=no)"]))
    assert place.unit.settable() == frozenset()
    systemctl.set(place.shown(NeedDaemonReload="yes"))
    with pytest.raises(ServiceError, match="run systemctl daemon-reload"):
        place.unit.settable()
    systemctl.set(place.shown(DropInPaths="/no/such.conf"))
    with pytest.raises(ServiceError, match=r"cannot read /no/such\.conf, a file of llama\.service: No such file"):
        place.unit.settable()


def test_the_command_of_a_container_engine_is_no_server(systemctl: FakeSystemctl, place: Place) -> None:
    with subprocess.Popen(["/usr/bin/docker", "1000"], executable=shutil.which("sleep")) as client:
        try:
            systemctl.set(place.shown(MainPID=str(client.pid)))
            with pytest.raises(ServiceError, match=r"llama\.service runs the command docker.*supervise: {by: docker"):
                place.unit.settable()
        finally:
            client.kill()


def test_a_restart_writes_the_values_and_asks_for_it(systemctl: FakeSystemctl, place: Place) -> None:
    systemctl.set(place.shown(MainPID="85"))
    place.unit.restart({"context": "4096"})
    place.unit.restart({"cache_type": "q8_0"})
    assert read_variables("glm", place.variables) == {
        "MOETUNED_CONTEXT": "4096", "LLAMA_ARG_CACHE_TYPE_K": "q8_0", "LLAMA_ARG_CACHE_TYPE_V": "q8_0",
    }  # fmt: skip
    call = ["--no-ask-password", "try-restart", "--no-block", "--job-mode=fail", "--", "llama.service"]
    assert systemctl.asked() == [call, call]


def test_a_restart_with_the_same_values_writes_nothing(systemctl: FakeSystemctl, place: Place) -> None:
    systemctl.set(place.shown(MainPID="85", EnvironmentFiles=[]))
    place.unit.restart({})
    assert verbs(systemctl) == ["try-restart"]
    assert not os.path.exists(place.variables)


@pytest.mark.parametrize(
    "show", [shown("inactive", "dead"), shown("inactive", "dead", LoadState="masked"),
             shown("failed", "failed", Result="exit-code", ExecMainCode="1", ExecMainStatus="1", ExecMainStartTimestampMonotonic="3", ActiveExitTimestampMonotonic="5",
                   ExecMainExitTimestampMonotonic="9")]
)  # fmt: skip
def test_what_its_owner_stopped_is_never_started(systemctl: FakeSystemctl, place: Place, show: str) -> None:
    systemctl.set(show)
    with pytest.raises(ServiceError, match="somebody wants that; moetuned does not start it"):
        place.unit.restart({"context": "4096"})
    assert systemctl.asked() == []
    assert not os.path.exists(place.variables)


@pytest.mark.parametrize(
    ("active", "sub", "result", "asked"),
    [
        ("active", "running", "success", ["try-restart"]),
        ("activating", "auto-restart", "exit-code", ["reset-failed", "try-restart"]),
        ("deactivating", "stop-sigterm", "success", ["restart"]),
        ("failed", "failed", "oom-kill", ["reset-failed", "restart"]),
        ("failed", "failed", "start-limit-hit", ["reset-failed", "restart"]),
    ],
)
def test_how_it_is_asked_for(
    systemctl: FakeSystemctl, place: Place, active: str, sub: str, result: str, asked: list[str]
) -> None:
    systemctl.set(place.shown(active, sub, Result=result))
    place.unit.restart({"context": "2048"})
    assert verbs(systemctl) == asked
    assert all("--job-mode=fail" in call for call in systemctl.asked() if "reset-failed" not in call)


def test_values_that_it_does_not_take(systemctl: FakeSystemctl, place: Place) -> None:
    systemctl.set(place.shown())
    with pytest.raises(
        ServiceError, match=r"takes no prompt_cache_mib and no slots from .*glm\.env: see moetunectl backend adopt"
    ):
        place.unit.restart({"context": "4096", "slots": "1", "prompt_cache_mib": "0"})
    for values in (
        {"context": "4096; rm"},
        {"context": ""},
        {"cache_type": "$(x)"},
        {"PATH": "1"},
        {"context": "q8_0"},
    ):
        with pytest.raises(ValueError, match="is nothing that a restart changes"):
            place.unit.restart(values)
    assert systemctl.asked() == []
    assert not os.path.exists(place.variables)


def test_a_restart_that_systemd_refuses_leaves_the_values_as_they_were(systemctl: FakeSystemctl, place: Place) -> None:
    systemctl.set(place.shown())
    place.unit.restart({"context": "8192"})
    systemctl.set(place.shown(), fail={"try-restart": "Transaction is destructive"})
    with pytest.raises(
        ServiceError, match=r"systemctl try-restart llama\.service was not done: .*Transaction is destructive"
    ):
        place.unit.restart({"context": "4096"})
    assert read_variables("glm", place.variables) == {"MOETUNED_CONTEXT": "8192"}


@pytest.mark.parametrize("came_about", [False, True])
def test_a_refusal_after_a_daemon_was_killed_in_a_restart(
    systemctl: FakeSystemctl, place: Place, came_about: bool
) -> None:
    """What was before is what runs: the values of the interrupted restart only if the unit was started since."""
    started = time.monotonic_ns() // 1000
    write_variables("glm", {"MOETUNED_CONTEXT": "4096"}, place.variables)
    since = {
        "MainPID": "85",
        "ExecMainStartTimestampMonotonic": str(time.monotonic_ns() // 1000 if came_about else started),
    }
    systemctl.set(place.shown(**since), fail={"try-restart": "no"})
    with pytest.raises(ServiceError):
        place.unit.restart({"context": "2048"})
    expected = {"MOETUNED_CONTEXT": "4096"} if came_about else {}
    assert read_variables("glm", place.variables) == expected


def test_a_restart_that_hangs(systemctl: FakeSystemctl, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(systemd_unit, "_ACT_SECONDS", 0.05)
    systemctl.set(place.shown(), hang=("try-restart",))
    with pytest.raises(ServiceError, match="did not end within"):
        place.unit.restart({"context": "4096"})
    assert read_variables("glm", place.variables) == {}


def test_values_that_cannot_be_written_stop_the_restart(systemctl: FakeSystemctl, place: Place) -> None:
    systemctl.set(place.shown())
    Path(place.variables).write_text("a file where the directory should be")
    with pytest.raises(ServiceError, match=rf"cannot write {place.environment}: .*; nothing was changed"):
        place.unit.restart({"context": "4096"})
    assert systemctl.asked() == []


def test_killing(systemctl: FakeSystemctl, place: Place) -> None:
    """What is in no cgroup of the unit's is not touched; the rest: test_unit_processes, and test_systemd_booted."""
    systemctl.set(place.shown())
    me = identify(os.getpid())
    assert me is not None
    place.unit.kill(me)
    assert systemctl.asked() == []


def test_the_old_process_may_be_killed_once_systemd_has_the_job(systemctl: FakeSystemctl, place: Place) -> None:
    systemctl.set(place.shown())
    assert not place.unit.told_to_end
    place.unit.restart({})
    assert place.unit.told_to_end
    systemctl.set(place.shown(), fail={"try-restart": "Transaction is destructive"})
    with pytest.raises(ServiceError):
        place.unit.restart({})
    assert not place.unit.told_to_end


def test_reading_all_units_again(systemctl: FakeSystemctl) -> None:
    reload_units()
    assert systemctl.asked() == [["--no-ask-password", "daemon-reload"]]
    systemctl.set(fail={"daemon-reload": "no"})
    with pytest.raises(OSError, match="daemon-reload was not done"):
        reload_units()


def test_files_of_a_unit(systemctl: FakeSystemctl, tmp_path: Path) -> None:
    systemctl.set(shown(FragmentPath="/u", DropInPaths="/d/1 /d/2"))
    for name, text in (("u", "a"), ("d/1", "b"), ("d/2", "c")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    fs = RealFS(str(tmp_path))
    status = unit_status("llama.service")
    assert [(file.path, file.text) for file in unit_files(status, fs)] == [("/u", "a"), ("/d/1", "b"), ("/d/2", "c")]
    (tmp_path / "u").write_text("x" * 300_000)
    with pytest.raises(ServiceError, match="larger than 256 KiB"):
        unit_files(status, fs)
    with pytest.raises(ServiceError, match="a name that moetuned does not understand"):
        unit_files(UnitStatus("x", "loaded", "active", "", drop_ins=None), fs)
