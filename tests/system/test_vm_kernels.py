"""Other kernels and releases: Debian 12 with a new kernel, and with its own, which has no cachestat; MGLRU on and off."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import FULL, MGLRU, Start, Step, booted, build_image, prepare_installed, prepare_serving
from serving import resident_bytes, thrash

pytestmark = [
    pytest.mark.vm,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(not FULL, reason="builds more images: FULL=1"),
]
SAME = "bash /root/inventory.sh settings | diff /root/settings -"
# cachestat(2) is system call 451 on every architecture; of an invalid descriptor it says EBADF (9), a kernel without it ENOSYS (38).
CACHESTAT = "python3 -c 'import ctypes; libc = ctypes.CDLL(None, use_errno=True); libc.syscall(451, -1, 0, 0, 0); print(ctypes.get_errno())'"


@pytest.mark.parametrize("kernel", ["newest", "6.1"])
def test_bookworm(kernel: str, start: Start, models: Path, step: Step) -> None:
    image = build_image("bookworm", kernel)
    serving = prepare_serving(image, prepare_installed(image, booted(image)), models)
    for mglru in (True, False):
        machine = start(serving, models, of=image, mglru=mglru)
        with step(
            f"kernel {machine.run('uname -r')}, MGLRU {'on' if mglru else 'off'}: green, the model's residency is known"
        ):
            assert machine.run(CACHESTAT) == ("38" if kernel == "6.1" else "9")
            assert machine.run("moetunectl check").startswith("MOETUNED OK")
            assert resident_bytes(machine) > 0
        thrash(machine, step)
        with step("stopped: every setting as before"):
            # The comparison is with MGLRU as the machine had it when it was looked at.
            lru, was = "/sys/kernel/mm/lru_gen/enabled", "y" if MGLRU else "n"
            machine.run(f"systemctl stop moetuned; [ ! -e {lru} ] || echo {was} >{lru}; {SAME}")


def test_mglru_off(start: Start, serving: Path, models: Path, step: Step) -> None:
    machine = start(serving, models, mglru=False)
    with step("the kernel has it off"):
        assert machine.run("cat /sys/kernel/mm/lru_gen/enabled") == "0x0000"
    thrash(machine, step)
