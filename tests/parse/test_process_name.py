from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.parse.process_name import NAME_LENGTH, UNIT_LENGTH, cgroup_paths, printable_name, services_of, unit_of


@pytest.mark.parametrize(
    ("comm", "expected"),
    [
        ("rsync\n", "rsync"),
        ("a) b\n", "a) b"),
        ("x\n\x1b[2J\n", "x??[2J"),
        ("\n", "?"),
        ("kopieren über\n", "kopieren über"),
    ],
)
def test_a_name_can_be_printed(comm: str, expected: str) -> None:
    assert printable_name(comm) == expected


@pytest.mark.parametrize(
    ("cgroup", "expected"),
    [
        ("0::/system.slice/backup.service\n", "backup.service"),
        ("0::/user.slice/user-1000.slice/user@1000.service/app.slice/app-firefox-77.scope\n", "app-firefox-77.scope"),
        ("12:memory:/docker/" + "a" * 64 + "\n0::/\n", "docker container aaaaaaaaaaaa"),
        ("5:memory:/system.slice/cron.service\n1:name=systemd:/system.slice/cron.service\n", "cron.service"),
        ("0::/init.scope\n", None),
        ("0::/\n", None),
        ("rubbish", None),
    ],
)
def test_the_unit_or_container(cgroup: str, expected: str | None) -> None:
    assert unit_of(cgroup) == expected


def test_paths_of_all_hierarchies() -> None:
    assert cgroup_paths("2:memory:/a/b\n1:cpu:/\n0::/c\n") == {"/a/b", "/c"}


@given(st.text())
def test_whatever_it_holds_it_can_be_printed(text: str) -> None:
    assert printable_name(text).isprintable()
    assert len(printable_name(text)) <= NAME_LENGTH
    unit = unit_of(f"0::/{text}.service\n0::{text}")
    assert unit is None or (unit.isprintable() and len(unit) <= UNIT_LENGTH)
    assert isinstance(cgroup_paths(text), frozenset)
    assert all(each.endswith(".service") for each in services_of(f"0::/{text}\n{text}"))


@pytest.mark.parametrize(
    ("cgroup", "expected"),
    [
        ("0::/system.slice/glm.service\n", {"glm.service"}),
        ("12:memory:/machine\n1:name=systemd:/system.slice/glm.service/payload\n0::/\n", {"glm.service"}),
        ("0::/system.slice/system-b.slice/b@glm.service/libpod-payload-1\n", {"b@glm.service"}),
        ("0::/user.slice/user-1000.slice/user@1000.service/app.slice/glm.service\n", set()),
        ("0::/user.slice/user-1000.slice/session-2.scope\n", set()),
        ("", set()),
    ],
)
def test_services_of_the_system(cgroup: str, expected: set[str]) -> None:
    assert services_of(cgroup) == expected
