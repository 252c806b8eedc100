from __future__ import annotations

import errno
from collections.abc import Iterator

import pytest
from fakes.fake_swap import GIB, FakeMachine, FakeSwapHost, Fuse, state_disk

from moetuned.schema.snapshot import TunableView
from moetuned.schema.swap import Swap
from moetuned.state import swap, swap_record

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
    assert [step.kind for step in kept] == ["keep", "keep"]
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
    assert states(swap.verify(host, STATE, swap.plan(host, STATE, wish), views)) == {NAME: "yielded"}
    assert states(swap.apply_slowly(host, STATE, wish)) == {NAME: "yielded"}
    views = swap.apply_slowly(host, STATE, wish, by_hand=True)
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


FILE_OFF, FILE_GONE = "swapped off", "removed"


def by_somebody(machine: FakeMachine, what: str) -> None:
    """Somebody takes away the swap file that is on, and the zram device."""
    file = machine.at(PATH)
    assert file is not None
    assert machine.zram is not None
    file.on = False
    if what == FILE_GONE:
        del machine.files[machine.key(PATH)]
        machine.zram.clear()
    for device in machine.zram.values():
        device.on = False


@pytest.mark.parametrize("seen_by_a_look", [False, True])
@pytest.mark.parametrize("what", [FILE_OFF, FILE_GONE, "reset"])
def test_what_somebody_took_away_stays_theirs_until_a_person_asks(
    machine: FakeMachine, host: FakeSwapHost, what: str, seen_by_a_look: bool
) -> None:
    swap.apply_slowly(host, STATE, BOTH)
    by_somebody(machine, what)
    if what == "reset":
        assert machine.zram is not None
        machine.zram[0].size_bytes, machine.zram[0].uuid, machine.zram[0].blank = 0, None, True
    both = {NAME: "drifted", "swap zram": "drifted"}
    if seen_by_a_look:
        assert states(swap.verify(host, STATE, swap.plan(host, STATE, BOTH))) == both
        swap.confirm_drift(host, STATE)
    else:
        assert states(swap.apply_slowly(host, STATE, BOTH)) == both
    yielded = dict.fromkeys(both, "yielded")
    for _ in range(2):  # reloads, and restarts: nothing but the record is left of the process before
        assert states(swap.apply_slowly(host, STATE, BOTH)) == yielded
    views = swap.verify(host, STATE, swap.plan(host, STATE, BOTH))
    assert states(views) == yielded
    assert all("somebody" in view.detail and "tune apply" in view.detail for view in views)
    swap.rollback_slowly(host, STATE)
    assert machine.made_by("moetuned") == []
    assert states(swap.apply_slowly(host, STATE, BOTH)) == yielded
    assert states(swap.apply_slowly(host, STATE, BOTH, by_hand=True)) == dict.fromkeys(both, "applied")
    assert all(target.on for target in (machine.at(PATH), *(machine.zram or {}).values()) if target is not None)
    swap.rollback_slowly(host, STATE)
    assert machine.disk == {}


@pytest.mark.parametrize("what", [FILE_OFF, FILE_GONE])
def test_by_hand_reports_what_was_not_reported_yet_and_takes_it_up_the_next_time(
    machine: FakeMachine, host: FakeSwapHost, what: str
) -> None:
    swap.apply_slowly(host, STATE, BOTH)
    by_somebody(machine, what)
    views = swap.apply_slowly(host, STATE, BOTH, by_hand=True)
    assert {view.state for view in views} == {"drifted"}
    assert all("once more" in view.detail for view in views)
    assert {view.state for view in swap.apply_slowly(host, STATE, BOTH, by_hand=True)} == {"applied"}


@pytest.mark.parametrize("what", [FILE_OFF, FILE_GONE])
def test_the_config_or_another_boot_takes_up_what_was_yielded(
    machine: FakeMachine, host: FakeSwapHost, what: str
) -> None:
    swap.apply_slowly(host, STATE, BOTH)
    by_somebody(machine, what)
    swap.apply_slowly(host, STATE, BOTH)
    views = swap.apply_slowly(host, STATE, Swap(file=PATH, size="2GiB", zram="1GiB"))
    assert states(views) == {NAME: "applied", "swap zram": "yielded"}, "only what the config says otherwise"
    machine.reboot()
    assert set(states(swap.apply_slowly(host, STATE, Swap(file=PATH, size="2GiB", zram="1GiB"))).values()) == {
        "applied"
    }


def test_a_wish_that_is_gone_is_a_change_of_the_config(machine: FakeMachine, host: FakeSwapHost) -> None:
    swap.apply_slowly(host, STATE, BOTH)
    by_somebody(machine, FILE_GONE)
    assert set(states(swap.apply_slowly(host, STATE, None)).values()) == {"drifted"}
    assert machine.disk == {}
    assert set(states(swap.apply_slowly(host, STATE, BOTH)).values()) == {"applied"}


def test_what_somebody_swapped_on_again_is_as_it_was(machine: FakeMachine, host: FakeSwapHost) -> None:
    swap.apply_slowly(host, STATE, BOTH)
    by_somebody(machine, FILE_OFF)
    swap.apply_slowly(host, STATE, BOTH)
    for target in (machine.at(PATH), *(machine.zram or {}).values()):
        assert target is not None
        target.on = True
    assert set(states(swap.verify(host, STATE, swap.plan(host, STATE, BOTH))).values()) == {"applied"}
    assert set(states(swap.apply_slowly(host, STATE, BOTH)).values()) == {"applied"}
    assert b"yielded" not in machine.disk[f"{STATE}/swap.json"]


def test_what_moetuned_was_taking_away_itself_is_made_again(machine: FakeMachine, host: FakeSwapHost) -> None:
    """A swapoff goes on after its daemon was killed, and may end with the swap on or off."""
    swap.apply_slowly(host, STATE, BOTH)
    machine.disk[f"{STATE}/swap.json"] = machine.disk[f"{STATE}/swap.json"].replace(b'"made"', b'"removing"')
    machine.swaps_off_elsewhere = True
    views = swap.apply_slowly(host, STATE, BOTH)
    assert {view.state for view in views} == {"failed"}
    assert all("another process" in view.detail for view in views)
    assert set(states(swap.verify(host, STATE, swap.plan(host, STATE, BOTH))).values()) == {"planned"}
    swap.confirm_drift(host, STATE)
    machine.swaps_off_elsewhere = False
    by_somebody(machine, FILE_OFF)
    assert set(states(swap.verify(host, STATE, swap.plan(host, STATE, BOTH))).values()) == {"planned"}
    assert set(states(swap.apply_slowly(host, STATE, BOTH)).values()) == {"applied"}


def test_another_size_is_not_yet_applied(machine: FakeMachine, host: FakeSwapHost) -> None:
    swap.apply_slowly(host, STATE, BOTH)
    other = Swap(file=PATH, size="2GiB", zram="2GiB")
    assert set(states(swap.verify(host, STATE, swap.plan(host, STATE, other))).values()) == {"planned"}


def test_a_resize_on_a_full_disk_keeps_the_old_one(machine: FakeMachine, host: FakeSwapHost) -> None:
    swap.apply_slowly(host, STATE, BOTH)
    machine.disk_full = True
    views = swap.apply_slowly(host, STATE, Swap(file=PATH, size="2GiB", zram="2GiB"))
    assert states(views) == {NAME: "failed", "swap zram": "failed"}
    assert all("cannot be written" in view.detail for view in views)
    file = machine.at(PATH)
    assert file is not None
    assert (file.on, file.size_bytes, host.calls.count("swap_off")) == (True, 4 * GIB, 0)
    assert set(states(swap.verify(host, STATE, swap.plan(host, STATE, BOTH))).values()) == {"applied"}


def test_a_record_that_could_not_be_updated_is_said(
    machine: FakeMachine, host: FakeSwapHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    swap.apply_slowly(host, STATE, BOTH)

    def read_only(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    with monkeypatch.context() as patched:
        patched.setattr(swap_record, "write_durably", read_only)
        patched.setattr(swap_record, "remove_durably", read_only)
        views = swap.rollback_slowly(host, STATE)
    assert states(views) == {NAME: "restored", "swap zram": "restored", "swap record": "failed"}
    assert "swap.json could not be updated" in views[-1].detail
    assert machine.made_by("moetuned") == []


def test_what_only_root_may_read_is_skipped_and_said(host: FakeSwapHost, monkeypatch: pytest.MonkeyPatch) -> None:
    def hidden(path: str, _limit: int) -> bytes:
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr(swap_record, "read_private", hidden)
    steps = swap.plan(host, STATE, BOTH)
    assert {step.kind for step in steps} == {"skipped"}
    views = swap.verify(host, STATE, steps)
    assert set(states(views).values()) == {"skipped"}
    assert all("cannot be read: Permission denied" in view.detail for view in views)


def test_what_a_process_left_that_was_killed_while_it_wrote_is_cleared_up(
    machine: FakeMachine, host: FakeSwapHost
) -> None:
    for clear_up in (lambda: swap.apply_slowly(host, STATE, None), lambda: swap.rollback_slowly(host, STATE)):
        machine.disk[f"{STATE}/swap.json.new"] = b'{"half'
        swap.verify(host, STATE, ())
        assert machine.disk != {}, "who only looks changes nothing"
        assert clear_up() == ()
        assert machine.disk == {}


def test_one_that_nobody_wishes_for_stays_while_that_cannot_be_written_down(
    machine: FakeMachine, host: FakeSwapHost
) -> None:
    swap.apply_slowly(host, STATE, BOTH)
    machine.disk_full = True
    assert states(swap.apply_slowly(host, STATE, None)) == {NAME: "failed", "swap zram": "failed"}
    assert states(swap.rollback_slowly(host, STATE)) == {NAME: "restored", "swap zram": "restored"}
