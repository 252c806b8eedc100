from __future__ import annotations

import select
import subprocess
import sys

import pytest
from fakes.own_disk import mounted_loop_device

from moetuned.host.device_watch import DeviceEvent, DeviceWatch, DeviceWatchError


def test_nothing_happened(tmp_path) -> None:
    watch = DeviceWatch(str(tmp_path / "no-udev"))
    try:
        assert watch.udev_runs is False
        assert watch.fileno() >= 0
        assert watch.properties("no-such-device") == {}
        assert watch.properties("a\0b") == {}
    finally:
        watch.close()


def test_without_libudev_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyudev", None)
    with pytest.raises(DeviceWatchError, match="libudev cannot be loaded"):
        DeviceWatch()


def test_it_is_loaded_only_when_somebody_watches() -> None:
    script = "import sys, moetuned.daemon.app; sys.exit('pyudev' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


@pytest.mark.kernel
def test_a_device_that_comes_and_goes_is_told(tmp_path) -> None:
    watch = DeviceWatch(str(tmp_path / "no-udev"))
    try:
        with mounted_loop_device(tmp_path) as (name, _file):
            ready = select.select([watch.fileno()], [], [], 10)[0]
            if not ready:
                pytest.skip("the kernel's messages are not to be seen here")
            assert DeviceEvent("add", name) in watch.events()
        gone: list[DeviceEvent] = []
        while DeviceEvent("remove", name) not in gone:
            assert select.select([watch.fileno()], [], [], 10)[0], gone
            gone += watch.events()
    finally:
        watch.close()
