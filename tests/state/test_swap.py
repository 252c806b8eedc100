from __future__ import annotations

import errno
from collections.abc import Iterator

import pytest
from fakes.fake_swap import GIB, FakeMachine, FakeSwapHost, Fuse, state_disk

from moetuned.schema.snapshot import TunableView
from moetuned.schema.swap import Swap
from moetuned.state import swap

STATE = "/state"
PATH = "/data/swapfile"
NAME = f"swap file {PATH}"
BOTH = Swap(file=PATH, size="4GiB", zram="1GiB")


@pytest.fixture
def machine() -> Iterator[FakeMachine]:
    made = FakeMachine()
    with state_disk(made, Fuse()):
        yield made


@pytest.fixture
def host(machine: FakeMachine) -> FakeSwapHost:
    return FakeSwapHost(machine)


def states(views: tuple[TunableView, ...]) -> dict[str, str]:
    assert len({view.name for view in views}) == len(views)
    return {view.name: view.state for view in views}


def test_plan_apply_verify_rollback(machine: FakeMachine, host: FakeSwapHost) -> None:
    steps = swap.plan(host, STATE, BOTH)
    assert states(swap.planned_views(steps)) == {"swap zram": "planned", NAME: "planned"}
    assert states(swap.verify(host, STATE, steps)) == {"swap zram": "planned", NAME: "planned"}
    assert (host.calls, machine.disk) == ([], {})

    views = swap.apply_slowly(host, STATE, BOTH)
    assert states(views) == {"swap zram": "applied", NAME: "applied"}
    assert [(view.wanted, view.now, view.original) for view in views] == [
        ("1.0 GiB, priority 100", "1.0 GiB", "none"),
        ("4.0 GiB", "4.0 GiB", "none"),
    ]
    calls = len(host.calls)
    assert states(swap.apply_slowly(host, STATE, BOTH)) == states(views)
    assert len(host.calls) == calls
    kept = swap.plan(host, STATE, BOTH)
    assert states(swap.planned_views(kept)) == {"swap zram": "applied", NAME: "applied"}
    for each in (steps, kept):
        assert states(swap.verify(host, STATE, each, views)) == states(views)
    assert swap.verify(host, STATE, steps, views) == views

    assert states(swap.rollback_slowly(host, STATE)) == {NAME: "restored", "swap zram": "restored"}
    assert (machine.files, machine.zram, machine.disk) == ({}, {}, {})
    assert swap.rollback_slowly(host, STATE) == ()


def test_nothing_wished_for_touches_nothing(machine: FakeMachine, host: FakeSwapHost) -> None:
    assert swap.plan(host, STATE, None) == swap.apply_slowly(host, STATE, None) == swap.verify(host, STATE, ()) == ()
    assert (host.calls, machine.disk) == ([], {})


def test_a_wish_that_is_gone_is_taken_away(machine: FakeMachine, host: FakeSwapHost) -> None:
    swap.apply_slowly(host, STATE, BOTH)
    left = swap.verify(host, STATE, ())
    assert states(left) == {NAME: "applied", "swap zram": "applied"}
    assert all("no longer wanted" in view.detail for view in left)
    assert states(swap.apply_slowly(host, STATE, Swap(zram="1GiB"))) == {NAME: "restored", "swap zram": "applied"}
    assert states(swap.apply_slowly(host, STATE, None)) == {"swap zram": "restored"}
    assert machine.disk == {}


def test_another_size_or_path_takes_the_old_away_first(machine: FakeMachine, host: FakeSwapHost) -> None:
    swap.apply_slowly(host, STATE, BOTH)
    views = swap.apply_slowly(host, STATE, Swap(file=PATH, size="2GiB", zram="2GiB"))
    assert states(views) == {NAME: "applied", "swap zram": "applied"}
    file = machine.at(PATH)
    assert file is not None
    assert file.size_bytes == 2 * GIB
    assert machine.zram is not None
    assert [device.size_bytes for device in machine.zram.values()] == [2 * GIB]
    views = swap.apply_slowly(host, STATE, Swap(file="/other", size="2GiB"))
    assert states(views) == {NAME: "restored", "swap zram": "restored", "swap file /other": "applied"}
    assert [path for _, path in machine.files] == ["/other"]


def test_an_old_one_that_does_not_fit_is_kept_and_no_new_one_made(machine: FakeMachine, host: FakeSwapHost) -> None:
    swap.apply_slowly(host, STATE, BOTH)
    file = machine.at(PATH)
    assert file is not None
    file.used_bytes, machine.available_bytes = 3 * GIB, GIB
    views = swap.apply_slowly(host, STATE, Swap(file="/other", size="2GiB", zram="1GiB"))
    assert states(views) == {NAME: "failed", "swap file /other": "failed", "swap zram": "applied"}
    assert "kept on: it holds 3.0 GiB" in next(view.detail for view in views if view.name == NAME)
    assert file.on
    machine.available_bytes = 20 * GIB
    views = swap.apply_slowly(host, STATE, Swap(file="/other", size="2GiB", zram="1GiB"))
    assert states(views) == {NAME: "restored", "swap file /other": "applied", "swap zram": "applied"}


def test_what_cannot_be_replaced_is_kept(machine: FakeMachine, host: FakeSwapHost) -> None:
    swap.apply_slowly(host, STATE, BOTH)
    views = swap.apply_slowly(host, STATE, Swap(file=PATH, size="1TiB", zram="200GiB"))
    assert states(views) == {NAME: "skipped", "swap zram": "skipped"}
    assert all("is kept" in view.detail for view in views)
    assert machine.made_by("moetuned") == [PATH, "zram0"]


def test_what_is_refused_is_skipped_with_its_reason(machine: FakeMachine, host: FakeSwapHost) -> None:
    machine.rotational, machine.zram_exists = True, False
    views = swap.apply_slowly(host, STATE, BOTH)
    assert states(views) == {NAME: "skipped", "swap zram": "skipped"}
    assert "rotational" in views[1].detail
    assert (machine.files, machine.disk, host.calls) == ({}, {}, [])


def test_somebody_elses_zram_is_already_there(machine: FakeMachine, host: FakeSwapHost) -> None:
    number = machine.add_zram("other")
    assert machine.zram is not None
    machine.zram[number].on, machine.zram[number].size_bytes = True, GIB
    views = swap.apply_slowly(host, STATE, Swap(zram="auto"))
    assert states(views) == {"swap zram": "already"}
    assert states(swap.verify(host, STATE, swap.plan(host, STATE, Swap(zram="auto")))) == {"swap zram": "already"}
    assert swap.rollback_slowly(host, STATE) == ()
    assert machine.zram[number].on


def test_after_a_boot_the_file_is_adopted_and_zram_made_anew(machine: FakeMachine, host: FakeSwapHost) -> None:
    swap.apply_slowly(host, STATE, BOTH)
    file = machine.at(PATH)
    machine.reboot()
    steps = swap.plan(host, STATE, BOTH)
    assert states(swap.verify(host, STATE, steps)) == {"swap zram": "planned", NAME: "planned"}
    assert states(swap.apply_slowly(host, STATE, BOTH)) == {"swap zram": "applied", NAME: "applied"}
    assert machine.at(PATH) is file
    assert machine.made_by("moetuned") == [PATH, "zram0"]


def test_after_a_boot_that_only_rolls_back(machine: FakeMachine, host: FakeSwapHost) -> None:
    swap.apply_slowly(host, STATE, BOTH)
    machine.reboot()
    views = swap.rollback_slowly(host, STATE)
    assert states(views) == {NAME: "restored", "swap zram": "restored"}
    assert [view.detail for view in views] == ["swapped off and removed", "gone with the reboot"]
    assert (machine.files, machine.disk) == ({}, {})


def test_a_file_that_somebody_put_there_is_said_once_and_left_alone(machine: FakeMachine, host: FakeSwapHost) -> None:
    swap.apply_slowly(host, STATE, Swap(file=PATH, size="4GiB"))
    del machine.files[machine.key(PATH)]
    other = machine.put(PATH, "other", size_bytes=GIB)
    wish = Swap(file=PATH, size="4GiB")
    views = swap.apply_slowly(host, STATE, wish)
    assert states(views) == {NAME: "drifted"}
    assert states(swap.verify(host, STATE, swap.plan(host, STATE, wish), views)) == {NAME: "drifted"}
    views = swap.apply_slowly(host, STATE, wish)
    assert states(views) == {NAME: "skipped"}
    assert "not made by moetuned" in views[0].detail
    assert swap.rollback_slowly(host, STATE) == ()
    assert machine.at(PATH) is other


def test_a_failure_is_remembered_by_verify(host: FakeSwapHost) -> None:
    host.fails = {"fill_file": errno.ENOSPC}
    wish = Swap(file=PATH, size="4GiB")
    views = swap.apply_slowly(host, STATE, wish)
    assert swap.verify(host, STATE, swap.plan(host, STATE, wish), views) == views


def test_a_damaged_record_stops_everything(machine: FakeMachine, host: FakeSwapHost) -> None:
    machine.disk[f"{STATE}/swap.json"] = b"rubbish"
    (step, _) = swap.plan(host, STATE, BOTH)
    assert (step.kind, "damaged" in step.reason) == ("skipped", True)
    for views in (
        swap.apply_slowly(host, STATE, BOTH),
        swap.verify(host, STATE, swap.plan(host, STATE, BOTH)),
        swap.rollback_slowly(host, STATE),
    ):
        assert {view.state for view in views} == {"failed"}
        assert all("damaged" in view.detail for view in views)
    assert host.calls == []


def test_without_a_boot_id_nothing_is_done(host: FakeSwapHost, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable() -> str:
        raise OSError(errno.ENOENT, "No such file or directory")

    monkeypatch.setattr(host, "boot_id", unreadable)
    assert set(states(swap.apply_slowly(host, STATE, BOTH)).values()) == {"failed"}
    assert set(states(swap.rollback_slowly(host, STATE)).values()) == {"failed"}
    assert host.calls == []


def test_another_priority_waits_for_a_file_made_anew(machine: FakeMachine, host: FakeSwapHost) -> None:
    swap.apply_slowly(host, STATE, Swap(file=PATH, size="4GiB", priority=3))
    for boot in (1, 2):
        assert machine.boot == boot
        (view,) = swap.apply_slowly(host, STATE, Swap(file=PATH, size="4GiB", priority=9))
        assert view.state == "applied"
        assert "its priority stays 3 until" in view.detail
        machine.reboot()


def test_a_removal_that_was_cut_short_and_does_not_fit_now_is_tried_once(
    machine: FakeMachine, host: FakeSwapHost
) -> None:
    swap.apply_slowly(host, STATE, BOTH)
    machine.disk[f"{STATE}/swap.json"] = machine.disk[f"{STATE}/swap.json"].replace(b'"made"', b'"removing"')
    host.fails = {"swap_off": errno.ETIMEDOUT}
    host.calls.clear()
    views = swap.apply_slowly(host, STATE, Swap(file="/other", size="2GiB"))
    assert states(views) == {NAME: "failed", "swap zram": "failed", "swap file /other": "failed"}
    assert host.calls == ["swap_off", "swap_off"]
    host.fails = {}
    assert states(swap.apply_slowly(host, STATE, BOTH)) == {"swap zram": "applied", NAME: "applied"}


def test_progress_and_patience_reach_the_kernel(machine: FakeMachine, host: FakeSwapHost) -> None:
    swap.apply_slowly(host, STATE, BOTH)
    file = machine.at(PATH)
    assert file is not None
    file.used_bytes = GIB
    heard: list[int] = []
    swap.rollback_slowly(host, STATE, heard.append, 60)
    assert heard == [GIB, 0]


def test_whether_there_is_anything_to_give_back(tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = tmp_path_factory.mktemp("state")
    assert not swap.exists(str(directory))
    (directory / "swap.json").write_text("{}")
    assert swap.exists(str(directory))
