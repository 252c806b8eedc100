from __future__ import annotations

import pytest
from fakes.fake_kernel import BOOT_ID
from tuning_scenes import SPECS

from moetuned.schema.tunable import Bound, Cell, Codec, Place, Wanted
from moetuned.state import tuning_views as views
from moetuned.state.undo_records import Held, SideEffect, Yielded

PATH = "/proc/sys/vm/vfs_cache_pressure"
PLACE = Place(PATH, Codec.INTEGER)
WANTED = Wanted(SPECS[-1], Cell(PATH, "50"), "profile moe-offload", Bound.AT_MOST, by_profile=True)
HELD = Held("vm.vfs_cache_pressure", PLACE, Cell(PATH, "100"), Cell(PATH, "50"), (Cell(PATH, "50"),), 1, 1)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        (PATH, "vm.vfs_cache_pressure"),
        ("/proc/sys/vm/min_free_kbytes", "vm.min_free_kbytes"),
        ("/sys/block/vda/queue/nr_requests", "nr_requests vda"),
        ("/sys/fs/cgroup/a/memory.low", "/sys/fs/cgroup/a/memory.low"),
    ],
)
def test_what_people_call_a_place(path: str, name: str) -> None:
    assert views.show_place(Place(path, Codec.INTEGER)) == name


def test_a_bound_is_shown_with_the_value() -> None:
    assert views.show_wanted(WANTED) == "at-most 50"
    assert views.held_view(HELD, "drifted", None, "").wanted == "50"
    assert views.held_view(HELD, "drifted", None, "", WANTED).wanted == "at-most 50"


def test_the_words() -> None:
    now = Cell(PATH, "77")
    assert views.drifted(HELD, now).detail == "moetuned had set 50, somebody changed it to 77; left alone"
    assert views.content(HELD, now, WANTED).detail.endswith("to 77; profile moe-offload is content with that")
    record = Yielded(
        boot_id=BOOT_ID,
        seq=1,
        tunable=HELD.tunable,
        place=PLACE,
        value=now,
        intended=HELD.intended,
        bound=Bound.AT_MOST,
    )
    assert views.yielded_view(record, now, WANTED).detail == (
        "somebody changed it to 77 after moetuned had set it; moetuned leaves it alone until `moetunectl tune apply`"
    )
    assert views.adjusted(WANTED, Cell(PATH, "64"), HELD.original).detail == "the kernel made 64 of 50"
    side = SideEffect(PLACE, Cell(PATH, "1"), Cell(PATH, "2"))
    assert "it was 2 since moetuned set" in views.side_drifted(HELD, side, now).detail
    left = views.side_left(HELD, side, now)
    assert (left.name, left.state, left.now, left.original) == ("vm.vfs_cache_pressure", "drifted", "77", "1")
    same = SideEffect(PLACE, Cell(PATH, "1"), Cell(PATH, "1"))
    assert views.side_drifted(HELD, same, now).detail.startswith("somebody changed it to 77 after moetuned had set")


def test_what_is_taken_at_open_says_so() -> None:
    view = views.view_of(WANTED, "applied", None, None, "")
    assert views.told(view, PLACE) is view
    taken = Place(PATH, Codec.INTEGER, taken_at_open=True)
    assert views.told(view, taken).detail == views.TAKEN_AT_OPEN
    assert views.told(views.view_of(WANTED, "applied", None, None, "why"), taken).detail.startswith("why; restart")


def test_a_twin_shows_its_name() -> None:
    assert views.show_cell(Cell("/proc/sys/vm/dirty_bytes", "4096")) == "dirty_bytes=4096"
    assert views.show_cell(Cell("/proc/sys/vm/dirty_ratio", "4")) == "4"
    assert views.show_cell(None) is None
