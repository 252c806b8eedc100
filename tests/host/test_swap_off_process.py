from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path

from moetuned.host import swap_devices, swap_off_process

_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(swap_off_process.__file__))))


def run(parent: int, path: str) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, "-I", "-S", "-c", swap_devices._START, _PACKAGE, str(parent), path)
    return subprocess.run(command, check=False, capture_output=True, text=True)


def test_it_says_what_the_kernel_answered(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("")
    done = run(os.getpid(), str(path))
    assert done.returncode == 0
    # EINVAL: it is no swap; EPERM: not root.
    assert done.stdout == ("22\n" if os.geteuid() == 0 else "1\n")


def test_a_parent_that_is_gone_already_ends_it(tmp_path: Path) -> None:
    done = run(1 << 22, str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")


_WAITING = """
import ctypes, os, signal, sys
sys.path.insert(0, sys.argv[1])
from moetuned.host import swap_off_process
class Libc:
    def __init__(self, *_, **__): self.prctl = real(None).prctl
    def swapoff(self, path):
        os.write(1, b"%d\\n" % os.getpid())
        signal.pause()
real, swap_off_process.ctypes.CDLL = ctypes.CDLL, Libc
swap_off_process.main()
"""
_PARENT = """
import os, signal, subprocess, sys
subprocess.Popen((sys.executable, "-I", "-S", "-c", sys.argv[2], sys.argv[1], str(os.getpid()), "/x"))
signal.pause()
"""


def test_it_ends_with_its_parent_however_that_ends() -> None:
    command = (sys.executable, "-I", "-S", "-c", _PARENT, _PACKAGE, _WAITING)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = os.pidfd_open(int(parent.stdout.readline()))
        parent.kill()
        ended, _, _ = select.select([child], [], [], 30)
        os.close(child)
    assert ended


def test_it_is_small() -> None:
    program = swap_devices._START.replace(
        "sys.exit(main())", "print([name for name in sys.modules if 'msgspec' in name])"
    )
    done = subprocess.run(
        (sys.executable, "-I", "-S", "-c", program, _PACKAGE), check=True, capture_output=True, text=True
    )
    assert done.stdout == "[]\n"


_LOCKING = _WAITING.replace("os.write(1", "os.write(1 if held() else 2").replace(
    "real, swap",
    "import fcntl\n"
    "def held():\n"
    "    with open(sys.argv[-1]) as file:\n"
    "        try: fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
    "        except BlockingIOError: return True\n"
    "real, swap",
)


def test_others_can_see_that_it_is_at_it_until_it_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "swapfile"
    path.write_text("")
    command = (sys.executable, "-I", "-S", "-c", _LOCKING, _PACKAGE, str(os.getpid()), str(path))
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert int(child.stdout.readline()) == child.pid
        assert not swap_devices.wait_for_swap_off(str(path), 0)
        child.kill()
    assert swap_devices.wait_for_swap_off(str(path), 0)
