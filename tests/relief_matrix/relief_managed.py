"""The matrix on a backend that another manager runs, a unit or a script: what goes wrong is drawn from a seed.

Nothing may be doubled, nothing lost that its manager did not lose, nothing ended twice; and the file of variables says what would be
started, also after a restart that did not come about.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import sys
import time
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import relief_faults
from relief_checks import BackendRun, Run
from relief_daemon import Program
from relief_faults import (
    CONFIG,
    COOL_DOWN_SECONDS,
    HOG_BYTES_A_SECOND,
    HOG_ITSELF_BYTES,
    LIMIT_BYTES,
    LOAD_SECONDS,
)
from relief_hog import hog
from relief_place import Place, place
from relief_scene import BackendSpec, Scene, answered_whole, finish, free_port, scene, short_question, wait_for
from relief_script import TIMEOUT_SECONDS, Does, UserScript, user_script
from relief_systemd import UNIT, FakeSystemd, Ill, fake_systemd
from relief_watch import command_line, serves

from moetuned.host.cgroup import joining

PREFERRED, MINIMUM = relief_faults.PREFERRED, relief_faults.MINIMUM
LEFT_BYTES = relief_faults.LEFT_BYTES + (8 << 20)
"""More than for a child: where its manager cannot be asked nothing makes room, and nothing may be killed for it either."""
ACT_SECONDS, LOOK_SECONDS, APPEAR_SECONDS = 5.0, 2.0, 8.0
"""In place of the daemon's own deadlines, so that a run takes seconds."""
WATCHED_SECONDS = 8.0
"""So long after the first restart was asked for everything must have come to rest."""
WELL_SECONDS = 40.0
_DAEMON = """
import sys
from moetuned.decide import managed
from moetuned.host import program_search, systemd_booted, systemd_unit
directory, variables = sys.argv.pop(1), sys.argv.pop(1)
systemd_booted.BOOTED = directory
program_search.DIRECTORIES = (directory + "/programs", *program_search.DIRECTORIES)
systemd_unit.SystemdUnit.__init__.__defaults__ = (variables, None)
systemd_unit._ACT_SECONDS, systemd_unit.LOOK_SECONDS = {act}, {look}
managed.APPEAR_SECONDS = {appear}
from moetuned.daemon.main import main
main()
"""


class UnitFault(StrEnum):
    """What goes wrong with a unit."""

    REFUSES_TO_DIE = "refuses to die"
    FILE_FULL = "env file: disk full"
    FILE_READ_ONLY = "env file: read-only"
    ASK_HANGS = "systemctl hangs, nothing is done"
    ASK_HANGS_DONE = "systemctl hangs, it is done"
    ASK_FAILS = "systemctl fails"
    LOOK_HANGS = "systemctl show hangs"
    NEVER_BACK = "never comes back"
    STOPPED_BY_OWNER = "stopped by its owner"
    DAEMON_KILLED = "daemon killed"


_NOT_ASKED = frozenset(
    {
        UnitFault.FILE_FULL,
        UnitFault.FILE_READ_ONLY,
        UnitFault.ASK_HANGS,
        UnitFault.ASK_FAILS,
        UnitFault.LOOK_HANGS,
    }
)
"""With these no restart comes about."""
_APART: tuple[frozenset[UnitFault], ...] = (
    frozenset({UnitFault.FILE_FULL, UnitFault.FILE_READ_ONLY}),
    frozenset({UnitFault.ASK_HANGS, UnitFault.ASK_HANGS_DONE, UnitFault.ASK_FAILS, UnitFault.LOOK_HANGS}),
    frozenset({UnitFault.NEVER_BACK, UnitFault.STOPPED_BY_OWNER}),
)


@dataclass(frozen=True)
class ManagedPlan:
    """What happens in one run. `fault_after`, `killed_after`: seconds after the restart begins."""

    seed: int
    faults: frozenset[UnitFault]
    script: Does | None
    fault_after: float
    killed_after: float | None

    def __str__(self) -> str:
        what = self.script.value if self.script is not None else ", ".join(sorted(self.faults))
        killed = ", daemon killed" if self.script is not None and self.killed_after is not None else ""
        return f"{self.seed}: {'unit' if self.script is None else 'script'}: {what}{killed}"


def draw(seed: int) -> ManagedPlan:
    """Two of three have a unit with one or two faults, the others a script."""
    chooser = random.Random(f"managed {seed}")
    faults: frozenset[UnitFault] = frozenset()
    script = None
    if seed % 3 == 0:
        script = chooser.choice(sorted(Does))
        killed = chooser.random() < 0.3
    else:
        while True:
            faults = frozenset(chooser.sample(sorted(UnitFault), chooser.randint(1, 2)))
            if all(len(faults & apart) < 2 for apart in _APART):
                break
        killed = UnitFault.DAEMON_KILLED in faults
    return ManagedPlan(seed, faults, script, chooser.uniform(0.0, 0.5), chooser.uniform(0.0, 3.0) if killed else None)


def run(disk: relief_faults.Disk, directory: Path, plan: ManagedPlan) -> Run:
    """One run; what it leaves in `directory` is removed."""
    flags = ["--simulate-ignore-sigterm"] if UnitFault.REFUSES_TO_DIE in plan.faults else []
    command = (
        sys.executable, "-m", "moetuned.simulator", "serve", "-m", str(disk.model), "--port", str(free_port()), "--metrics", "-t", "1",
        "-c", "{context}", "--cache-ram", "0", *flags,
    )  # fmt: skip
    directory.mkdir(parents=True)
    variables = directory / "run" / "backends"
    made = Run(str(plan), LIMIT_BYTES, COOL_DOWN_SECONDS, [BackendRun("glm", MINIMUM, LOAD_SECONDS)], strict=False)
    with contextlib.ExitStack() as stack:
        full = relief_faults.broken_directory(
            stack,
            variables,
            read_only=UnitFault.FILE_READ_ONLY in plan.faults,
            full=UnitFault.FILE_FULL in plan.faults,
        )
        cgroup = stack.enter_context(place(LIMIT_BYTES))
        manager: FakeSystemd | UserScript
        if plan.script is None:
            manager = stack.enter_context(
                fake_systemd(
                    directory, variables / "glm.env", PREFERRED, lambda context: _words(cgroup, command, str(context))
                )
            )
            supervise: dict[str, Any] = {"by": "systemd", "unit": UNIT}
        else:
            words = _words(cgroup, command, "{context}")
            other = [str(MINIMUM) if word == "{context}" else word for word in command]
            other[other.index("--port") + 1] = str(free_port())
            manager = stack.enter_context(user_script(directory / "script", words, other, PREFERRED))
            supervise = {
                "by": "command",
                "restart": [str(manager.path), "{context}"],
                "timeout": f"{TIMEOUT_SECONDS:g}s",
            }
        spec = BackendSpec("glm", "simulator", command, disk.model, PREFERRED, MINIMUM, 0, supervise)
        text = _DAEMON.format(act=ACT_SECONDS, look=LOOK_SECONDS, appear=APPEAR_SECONDS)
        program: Program = (sys.executable, "-c", text, str(directory), str(variables))
        found = stack.enter_context(scene(directory, cgroup, (spec,), CONFIG, program=program))
        try:
            _go(found, spec, plan, made, manager, full)
        except AssertionError as error:
            made.problems.append(str(error))
        made.daemon_code = found.daemon.finish()
        _after(found, spec, plan, made, manager)
        manager.close()
        finish(found, made)
        if plan.script is Does.LEAVES_TWO:
            made.backends[0].doubles = []
    if not made.problems:
        shutil.rmtree(directory, ignore_errors=True)
    return made


def _words(cgroup: Place, command: tuple[str, ...], context: str) -> list[str]:
    return joining(cgroup.directory, [context if word == "{context}" else word for word in command])


def _go(
    found: Scene,
    spec: BackendSpec,
    plan: ManagedPlan,
    made: Run,
    manager: FakeSystemd | UserScript,
    full: Path | None,
) -> None:
    wait_for(
        lambda: (found.healthy(spec) and found.memory(spec) == "ok") or not found.daemon.alive(),
        "the stand-in is ready",
    )
    assert found.daemon.alive(), f"the daemon did not start:\n{found.daemon.log}"
    found.ask(spec, answered_whole(short_question))
    size = found.headroom_bytes(spec) - LEFT_BYTES - HOG_ITSELF_BYTES
    _make_ill(plan, manager)
    with hog(found.place, size, HOG_BYTES_A_SECOND):
        if full is not None:
            relief_faults.fill(full)
        wait_for(
            lambda: found.daemon.named("backend_restarting") or found.daemon.named("relief_exhausted"),
            "a restart begins",
            30.0,
        )
        began = time.monotonic()
        steps = [] if plan.killed_after is None else [(plan.killed_after, "daemon")]
        if UnitFault.STOPPED_BY_OWNER in plan.faults:
            steps.append((plan.fault_after, "owner"))
        for after, who in sorted(steps):
            time.sleep(max(0.0, began + after - time.monotonic()))
            if who == "owner" and isinstance(manager, FakeSystemd):
                manager.stop_by_owner()
            elif who == "daemon":
                found.daemon.kill()
                found.daemon.again()
        time.sleep(max(0.0, began + WATCHED_SECONDS - time.monotonic()))
        _make_well(manager)
        if _stays_down(plan):
            wait_for(lambda: _idle(found, plan, manager), "the daemon says that it does not run", WELL_SECONDS)
        else:
            wait_for(
                lambda: relief_faults.well(found, spec),
                "the backend is healthy and known to the daemon at last",
                WELL_SECONDS,
            )
        assert found.daemon.alive(), "the daemon died"
    stopped = [pid for pid in found.place.processes() if _state(pid) == "T"]
    if stopped:
        made.problems.append(f"processes {stopped} are left stopped (SIGSTOP)")


def _make_ill(plan: ManagedPlan, manager: FakeSystemd | UserScript) -> None:
    if isinstance(manager, UserScript):
        assert plan.script is not None
        manager.does(plan.script)
        return
    acts = {
        UnitFault.ASK_HANGS: Ill(),
        UnitFault.ASK_HANGS_DONE: Ill(done=True),
        UnitFault.ASK_FAILS: Ill("Failed to restart: Connection timed out"),
    }
    for fault, ill in acts.items():
        if fault in plan.faults:
            manager.ill = {"try-restart": ill, "restart": ill, "kill": ill}
    if UnitFault.LOOK_HANGS in plan.faults:
        manager.ill = {"show": Ill()}
    manager.comes_back = UnitFault.NEVER_BACK not in plan.faults


def _make_well(manager: FakeSystemd | UserScript) -> None:
    if isinstance(manager, FakeSystemd):
        manager.ill, manager.comes_back = {}, True


def _stays_down(plan: ManagedPlan) -> bool:
    """Whether its manager or its owner ended it for good; where the restart could not be asked for it runs on."""
    ended = UnitFault.NEVER_BACK in plan.faults and not plan.faults & _NOT_ASKED
    return ended or UnitFault.STOPPED_BY_OWNER in plan.faults


def _idle(found: Scene, plan: ManagedPlan, manager: FakeSystemd | UserScript) -> bool:
    """Whether the daemon that runs now has seen what its manager has."""
    last = found.daemon.last
    if last is None or last.daemon.pid != found.daemon.process.pid or not isinstance(manager, FakeSystemd):
        return False
    view = next((view for view in last.backends if view.name == "glm"), None)
    return view is not None and view.pid == manager.pid and manager.settled


def _after(found: Scene, spec: BackendSpec, plan: ManagedPlan, made: Run, manager: FakeSystemd | UserScript) -> None:
    """What must be so when the daemon has ended: what runs is its manager's, and it runs on."""
    running = [pid for pid in found.place.processes() if serves(command_line(pid), spec.port)]
    if isinstance(manager, UserScript):
        if len(running) != 1:
            made.problems.append(f"{len(running)} processes serve the port when the daemon has ended, it was one")
        return
    if manager.pid is None and not _stays_down(plan):
        made.problems.append("the unit does not run any more, and neither its manager nor its owner wanted that")
    kills = [words for words in manager.asked if words[0] == "kill"]
    if kills and UnitFault.REFUSES_TO_DIE not in plan.faults:
        made.problems.append(f"systemd was asked {len(kills)} times to kill a unit that would have ended")
    if running and not plan.faults & {UnitFault.ASK_HANGS_DONE}:
        now = command_line(running[0])
        context = int(now[now.index("-c", now.index("serve")) + 1])
        if context != manager.said_context():
            made.problems.append(
                f"it runs with a context of {context}, and would be started with {manager.said_context()}"
            )


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""
