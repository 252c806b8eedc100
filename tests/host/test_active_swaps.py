from __future__ import annotations

import os
from pathlib import Path

import pytest

from moetuned.host.active_swaps import is_same_file, read_backings, read_swaps, read_zswap
from moetuned.host.fs import RealFS
from moetuned.schema.swap import ActiveSwap

HEAD = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"


def tree(root: Path, files: dict[str, str]) -> RealFS:
    for path, text in files.items():
        place = root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    return RealFS(str(root))


def test_a_kernel_without_swap(tmp_path: Path) -> None:
    assert read_swaps(RealFS(str(tmp_path))) is None
    assert read_swaps(tree(tmp_path, {"/proc/swaps": HEAD})) == ()


@pytest.mark.parametrize(("text", "on"), [("Y\n", True), ("N\n", False), ("1\n", True), ("", None), (None, None)])
def test_zswap(tmp_path: Path, text: str | None, on: bool | None) -> None:
    fs = tree(tmp_path, {} if text is None else {"/sys/module/zswap/parameters/enabled": text})
    assert read_zswap(fs) is on


def test_what_is_under_swaps_that_cannot_be_found_is_unknown_with_a_reason(tmp_path: Path) -> None:
    absent = ActiveSwap(str(tmp_path / "elsewhere"), "file", 4096, 0, -2)
    zram, unknown = read_backings((ActiveSwap("/dev/zram5", "partition", 4096, 0, 1), absent))
    assert zram.zram
    assert (unknown.zram, unknown.rotational) == (False, None)
    assert "elsewhere" in (unknown.unknown or "")


def test_the_same_file_under_two_names(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("")
    os.link(tmp_path / "a", tmp_path / "b")
    assert is_same_file(ActiveSwap(str(tmp_path / "b"), "file", 1, 0, 0), str(tmp_path / "a"))
    assert not is_same_file(ActiveSwap(str(tmp_path / "b"), "partition", 1, 0, 0), str(tmp_path / "a"))
    assert not is_same_file(ActiveSwap(str(tmp_path / "c"), "file", 1, 0, 0), str(tmp_path / "a"))


def test_a_file_that_has_the_name_of_a_deleted_swap_is_not_that_swap(tmp_path: Path) -> None:
    path = tmp_path / "swapfile"
    path.write_text("")
    (gone,) = read_swaps(tree(tmp_path, {"/proc/swaps": f"{HEAD}{path}\\040(deleted) file 1000 0 -2\n"})) or ()
    assert gone.name == str(path)
    assert not is_same_file(gone, str(path))
