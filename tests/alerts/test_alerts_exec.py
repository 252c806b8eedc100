from __future__ import annotations

import logging
import os
import pathlib
import stat

import msgspec
import pytest
from fakes.process_end import has_ended_soon
from hypothesis import given
from hypothesis import strategies as st

from moetuned.alerts import exec as sink
from moetuned.alerts.exec import environment, send
from moetuned.host import bounded_program
from moetuned.schema.alert import ExecAlert
from moetuned.schema.event import Event, EventName
from moetuned.schema.verdict import Reason

HOSTILE = "$(touch pwned); `touch pwned` '\" && touch pwned\n%s\\x00"


def event(**changes: object) -> Event:
    fields: dict[str, object] = {
        "id": "1-2",
        "name": EventName.THRASH_BEGIN,
        "wall_seconds": 1_800_000_000.25,
        "at_seconds": 10.0,
        "backend": "glm",
        "message": "glm thrashes",
        "reasons": (Reason("paging", "refault_ratio", 0.9, 0.5, 8.0, "refaults 90 %"),),
    }
    return Event(**(fields | changes))


@pytest.fixture
def hooks(tmp_path) -> pathlib.Path:
    directory = tmp_path / "hooks.d"
    directory.mkdir(mode=0o755)
    return directory


def add(directory: pathlib.Path, name: str, text: str, mode: int = 0o755) -> pathlib.Path:
    path = directory / name
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(mode)
    return path


def run(directory: pathlib.Path, timeout: str = "30s", **changes: object):
    return send(event(**changes), ExecAlert(directory=str(directory), timeout=timeout))


def test_hooks_run_in_name_order_with_facts(hooks, tmp_path):
    out = tmp_path / "out"
    add(hooks, "20-b", f'echo "b $MOETUNED_EVENT $MOETUNED_BACKEND $MOETUNED_TIME $(cat)" >>{out}')
    add(hooks, "10-a", f'echo "a $MOETUNED_EVENT_ID $MOETUNED_MESSAGE $MOETUNED_REASONS" >>{out}')
    results = run(hooks)
    assert [(os.path.basename(item.target), item.ok, item.exit_code) for item in results] == [
        ("10-a", True, 0),
        ("20-b", True, 0),
    ]
    first, second = out.read_text().splitlines()
    assert first == "a 1-2 glm thrashes refaults 90 %"
    assert second.startswith("b thrash_begin glm 2027-01-15T08:00:00Z {")
    assert msgspec.json.decode(second.partition("Z ")[2], type=Event) == event()


def test_a_name_that_is_no_text_keeps_no_hook_from_running(hooks, tmp_path):
    out = tmp_path / "out"
    add(hooks, "10-a", f'echo "$MOETUNED_MESSAGE $(cat)" >{out}')
    assert run(hooks, message="part /m/\udcff.gguf is missing")[0].ok
    assert out.read_text().startswith("part /m/\ufffd.gguf is missing {")


def test_the_environment_is_minimal(hooks, tmp_path, monkeypatch):
    monkeypatch.setenv("NOTIFY_SOCKET", "/run/x")
    monkeypatch.setenv("SECRET", "1")
    out = tmp_path / "out"
    add(hooks, "10-env", f"env >{out}; pwd >>{out}; cat /proc/self/oom_score_adj >>{out}")
    assert run(hooks)[0].ok
    lines = out.read_text().splitlines()
    names = {line.partition("=")[0] for line in lines if "=" in line}
    own = {name for name in names if name.startswith("MOETUNED_")}
    assert own == set(environment(event())) - {"PATH", "LANG"}
    assert names - own <= {"PATH", "LANG", "PWD", "OLDPWD", "SHLVL", "_"}
    assert lines[-2:] == ["/", "0"]


def test_hostile_values_are_data(hooks, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "out"
    add(hooks, "10-a", f'printf "%s" "$MOETUNED_MESSAGE" >{out}')
    assert run(hooks, message=HOSTILE + "\0end", backend=HOSTILE)[0].ok
    assert out.read_text() == HOSTILE + "end"
    assert not (tmp_path / "pwned").exists()
    assert not pathlib.Path("/pwned").exists()


@given(st.text(), st.text(), st.floats())
def test_any_event_has_an_environment_that_can_be_given(message, backend, wall):
    for name, value in environment(event(message=message, backend=backend, wall_seconds=wall)).items():
        assert "\0" not in value
        assert "=" not in name
        assert len(value) <= sink.VALUE_LIMIT


def test_what_is_no_hook_is_not_run(hooks):
    for name in (".hidden", "10-a~", "10-a.dpkg-old", "10-a.rpmsave", "10-a.swp"):
        add(hooks, name, "exit 1")
    add(hooks, "README", "exit 1", mode=0o644)
    (hooks / "directory").mkdir()
    assert run(hooks) == []


def test_failing_missing_and_broken_hooks_are_results(hooks):
    add(hooks, "10-fails", "echo out; echo err >&2; exit 7")
    (hooks / "20-gone").symlink_to(hooks / "nowhere")
    path = add(hooks, "30-no-interpreter", "")
    path.write_text("#!/nonexistent/interpreter\n")
    garbage = add(hooks, "40-garbage", "")
    garbage.write_bytes(b"\x7fELF rubbish")
    add(hooks, "50-killed", "kill -9 $$")
    add(hooks, "60-good", "exit 0")
    results = run(hooks)
    assert [item.ok for item in results] == [False, False, False, False, False, True]
    assert results[0].exit_code == 7
    assert "20-gone" in results[1].detail
    assert "ended by a signal" in results[4].detail


def test_output_goes_to_the_log_without_control_characters(hooks, caplog):
    caplog.set_level(logging.INFO)
    add(hooks, "10-a", "printf 'one\\033[31m\\ntwo\\n'; echo three >&2")
    run(hooks)
    lines = [record.message for record in caplog.records if record.message.startswith("hook 10-a:")]
    assert lines == ["hook 10-a: one?[31m", "hook 10-a: two", "hook 10-a: three"]


def test_output_is_bounded(hooks, caplog):
    add(hooks, "10-a", "head -c 3000000 /dev/zero | tr '\\0' x; exit 3")
    (result,) = run(hooks)
    assert result.exit_code == 3
    assert "the rest is dropped" in caplog.text
    assert len(caplog.text) < 200_000


def test_a_hook_that_hangs_is_ended_with_all_it_started(hooks, tmp_path):
    pids = tmp_path / "pids"
    add(hooks, "10-a", f"trap '' TERM\nsleep 600 & echo $! >{pids}\necho $$ >>{pids}\nwait")
    started = (bounded_program.TERM_SECONDS, bounded_program.KILL_SECONDS)
    try:
        bounded_program.TERM_SECONDS = 0.2
        (result,) = run(hooks, timeout="1s")
    finally:
        bounded_program.TERM_SECONDS, bounded_program.KILL_SECONDS = started
    assert not result.ok
    assert "longer than 1 s" in result.detail
    for pid in pids.read_text().split():
        assert has_ended_soon(int(pid))


def test_a_child_that_keeps_the_pipe_open_does_not_hold_the_sink(hooks, tmp_path):
    pid = tmp_path / "pid"
    add(hooks, "10-a", f"sleep 600 & echo $! >{pid}\necho done")
    try:
        (result,) = run(hooks, timeout="60s")
        assert result.ok
        assert result.duration_seconds < 60
    finally:
        os.kill(int(pid.read_text()), 9)


def test_a_hook_that_reads_nothing_gets_a_large_event(hooks):
    add(hooks, "10-a", "exec <&-; exit 0")
    add(hooks, "20-b", "wc -c >/dev/null")
    results = run(hooks, message="x" * 1_000_000)
    assert [item.ok for item in results] == [True, True]


@pytest.mark.parametrize("mode", [0o775, 0o757, 0o777])
def test_a_hook_others_can_write_is_refused_with_the_remedy(hooks, tmp_path, mode):
    path = add(hooks, "10-a", f"touch {tmp_path}/ran", mode=mode)
    (result,) = run(hooks)
    assert not result.ok
    assert f"chmod go-w {path}" in result.detail
    assert not (tmp_path / "ran").exists()


def test_a_directory_others_can_write_is_refused(hooks, tmp_path):
    add(hooks, "10-a", f"touch {tmp_path}/ran")
    hooks.chmod(0o777)
    (result,) = run(hooks)
    assert f"chmod go-w {hooks}" in result.detail
    hooks.chmod(0o1777)  # the sticky bit does not help: anybody could add a hook
    assert not run(hooks)[0].ok
    assert not (tmp_path / "ran").exists()


def test_a_directory_above_that_others_can_write_is_refused(tmp_path):
    above = tmp_path / "above"
    hooks = above / "hooks.d"
    hooks.mkdir(parents=True)
    add(hooks, "10-a", f"touch {tmp_path}/ran")
    above.chmod(0o777)
    (result,) = run(hooks)
    assert f"chmod go-w {above}" in result.detail
    assert not (tmp_path / "ran").exists()


def test_links_are_judged_by_what_they_lead_to(hooks, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (hooks / "10-good").symlink_to(add(elsewhere, "good", "exit 0"))
    (hooks / "20-bad").symlink_to(add(elsewhere, "bad", f"touch {tmp_path}/ran", mode=0o777))
    results = run(hooks)
    assert [item.ok for item in results] == [True, False]
    assert str(elsewhere / "bad") in results[1].detail
    assert not (tmp_path / "ran").exists()


@pytest.mark.kernel
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_files_of_others_are_refused(hooks, tmp_path):
    path = add(hooks, "10-a", f"touch {tmp_path}/ran")
    os.chown(path, 65534, 65534)
    (result,) = run(hooks)
    assert f"chown root {path}" in result.detail
    os.chown(path, 0, 0)
    os.chown(hooks, 65534, 65534)
    assert f"chown root {hooks}" in run(hooks)[0].detail
    assert not (tmp_path / "ran").exists()


def test_no_directory_says_how_to_make_it(tmp_path):
    (result,) = run(tmp_path / "none")
    assert not result.ok
    assert "install -d -m 755" in result.detail


def test_too_many_hooks(hooks, monkeypatch):
    monkeypatch.setattr(sink, "MAX_HOOKS", 2)
    for number in range(3):
        add(hooks, f"{number}0-a", "exit 0")
    results = run(hooks)
    assert [item.ok for item in results] == [True, True, False]


SHIPPED = pathlib.Path(__file__).parents[2] / "etc" / "hooks.d"


def shipped(name: str, directory: pathlib.Path, first: str) -> pathlib.Path:
    """The shipped hook with a line of the test's own put first."""
    shebang, _, rest = (SHIPPED / name).read_text().partition("\n")
    path = directory / name
    path.write_text(f"{shebang}\n{first}\n{rest}")
    path.chmod(0o755)
    return path


def test_shipped_hooks_are_executable_and_not_writable_by_others():
    for path in SHIPPED.iterdir():
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode & 0o111
        assert path.read_text().startswith("#!/bin/sh\n")


def test_shipped_log_line_writes_one_line_whatever_comes(hooks, tmp_path):
    log = tmp_path / "alerts.log"
    shipped("10-log-line", hooks, f"MOETUNED_LOG_FILE={log}")
    for message in ("glm thrashes", HOSTILE, "-n\x1b[31m\r\nsecond line"):
        assert run(hooks, message=message)[0].ok
    lines = log.read_text().split("\n")
    assert lines[0] == "2027-01-15T08:00:00Z thrash_begin backend=glm id=1-2 glm thrashes"
    assert len(lines) == 4
    assert "\x1b" not in log.read_text()
    assert "touch pwned" in lines[1]
    assert not pathlib.Path("/pwned").exists()


def test_shipped_tell_user_tells_and_is_quiet_for_other_events(hooks, tmp_path):
    """`wall` and `notify-send` are replaced by what records what they were given."""
    tools = tmp_path / "bin"
    tools.mkdir()
    add(tools, "wall", f"cat >>{tmp_path}/told")
    shipped("20-tell-user", hooks, f'PATH={tools}:$PATH; command() {{ [ "$2" = wall ]; }}')
    assert run(hooks, message=HOSTILE + "<b>&")[0].ok
    told = (tmp_path / "told").read_text()
    assert told.startswith("moetuned: memory is short\n")
    assert "touch pwned" in told
    assert "<" not in told
    assert not pathlib.Path("/pwned").exists()
    (tmp_path / "told").unlink()
    assert run(hooks, name=EventName.THRASH_END)[0].ok
    assert not (tmp_path / "told").exists()
    assert run(hooks, name=EventName.TEST, message="This is a test.")[0].ok
    assert (tmp_path / "told").read_text() == "moetuned: a test\nThis is a test.\n"
