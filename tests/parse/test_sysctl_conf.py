from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.parse.sysctl_conf import Assignment, in_force, key_path, matches, parse_sysctl_conf

KEYS = ["vm/dirty_ratio", "vm/swappiness", "net/ipv4/conf/lo/tag"]


def parsed(*texts: str) -> list[Assignment]:
    return [line for number, text in enumerate(texts) for line in parse_sysctl_conf(text, f"{number}.conf")]


def values(*texts: str) -> dict[str, str | None]:
    found = in_force(parsed(*texts), lambda pattern: [key for key in KEYS if matches(pattern, key)])
    return {key: assignment.value for key, assignment in found.items()}


@pytest.mark.parametrize(
    ("key", "path"),
    [
        ("vm.dirty_ratio", "vm/dirty_ratio"),
        ("vm/dirty_ratio", "vm/dirty_ratio"),
        ("/vm//dirty_ratio", "vm/dirty_ratio"),
        ("net.ipv4.conf.enp3s0/200.forwarding", "net/ipv4/conf/enp3s0.200/forwarding"),
        ("net/ipv4/conf/enp3s0.200/forwarding", "net/ipv4/conf/enp3s0.200/forwarding"),
        ("key", "key"),
        ("", ""),
    ],
)
def test_dots_and_slashes_of_a_key(key: str, path: str) -> None:
    assert key_path(key) == path


def test_lines_with_their_numbers() -> None:
    text = "# vm.a = 1\n;vm.b=2\n\n  vm.dirty_ratio =  20 \n-vm.swappiness=1\nnonsense\n= 3\nkernel.printk = 4 4 1 7\n-net.*.x\n"
    assert parsed(text) == [
        Assignment("vm/dirty_ratio", "20", "0.conf", 4),
        Assignment("vm/swappiness", "1", "0.conf", 5),
        Assignment("kernel/printk", "4 4 1 7", "0.conf", 8),
        Assignment("net/*/x", None, "0.conf", 9),
    ]


def test_the_last_file_wins() -> None:
    assert values("vm.dirty_ratio=1\nvm.swappiness=1", "vm/dirty_ratio = 2") == {
        "vm/dirty_ratio": "2",
        "vm/swappiness": "1",
    }


def test_a_glob_leaves_named_and_excluded_keys_alone_and_the_later_glob_wins() -> None:
    assert values("vm.* = 5\nvm.dirty_ratio = 7") == {"vm/dirty_ratio": "7", "vm/swappiness": "5"}
    assert values("vm.dirty_ratio = 7\nvm.* = 5") == {"vm/dirty_ratio": "7", "vm/swappiness": "5"}
    assert values("-vm.dirty_ratio", "vm.*=5") == {"vm/swappiness": "5"}
    assert values("vm.*=5", "vm.s*=6") == {"vm/dirty_ratio": "5", "vm/swappiness": "6"}
    assert values("vm.dirty_ratio=7", "-vm.dirty_ratio") == {}


def test_a_repeated_line_keeps_its_earlier_place() -> None:
    # as systemd-sysctl 252 does: the second `vm.* = 5` changes nothing, so that vm.s* stays the later one
    assert values("vm.* = 5\nvm.s* = 6\nvm.* = 5")["vm/swappiness"] == "6"
    assert values("vm.* = 5\nvm.s* = 6\nvm.* = 4")["vm/swappiness"] == "4"


@pytest.mark.parametrize(
    ("pattern", "key", "yes"),
    [
        ("vm/*", "vm/dirty_ratio", True),
        ("vm/*", "vm/a/b", False),
        ("*", "vm/a", False),
        ("vm/dirty_[rb]*", "vm/dirty_ratio", True),
        ("vm/dirty_?atio", "vm/dirty_ratio", True),
        ("vm/dirty_ratio", "vm/dirty_ratio2", False),
    ],
)
def test_globs(pattern: str, key: str, yes: bool) -> None:
    assert matches(pattern, key) is yes


@given(st.lists(st.text(), max_size=4))
def test_any_text_is_answered(texts: list[str]) -> None:
    for assignment in parsed(*texts):
        assert assignment.key
        assert not assignment.key.startswith("/")
        assert assignment.line >= 1
    in_force(parsed(*texts), lambda _pattern: KEYS)


@given(st.lists(st.tuples(st.sampled_from(KEYS), st.integers(0, 9)), min_size=1))
def test_plain_keys_behave_as_a_table(lines: list[tuple[str, int]]) -> None:
    text = "\n".join(f"{key} = {value}" for key, value in lines)
    assert values(text) == {key: str(value) for key, value in lines}
