"""The twelve situations a person meets: what `moetunectl status` says, whole, as golden files. The first line is what most people read.

All but the last two are seconds of recorded traces, through the daemon's own judge and views. After a wanted change:
MOETUNED_WRITE_GOLDEN=1 pytest tests/cli/test_status_situations.py, then read the diff, first lines first.
"""

from __future__ import annotations

import importlib.util
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import msgspec
import pytest
from fakes.fake_kernel import usual_kernel
from fakes.replayed_daemon import ReplayedDaemon

from moetuned.cli import daemon_absence, main
from moetuned.cli.status_view import render
from moetuned.daemon.tuning_keeper import TuningKeeper
from moetuned.daemon.watched import Watched
from moetuned.decide.headline import headlines
from moetuned.decide.neighbours import Person, Seen
from moetuned.schema.backend_description import BackendDescription
from moetuned.schema.config import Config, Profile, Tuning
from moetuned.schema.headline import Severity, Situation
from moetuned.schema.snapshot import Snapshot, TunableView
from moetuned.schema.verdict import Paging, Phase

ROOT = Path(__file__).parent.parent.parent
GOLDEN = Path(__file__).parent / "golden"
PICTURE = ROOT / "docs" / "pictures" / "status.svg"
PICTURE_LAST = "  model "
"""The picture ends with this line: machine, settings and events stand in the text of docs/status.md."""
WIDTH = 100
MIB = 1 << 20
OFFLOAD = Config(tuning=Tuning(profile=Profile.MOE_OFFLOAD))


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def paging_is(paging: Paging, phase: Phase | None = None) -> Callable[[Watched], bool]:
    return lambda watched: (
        watched.verdict.paging is paging
        and (phase is None or watched.verdict.phase is phase)
        and (
            phase is not Phase.DECODE or watched.signals is None or watched.signals.get("tokens_per_second") is not None
        )
    )


def thrash_hog(daemon: ReplayedDaemon) -> Snapshot:
    """The trace does not say who it was; the look at other processes is this test's."""
    directory = daemon.watched.cgroup.directory
    assert directory is not None
    firefox = Person((4711, 1), 4711, "firefox", None, 1, frozenset({directory}))
    daemon.after(15)
    daemon.seen(Seen(firefox, anonymous_bytes=200 * MIB))
    daemon.until(paging_is(Paging.THRASHING))
    daemon.seen(Seen(firefox, anonymous_bytes=900 * MIB))
    return daemon.until(paging_is(Paging.THRASHING, Phase.DECODE), ticks_more=10)


def thrash_read_ahead(daemon: ReplayedDaemon) -> Snapshot:
    return daemon.until(paging_is(Paging.THRASHING, Phase.DECODE), ticks_more=20)


def thrash_too_little(daemon: ReplayedDaemon) -> Snapshot:
    return daemon.until(paging_is(Paging.THRASHING, Phase.DECODE), ticks_more=12)


def streaming_as_forecast(daemon: ReplayedDaemon) -> Snapshot:
    return daemon.until(paging_is(Paging.STREAMING, Phase.DECODE), ticks_more=5)


def cold(daemon: ReplayedDaemon) -> Snapshot:
    return daemon.until(paging_is(Paging.COLD, Phase.IDLE))


def evicted_while_idle(daemon: ReplayedDaemon) -> Snapshot:
    return daemon.until(paging_is(Paging.COLD, Phase.IDLE), ticks_more=3)


def near_its_limit(daemon: ReplayedDaemon) -> Snapshot:
    return daemon.until(lambda watched: watched.verdict.memory == "near_limit", ticks_more=2)


def down(daemon: ReplayedDaemon) -> Snapshot:
    return daemon.until(lambda watched: watched.verdict.phase is Phase.ABSENT)


def drift(daemon: ReplayedDaemon) -> Snapshot:
    """Another program sets the machine up anew."""
    daemon.tuning = tuned(daemon, "/proc/sys/vm/vfs_cache_pressure")
    return all_well(daemon)


def tuned(daemon: ReplayedDaemon, *changed: str) -> tuple[TunableView, ...]:
    """The settings of the profile on a usual kernel, of which somebody has changed these files since."""
    kernel = usual_kernel()
    keeper = TuningKeeper(kernel, str(daemon.root / f"journal{len(changed)}" / "undo.jsonl"))
    keeper.apply(daemon.config)
    for path in changed:
        kernel.foreign_write(path, "100")
    keeper.check()
    keeper.check()
    views = keeper.views
    keeper.rollback()
    return views


def all_well(daemon: ReplayedDaemon) -> Snapshot:
    return daemon.until(paging_is(Paging.STEADY, Phase.DECODE), ticks_more=1)


def reading_a_prompt(daemon: ReplayedDaemon) -> Snapshot:
    return daemon.until(paging_is(Paging.STREAMING, Phase.PREFILL), ticks_more=35)


SCENES = {
    "thrash_hog": (thrash_hog, "hog_takes_cache", OFFLOAD, Severity.CRITICAL, Situation.THRASHING),
    "thrash_read_ahead": (thrash_read_ahead, "thrash", OFFLOAD, Severity.CRITICAL, Situation.THRASHING),
    "thrash_too_little": (thrash_too_little, "thrash_dense_shortage", OFFLOAD, Severity.CRITICAL, Situation.THRASHING),
    "streaming_as_forecast": (streaming_as_forecast, "streaming", OFFLOAD, Severity.OK, Situation.STREAMING),
    "cold": (cold, "streaming", OFFLOAD, Severity.OK, Situation.COLD),
    "evicted_while_idle": (evicted_while_idle, "evicted_idle", OFFLOAD, Severity.WARNING, Situation.EVICTED),
    "near_its_limit": (near_its_limit, "prompt_cache", OFFLOAD, Severity.WARNING, Situation.NEAR_LIMIT),
    "down": (down, "prompt_cache", OFFLOAD, Severity.CRITICAL, Situation.DOWN),
    "drift": (drift, "cold_fits", OFFLOAD, Severity.WARNING, Situation.DRIFTED),
    "all_well": (all_well, "cold_fits", OFFLOAD, Severity.OK, Situation.WELL),
    "reading_a_prompt": (reading_a_prompt, "prefill_minutes", OFFLOAD, Severity.OK, Situation.READING_PROMPT),
}
"""All that is seen through a daemon, and a prompt that takes minutes besides."""


CACHES = {"prompt_cache": BackendDescription(context_length=4096, prompt_cache_mib=8192)}
"""What a backend was started with, where the trace is about that."""


@pytest.fixture(params=SCENES)
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Snapshot]]:
    make, trace, config, _, _ = SCENES[request.param]
    daemon = ReplayedDaemon(tmp_path, trace, config, CACHES.get(trace))
    try:
        daemon.tuning = tuned(daemon)
        yield request.param, make(daemon)
    finally:
        daemon.close()


def compare(name: str, text: str) -> None:
    path = GOLDEN / f"situation_{name}.txt"
    if os.environ.get("MOETUNED_WRITE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def test_through_a_daemon(scene: tuple[str, Snapshot]) -> None:
    name, snapshot = scene
    _, _, _, severity, situation = SCENES[name]
    first = headlines(snapshot, snapshot.wall_seconds)[0]
    assert (first.severity, first.situation) == (severity, situation)
    screen = render(snapshot, WIDTH, False, snapshot.wall_seconds, whole=True)
    compare(name, screen)
    count = len(headlines(snapshot, snapshot.wall_seconds))
    assert screen.splitlines()[0] == first.line
    assert max(map(len, screen.splitlines()[count:])) <= WIDTH


def test_no_permission(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    import grp
    import pwd

    monkeypatch.setattr("socket.socket.connect", refuse)
    monkeypatch.setattr("os.stat", lambda _path: msgspec.structs.asdict(_Owner(2001)) and _Owner(2001))
    monkeypatch.setattr(grp, "getgrgid", lambda gid: grp.struct_group(("moetuned", "x", gid, [])))
    monkeypatch.setattr(
        pwd, "getpwuid", lambda _uid: pwd.struct_passwd(("ada", "x", 1000, 1000, "", "/home/ada", "/bin/sh"))
    )
    assert main.run(["status", "--socket", "/run/moetuned/api.sock"]) == 4
    captured = capsys.readouterr()
    assert captured.out == ""
    compare("no_permission", captured.err)


class _Owner(msgspec.Struct):
    st_gid: int


def test_no_daemon(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def nobody(*_: object) -> None:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr("socket.socket.connect", nobody)
    monkeypatch.setattr("moetuned.host.systemd_booted.is_booted", lambda: True)
    monkeypatch.setattr(
        daemon_absence, "_unit", lambda: {"LoadState": "loaded", "ActiveState": "inactive", "UnitFileState": "disabled"}
    )
    assert main.run(["status", "--socket", "/run/moetuned/api.sock"]) == 3
    captured = capsys.readouterr()
    assert captured.out == ""
    compare("no_daemon", captured.err)


def test_the_documentation_shows_what_is_printed() -> None:
    page = (ROOT / "docs" / "status.md").read_text(encoding="utf-8")
    for path in sorted(GOLDEN.glob("situation_*.txt")):
        assert path.read_text(encoding="utf-8").splitlines()[0] in page, path.name
    whole = (GOLDEN / "situation_thrash_hog.txt").read_text(encoding="utf-8")
    assert f"```text\n{whole}```" in page


def drawing() -> ModuleType:
    spec = importlib.util.spec_from_file_location("terminal_svg", ROOT / "scripts" / "terminal_svg.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_picture_in_the_readme_is_what_is_printed(tmp_path: Path) -> None:
    make, trace, config, _, _ = SCENES["thrash_hog"]
    daemon = ReplayedDaemon(tmp_path, trace, config, None)
    try:
        daemon.tuning = tuned(daemon)
        snapshot = make(daemon)
    finally:
        daemon.close()
    lines = render(snapshot, WIDTH, True, snapshot.wall_seconds).splitlines()
    shown = lines[: next(n for n, line in enumerate(lines) if line.startswith(PICTURE_LAST)) + 1]
    title = headlines(snapshot, snapshot.wall_seconds)[0].line
    picture = drawing().terminal_svg("moetunectl status", "\n".join(shown), title)
    if os.environ.get("MOETUNED_WRITE_GOLDEN"):
        PICTURE.write_text(picture, encoding="utf-8")
    assert picture == PICTURE.read_text(encoding="utf-8")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert 'src="docs/pictures/status.svg"' in readme
    assert title.partition(";")[0] in readme, "the words beside the picture say the same"


def test_a_picture_has_all_letters_and_their_colours() -> None:
    text = "\x1b[31m\x1b[1mred & bold\x1b[0m plain\n\n  ██▒ <x>"
    picture = drawing().terminal_svg("say", text, "a title")
    assert "red &amp; bold</text>" in picture
    assert 'font-weight="bold"' in picture
    assert picture.count("<text ") == 4
    assert "██▒ &lt;x&gt;" in picture
    with pytest.raises(ValueError, match="style 45"):
        drawing().terminal_svg("say", "\x1b[45mno\x1b[0m", "")
