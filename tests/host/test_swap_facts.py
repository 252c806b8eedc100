from __future__ import annotations

import os
from pathlib import Path

import pytest

from moetuned.host import swap_facts
from moetuned.host.fs import RealFS
from moetuned.host.swap_facts import mount_point, read_facts, rights_refusal

FIRST = {"/proc/self/ns/pid": "pid:[4026531836]", "/proc/self/ns/user": "user:[4026531837]"}
ALL_CAPABILITIES = "CapEff:\t000001ffffffffff\n"


def tree(root: Path, files: dict[str, str]) -> RealFS:
    for path, text in files.items():
        place = root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    return RealFS(str(root))


def test_on_a_plain_machine_nothing_is_refused(tmp_path: Path) -> None:
    assert rights_refusal(tree(tmp_path, {"/proc/self/status": ALL_CAPABILITIES}), FIRST.__getitem__) is None


@pytest.mark.parametrize("kind", ["pid", "user"])
def test_a_container(tmp_path: Path, kind: str) -> None:
    fs = tree(tmp_path, {"/proc/self/status": ALL_CAPABILITIES})
    inside = {**FIRST, f"/proc/self/ns/{kind}": f"{kind}:[4026532001]"}
    assert f"a {kind} namespace of its own" in (rights_refusal(fs, inside.__getitem__) or "")


def test_a_kernel_without_namespaces(tmp_path: Path) -> None:
    def readlink(path: str) -> str:
        raise FileNotFoundError(path)

    assert rights_refusal(tree(tmp_path, {"/proc/self/status": ALL_CAPABILITIES}), readlink) is None


def test_root_without_the_capability(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fs = tree(tmp_path, {"/proc/self/status": f"Name:\tx\nCapEff:\t{0x1FFFFFFFFFF & ~(1 << 21):016x}\n"})
    monkeypatch.setattr(swap_facts.os, "geteuid", lambda: 0)
    assert "no CAP_SYS_ADMIN" in (rights_refusal(fs, FIRST.__getitem__) or "")
    # Somebody who only looks is not refused a plan.
    monkeypatch.setattr(swap_facts.os, "geteuid", lambda: 1000)
    assert rights_refusal(fs, FIRST.__getitem__) is None


def test_the_mount_of_a_path_that_need_not_exist(tmp_path: Path) -> None:
    lines = f"27 1 254:0 / / rw - ext4 /dev/vda rw\n40 27 7:0 / {tmp_path}/data rw - xfs /dev/loop0 rw\n"
    fs = tree(tmp_path, {"/proc/self/mountinfo": lines})
    assert mount_point(f"{tmp_path}/data/deep/swapfile", fs) == f"{tmp_path}/data"
    assert mount_point(f"{tmp_path}/database/swapfile", fs) == "/"
    assert mount_point("/x/y", RealFS(str(tmp_path / "none"))) is None


def test_facts_of_this_machine(tmp_path: Path) -> None:
    path = tmp_path / "swapfile"
    facts = read_facts(str(path), state_directory=str(tmp_path))
    assert facts.memory_bytes is not None
    assert facts.memory_bytes > 1 << 28
    assert facts.file is not None
    assert facts.file.filesystem
    assert facts.file.free_bytes is not None
    assert facts.file.total_bytes is not None
    assert 0 < facts.file.free_bytes < facts.file.total_bytes
    assert (facts.file.taken, facts.file.active) == (False, False)
    path.write_text("")
    again = read_facts(str(path), state_directory=str(tmp_path))
    assert again.file is not None
    assert again.file.taken


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: the directories must be root's")
def test_the_state_directory_need_not_be_there_yet_others_must(tmp_path: Path) -> None:
    state = str(tmp_path / "moetuned")
    for path, well in ((f"{state}/swapfile", True), (str(tmp_path / "other" / "swapfile"), False)):
        place = read_facts(path, state_directory=state).file
        assert place is not None
        assert (place.problem is None) is well


def test_without_a_wished_file_no_place_is_looked_at() -> None:
    assert read_facts(None, state_directory="/var/lib/moetuned", look_for_zram=False).file is None


@pytest.mark.parametrize(("name", "in_use"), [("swapfile", True), ("swapfile\\040(deleted)", False), ("other", False)])
def test_a_place_is_in_use_by_a_swap_of_that_name_that_was_not_deleted(tmp_path: Path, name: str, in_use: bool) -> None:
    fs = tree(tmp_path, {"/proc/swaps": f"Filename Type Size Used Priority\n/gone/{name} file 1000 0 -2\n"})
    place = read_facts("/gone/swapfile", state_directory=str(tmp_path), look_for_zram=False, fs=fs).file
    assert place is not None
    assert place.active is in_use
