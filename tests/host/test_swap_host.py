from __future__ import annotations

import errno
import inspect
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes.fake_swap import GIB, FakeMachine, FakeSwapHost

from moetuned.host import swap_devices
from moetuned.host.swap_host import RealSwapHost, SwapHost
from moetuned.schema.swap import SwapOffRoom


def methods(kind: type) -> dict[str, inspect.Signature]:
    return {
        name: inspect.signature(member) for name, member in vars(kind).items() if callable(member) and name[0] != "_"
    }


def test_the_real_and_the_fake_kernel_can_do_the_same() -> None:
    assert methods(RealSwapHost) == methods(SwapHost) == methods(FakeSwapHost)


def test_they_can_stand_for_each_other(tmp_path: Path) -> None:
    hosts: tuple[SwapHost, ...] = (RealSwapHost(str(tmp_path)), FakeSwapHost(FakeMachine()))
    for host in hosts:
        assert host.boot_id() == host.boot_id()
        assert str(uuid.UUID(host.new_uuid())) != host.new_uuid()
        assert host.look_at_file(str(tmp_path / "absent")) is None
        assert host.look_at_zram(999999) is None
        assert host.mount_point(str(tmp_path / "x")) is not None


def test_swapping_off_is_given_up_when_others_take_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = RealSwapHost(str(tmp_path))
    rooms = iter([SwapOffRoom(GIB, 8 * GIB, 16 * GIB), SwapOffRoom(GIB, GIB, 16 * GIB)])
    monkeypatch.setattr(host, "room", lambda path: next(rooms))
    heard: list[int | None] = []

    def swap_off_slowly(path: str, watch: Callable[[], int | None], *_: object) -> None:
        heard.append(watch())
        watch()

    monkeypatch.setattr(swap_devices, "swap_off_slowly", swap_off_slowly)
    with pytest.raises(OSError, match="too short") as caught:
        host.swap_off_slowly("/x", None, None)
    assert (heard, caught.value.errno) == ([GIB], errno.ENOMEM)
