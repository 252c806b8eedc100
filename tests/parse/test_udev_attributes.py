from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.parse.udev_attributes import UdevSetting, parse_udev_rules


def only(text: str) -> UdevSetting:
    (setting,) = parse_udev_rules(text, "f.rules")
    return setting


def test_a_rule_for_disks_that_turn() -> None:
    rule = 'ACTION=="add|change", SUBSYSTEM=="block", KERNEL=="sd[a-z]", ATTR{queue/rotational}=="1", ATTR{queue/scheduler}="bfq"'
    assert only(f"# disks\n{rule}\n") == UdevSetting(
        ("/sys/block/sd[a-z]/queue/scheduler",), "bfq", ('ATTR{queue/rotational}=="1"',), "f.rules", 2
    )


@pytest.mark.parametrize(
    ("rule", "paths", "value"),
    [
        ('KERNEL=="sda|nvme*", ATTR{bdi/read_ahead_kb}="4096"', ("sda/bdi", "nvme*/bdi"), "4096"),
        ('SUBSYSTEM=="block" ATTR{queue/read_ahead_kb}:="128"', ("*/queue",), "128"),
        ('KERNEL=="sda",ATTR{queue/read_ahead_kb}="$env{RA}"', ("sda/queue",), None),
    ],
)
def test_read_ahead_of_disks(rule: str, paths: tuple[str, ...], value: str | None) -> None:
    setting = only(rule)
    assert setting.paths == tuple(f"/sys/block/{path}/read_ahead_kb" for path in paths)
    assert setting.value == value


def test_a_bdi_by_its_number_and_any() -> None:
    assert only('SUBSYSTEM=="bdi", KERNEL=="8:0", ATTR{read_ahead_kb}="64"').paths == (
        "/sys/class/bdi/8:0/read_ahead_kb",
    )
    assert only('SUBSYSTEM=="bdi", ATTR{read_ahead_kb}="64"').paths == ("/sys/class/bdi/*/read_ahead_kb",)


def test_a_sysctl_and_a_command() -> None:
    assert only('SUBSYSTEM=="module", SYSCTL{vm/swappiness}="1"').paths == ("/proc/sys/vm/swappiness",)
    command = only("""KERNEL=="sda", RUN+="/bin/sh -c 'echo 16 > /sys/block/%k/queue/nr_requests'" """)
    blockdev = only('KERNEL=="sd*", RUN+="/sbin/blockdev --setra 8192 /dev/%k"')
    assert (blockdev.paths, blockdev.value) == (("/sys/block/sd*/queue/read_ahead_kb",), "4096")
    assert (command.paths, command.value) == (("/sys/block/sda/queue/nr_requests",), None)


def test_a_rule_over_two_lines_has_the_number_of_the_first() -> None:
    setting = only('\nKERNEL!="loop*", \\\n  ATTR{queue/nr_requests}="64"\n')
    assert (setting.line, setting.conditions) == (2, ('KERNEL!="loop*"',))


@pytest.mark.parametrize(
    "rule",
    [
        '#ATTR{queue/scheduler}="none"',
        'ATTR{queue/scheduler}=="none", SYMLINK+="x"',
        'ATTR{queue/scheduler}="none", garbage',
        'ATTR{power/control}="auto"',
        'LABEL="end"',
        'ATTR{queue/scheduler}="none',
        'ATTR{queue/scheduler}-="none"',
        "",
    ],
)
def test_other_rules_set_nothing(rule: str) -> None:
    assert parse_udev_rules(rule, "f") == ()


@given(st.text())
def test_any_text_is_answered(text: str) -> None:
    parse_udev_rules(text, "f")


@given(st.text(st.sampled_from('ATTRKERNEL{}="|,\\ \n%/queue/scheduler'), max_size=80))
def test_text_that_looks_like_rules_is_answered(text: str) -> None:
    for setting in parse_udev_rules(text, "f"):
        assert setting.paths
