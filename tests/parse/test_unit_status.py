"""What `systemctl show` prints: real answers, and rubbish."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.parse.unit_status import PROPERTIES, UnitStatus, parse_unit_status

RUNNING = """\
Type=simple
Restart=on-failure
MainPID=85
Result=success
ExecMainStartTimestampMonotonic=34014547060
ExecMainExitTimestampMonotonic=0
ExecMainCode=0
ExecMainStatus=0
EnvironmentFiles=/etc/default/llama (ignore_errors=no)
EnvironmentFiles=/run/moetuned/backends/llama.env (ignore_errors=yes)
Id=llama.service
LoadState=loaded
ActiveState=active
FragmentPath=/etc/systemd/system/llama.service
DropInPaths=/etc/systemd/system/llama.service.d/override.conf /etc/systemd/system/llama.service.d/zz-moetuned.conf
ActiveExitTimestampMonotonic=0
Job=
NeedDaemonReload=no
"""


def test_a_unit_that_runs() -> None:
    assert parse_unit_status(RUNNING) == UnitStatus(
        name="llama.service",
        load_state="loaded",
        active_state="active",
        result="success",
        type="simple",
        restart="on-failure",
        main_pid=85,
        main_status=0,
        main_started_at=34014547060,
        fragment="/etc/systemd/system/llama.service",
        drop_ins=(
            "/etc/systemd/system/llama.service.d/override.conf",
            "/etc/systemd/system/llama.service.d/zz-moetuned.conf",
        ),
        environment_files=("/etc/default/llama", "/run/moetuned/backends/llama.env"),
    )


def test_a_job_an_end_and_files_that_changed() -> None:
    text = (
        RUNNING.replace("Job=", "Job=417")
        .replace("ExecMainCode=0", "ExecMainCode=2")
        .replace("ExecMainStatus=0", "ExecMainStatus=9")
    )
    status = parse_unit_status(text.replace("NeedDaemonReload=no", "NeedDaemonReload=yes"))
    assert status is not None
    assert (status.job, status.main_code, status.main_status, status.needs_reload) == (True, 2, 9, True)


@pytest.mark.parametrize("path", ['"/etc/a b.conf"', "/etc/a\\x20b.conf", "relative.conf", "/etc/a  /etc/b"])
def test_drop_ins_whose_names_are_not_understood(path: str) -> None:
    lines = [f"DropInPaths={path}" if line.startswith("DropInPaths") else line for line in RUNNING.splitlines()]
    status = parse_unit_status("\n".join(lines))
    assert status is not None
    assert status.drop_ins is None


@pytest.mark.parametrize("missing", ["Id", "LoadState", "ActiveState"])
def test_an_answer_without_the_state_is_none(missing: str) -> None:
    lines = [line for line in RUNNING.splitlines() if not line.startswith(f"{missing}=")]
    assert parse_unit_status("\n".join(lines)) is None
    assert parse_unit_status("") is None


@given(st.lists(st.tuples(st.sampled_from([*PROPERTIES, "Other", ""]), st.text(max_size=40))))
def test_no_answer_is_too_much(lines: list[tuple[str, str]]) -> None:
    status = parse_unit_status("\n".join(f"{name}={value}" for name, value in lines))
    if status is not None:
        assert status.main_pid is None or 0 < status.main_pid < 10**20
