"""All rehearsals: found by name, complete, for every call that moetuned's code makes, each tried here for real, and nothing left of it."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import tempfile
from pathlib import Path

import pytest

from moetuned.host import rehearsals
from moetuned.host.rehearsals import parse_manual
from moetuned.host.rehearsing import rehearse_all, run
from moetuned.host.stranger import Stranger
from moetuned.schema.capability import (
    Action,
    Answer,
    BackendNeeds,
    Capability,
    Found,
    Need,
    RehearsalFacts,
    SettingFile,
)
from moetuned.schema.supervise import ResourceLimits

PACKAGE = Path(rehearsals.__file__).parent.parent.parent
NAMES = rehearsals.names()
HOUSE = ("alerts", "api", "backends", "daemon", "host", "state", "tunables")
ITSELF = {"rehearsing.py", "stranger.py", "rehearsed.py"}
NEVER_REFUSED = {
    "prctl": "PR_SET_PDEATHSIG of a process's own; in the group @default of systemd's filters",
    "mallopt": "no call of the kernel",
    "SHA256_Init": "no call of the kernel",
    "SHA256_Update": "no call of the kernel",
    "SHA256_Final": "no call of the kernel",
    "ioctl": "FS_IOC_SETFLAGS of an empty file that was just made, on btrfs only",
}
"""Calls that need no rehearsal, and why."""
CALLS = (
    r"libc\.(?!syscall\b)(\w+)\(",
    r"library\.(\w+)\(",
    r"CDLL\(None\)\.(\w+)",
    r'getattr\(_libc, "(\w+)"',
    r"os\.(pidfd_open|posix_fadvise|posix_fallocate|nice|setpriority|getpriority|kill|killpg|fsync|statvfs|execve?|fork)\(",
    r"signal\.(pidfd_send_signal)\(",
    r"resource\.(prlimit|setrlimit|getrlimit)\(",
    r"socket\.(AF_[A-Z0-9]+)",
    r"subprocess\.(Popen)\(",
    r"select\.(epoll)\(",
    r"fcntl\.(ioctl)\(",
    r'/(oom_score_adj)", "w"',
)
BY_NUMBER = re.compile(r"syscall\(\s*ctypes\.c_long\(_([A-Z_]+)\)")
EVERYTHING = RehearsalFacts(
    settings=(SettingFile("vm.swappiness", "/proc/sys/vm/swappiness"), SettingFile("memory_low", "/x", "a.service")),
    swap_file="/var/lib/moetuned/swapfile",
    zram=True,
    backends=(
        BackendNeeds(
            "own", "process", model="/m", limits=ResourceLimits(core=0), scope=True, slot_directory="/var/lib/slots"
        ),
        BackendNeeds("unit", "systemd", "unit.service", "/m"),
        BackendNeeds("box", "docker", "docker"),
        BackendNeeds("script", "command", "/usr/local/bin/again"),
        BackendNeeds("watched", "none"),
    ),
    acts=True,
    pauses=True,
    warms=True,
    protects=True,
    prompts="/etc/moetuned/prompts.yaml",
    hook_directories=("/etc/moetuned/hooks.d",),
    metric_file="/var/lib/prometheus/moetuned.prom",
)


def calls_of(path: Path) -> set[str]:
    """Calls of the kernel by ctypes or by number, and those of the standard library that a sandbox may refuse."""
    text = path.read_text()
    return {found for call in CALLS for found in re.findall(call, text)} | {
        number.lower() for number in BY_NUMBER.findall(text)
    }


@pytest.mark.parametrize("name", NAMES)
def test_a_rehearsal_is_complete(name: str) -> None:
    one = rehearsals.load(name)
    for field in one.manual.__struct_fields__:
        text = getattr(one.manual, field)
        assert text, f"{name} has no paragraph for {field}"
        assert text.endswith((".", ")"))
    needs = one.needs(EVERYTHING)
    assert needs, f"{name} is never needed"
    assert all(need.subject and need.actions for need in needs)


def test_a_config_without_anything_needs_little() -> None:
    idle = RehearsalFacts(discovers=False)
    needed = {name for name in NAMES if rehearsals.load(name).needs(idle)}
    assert needed == {"kernel_log", "own_directories", "pressure_trigger", "programs", "sockets"}


def test_every_action_has_a_rehearsal() -> None:
    assert {
        action for name in NAMES for need in rehearsals.load(name).needs(EVERYTHING) for action in need.actions
    } == {*Action}


def test_every_call_of_the_house_is_spoken_for() -> None:
    spoken = {call for name in NAMES for call in rehearsals.load(name).calls}
    files = [path for package in HOUSE for path in sorted((PACKAGE / package).glob("*.py")) if path.name not in ITSELF]
    made = {call: str(path.relative_to(PACKAGE)) for path in files for call in calls_of(path)}
    assert {"process_madvise", "cachestat", "swapon", "mlock2", "AF_UNIX", "pidfd_open", "oom_score_adj"} <= set(made)
    missing = {call: path for call, path in made.items() if call not in spoken and call not in NEVER_REFUSED}
    assert missing == {}, "write a rehearsal in moetuned/host/rehearsals for each, or say in NEVER_REFUSED why not"


def test_a_paragraph_that_is_missing_is_empty() -> None:
    manual = parse_manual("What it is.\n\nFor: this\nand that.")
    assert (manual.summary, manual.actions, manual.tried) == ("What it is.", "this and that.", "")


def state_of_machine() -> list[str]:
    """What a rehearsal must leave as it was. Not /tmp, where others make files meanwhile: there it has a directory of its own."""
    places = ("/var/lib", "/run", "/sys/block")
    listed = [f"{place}: {sorted(name for name in os.listdir(place) if 'moetuned' in name)}" for place in places]
    settings = [Path(path).read_text() for path in ("/proc/sys/vm/swappiness", "/proc/swaps")]
    zram = os.path.isdir("/sys/class/zram-control"), sorted(os.listdir("/sys/block"))
    own = Path("/proc/self/cgroup").read_text(), Path("/proc/self/oom_score_adj").read_text()
    return [*listed, *settings, str(zram), *own, str(os.getpriority(os.PRIO_PROCESS, 0))]


def test_all_of_it_here_changes_nothing_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    before = state_of_machine()
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
    found = rehearse_all(EVERYTHING)
    assert state_of_machine() == before
    assert Path(f"/proc/self/task/{os.getpid()}/children").read_text() == children
    assert {one.rehearsal for one in found} == set(NAMES)
    assert [one for one in found if "the try failed" in one.why] == []
    assert all(one.why for one in found if one.answer is not Answer.YES)
    assert list(tmp_path.iterdir()) == []


def try_one(name: str, subject: str, facts: RehearsalFacts = EVERYTHING, **more: object) -> Capability:
    one = rehearsals.load(name)
    need = Need(subject, (Action.WARM,), **more)  # type: ignore[arg-type]
    return run([(name, need, lambda: one.rehearse(need, facts))], 5.0)[0]


def test_setting_files(tmp_path: Path) -> None:
    file = tmp_path / "setting"
    file.write_text("7")
    assert try_one("setting_files", str(file)).answer is Answer.YES
    assert file.read_text() == "7"
    assert try_one("setting_files", str(tmp_path / "gone")).answer is Answer.UNKNOWN
    assert not (tmp_path / "gone").exists()


def test_swap_place_and_own_directories(tmp_path: Path) -> None:
    for name in ("swap_place", "own_directories"):
        assert try_one(name, str(tmp_path)).answer is Answer.YES
        assert list(tmp_path.iterdir()) == []
    assert try_one("swap_place", str(tmp_path / "gone")).answer is Answer.UNKNOWN
    assert try_one("own_directories", str(tmp_path / "made" / "later")).answer is Answer.YES


def test_little_room_is_enough_for_what_a_restart_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A no there would turn restarts off."""
    room = os.statvfs_result((4096, 4096, 1000, 100, 100, 0, 0, 0, 0, 255))
    monkeypatch.setattr("moetuned.host.rehearsals.own_directories.os.statvfs", lambda _path: room)
    one = rehearsals.load("own_directories")
    for action, answer in ((Action.RESTART, Answer.YES), (Action.KEEP, Answer.NO)):
        assert one.rehearse(Need(str(tmp_path), (action,)), EVERYTHING).answer is answer


def test_restart_script_and_hooks(tmp_path: Path) -> None:
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    script = hooks / "again"
    script.write_text("#!/bin/sh\n")
    tmp_path.chmod(0o755)
    hooks.chmod(0o755)
    script.chmod(0o644)
    assert "is not executable" in try_one("restart_script", str(script)).why
    script.chmod(0o755)
    assert try_one("restart_script", str(script)).answer is Answer.YES
    assert try_one("hooks", str(hooks)).answer is Answer.YES
    hooks.chmod(0o777)
    assert stat.S_IMODE(hooks.stat().st_mode) == 0o777
    for name, path in (("restart_script", script), ("hooks", hooks)):
        said = try_one(name, str(path))
        assert said.answer is Answer.NO
        assert "written by others" in said.why
    assert try_one("hooks", str(tmp_path / "gone")).answer is Answer.UNKNOWN


def test_model_reading_residency_and_slot_directory(tmp_path: Path) -> None:
    model = tmp_path / "model.gguf"
    model.write_bytes(bytes(8192))
    for name in ("model_reading", "residency", "page_out", "prompt_file"):
        assert try_one(name, str(model)).answer is Answer.YES
    model.write_bytes(b"")
    assert "is empty" in try_one("model_reading", str(model)).why
    assert try_one("slot_directory", str(tmp_path)).answer is Answer.YES
    assert try_one("slot_directory", str(tmp_path / "gone")).answer is Answer.UNKNOWN


def test_container_engine_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moetuned.host.rehearsals.container_engine.find_program", lambda _name: None)
    said = try_one("container_engine", "podman")
    assert (said.answer, said.cure) == (Answer.NO, "install podman")


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        ("systemctl failed with code 4: Failed to try-restart x: Access denied", Answer.NO),
        ("systemctl failed with code 1: Interactive authentication required.", Answer.NO),
        ("systemctl failed with code 1: Failed to connect to bus: Address family not supported by protocol", Answer.NO),
        ("systemctl failed with code 5: Unit moetuned-rehearsal-of-no-unit.service not found.", Answer.YES),
        ("systemctl did not end within 0 s", Answer.UNKNOWN),
        ("systemctl failed with code 1: Failed to connect to bus: No such file or directory", Answer.UNKNOWN),
    ],
)
def test_service_manager_by_what_systemctl_says(said: str, answer: Answer) -> None:
    from moetuned.host.rehearsals import service_manager

    assert service_manager._understood(said).answer is answer


def test_a_process_that_ended_while_it_was_looked_at_is_no_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was there anyway: it was seen, so nothing hides it."""
    ended = os.fork()
    if ended == 0:
        os._exit(0)
    os.waitpid(ended, 0)
    for ours, answer in ((False, Answer.UNKNOWN), (True, Answer.NO)):
        found = contextlib.nullcontext(Stranger(ended, ours))
        monkeypatch.setattr("moetuned.host.rehearsals.other_processes.stranger", lambda found=found: found)
        assert try_one("other_processes", "/proc/PID/maps", other_user=True).answer is answer


@pytest.mark.parametrize(
    ("name", "subject", "number", "answer"),
    [
        ("swap_calls", "swapon", errno.ENOENT, Answer.YES),
        ("swap_calls", "swapoff", errno.EPERM, Answer.NO),
        ("swap_calls", "swapoff", None, Answer.UNKNOWN),
        ("zram_control", "zram", errno.EBADF, Answer.YES),
        ("zram_control", "zram", errno.EPERM, Answer.NO),
        ("zram_control", "zram", None, Answer.UNKNOWN),
        ("kernel_log", "/dev/null", 0, Answer.YES),
        ("kernel_log", "/dev/null", None, Answer.UNKNOWN),
    ],
)
def test_what_the_unit_may_not_do_is_tried_outside_of_it(
    monkeypatch: pytest.MonkeyPatch, name: str, subject: str, number: int | None, answer: Answer
) -> None:
    place = f"moetuned.host.rehearsals.{name}"
    one = rehearsals.load(name)
    monkeypatch.setattr(f"{place}.can_leave", lambda: True)
    monkeypatch.setattr(f"{place}.error_outside", lambda *_words: number)
    if name == "zram_control":
        monkeypatch.setattr(f"{place}.zram_loaded", lambda: False)
    refuse(monkeypatch, place)
    assert one.rehearse(Need(subject, (Action.WARM,)), EVERYTHING).answer is answer


def refuse(monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    """Let what the rehearsal itself calls be refused."""
    if place.endswith("kernel_log"):

        def refused(path: str, _flags: int) -> int:
            raise PermissionError(errno.EPERM, "no", path)

        monkeypatch.setattr(f"{place}.os.open", refused)
    else:
        monkeypatch.setattr(f"{place}.ctypes.get_errno", lambda: errno.EPERM)


@pytest.mark.parametrize(
    ("number", "answer"), [(errno.ENXIO, Answer.YES), (errno.EACCES, Answer.YES), (errno.ENOENT, Answer.UNKNOWN)]
)
def test_a_log_that_is_hidden_in_the_unit_is_read_outside(
    monkeypatch: pytest.MonkeyPatch, number: int, answer: Answer
) -> None:
    place = "moetuned.host.rehearsals.kernel_log"

    def hidden(path: str, _flags: int) -> int:
        raise OSError(number, os.strerror(number), path)

    monkeypatch.setattr(f"{place}.can_leave", lambda: True)
    monkeypatch.setattr(f"{place}.error_outside", lambda *_words: 0)
    monkeypatch.setattr(f"{place}.os.open", hidden)
    assert rehearsals.load("kernel_log").rehearse(Need("/dev/kmsg", (Action.OBSERVE,)), EVERYTHING).answer is answer


def test_child_limits_that_may_be_raised_by_nobody() -> None:
    """Its own limit stays: each try is a process of its own."""
    low = RehearsalFacts(backends=(BackendNeeds("a", "process", limits=ResourceLimits(core=0)),))
    assert try_one("child_limits", "limits.core", low, backend="a").answer is Answer.YES


def test_child_standing_is_of_the_try_alone() -> None:
    own = Path("/proc/self/oom_score_adj").read_text()
    for subject in ("oom_score_adj 1000", "oom_score_adj and nice value 0"):
        assert try_one("child_standing", subject).answer is Answer.YES
    assert Path("/proc/self/oom_score_adj").read_text() == own


@pytest.mark.kernel
def test_as_an_ordinary_user_what_takes_root_is_refused() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to become somebody else")
    one, facts = rehearsals.load("swap_calls"), RehearsalFacts()

    def as_nobody(name: str, subject: str, **more: object) -> Found:
        os.setgroups([])
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)
        return rehearsals.load(name).rehearse(Need(subject, (Action.WARM,), **more), facts)  # type: ignore[arg-type]

    tries = [
        ("swap_calls", "swapon", {}),
        ("zram_control", "zram", {}),
        ("setting_files", "/proc/sys/vm/swappiness", {}),
        ("signals", "pidfd_send_signal", {"other_user": True}),
        ("page_out", "process_madvise", {"other_user": True}),
        ("other_processes", "/proc/PID/io", {"other_user": True}),
        ("own_directories", "/usr/lib", {}),
        ("signals", "pidfd_send_signal", {}),
        ("page_out", "process_madvise", {}),
    ]
    assert one.calls
    found = run(
        [
            (name, Need(subject, (Action.WARM,)), lambda n=name, s=subject, m=more: as_nobody(n, s, **m))
            for name, subject, more in tries
        ],  # type: ignore[misc]
        5.0,
    )
    answers = [(one.rehearsal, one.answer.value) for one in found]
    # Its own processes it may stop. To page them out takes CAP_SYS_NICE as well.
    assert answers == [
        ("swap_calls", "no"),
        ("zram_control", "no"),
        ("setting_files", "no"),
        ("signals", "no"),
        ("page_out", "no"),
        ("other_processes", "no"),
        ("own_directories", "no"),
        ("signals", "yes"),
        ("page_out", "no"),
    ], found
