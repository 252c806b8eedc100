from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

from moetuned.host import malloc_arenas

COUNT = """
import ctypes, re, sys, threading
from moetuned.host.malloc_arenas import use_one_arena
if sys.argv[1] == "one":
    assert use_one_arena()
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
threads = [threading.Thread(target=libc.malloc, args=(100_000,)) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
libc.malloc_info(0, ctypes.c_void_p.in_dll(libc, "stdout"))
libc.fflush(None)
"""


def heaps(how: str) -> int:
    done = subprocess.run([sys.executable, "-c", COUNT, how], capture_output=True, text=True, check=True)
    return done.stdout.count("<heap nr=")


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="the C library has no mallopt")
def test_threads_share_one_heap() -> None:
    assert heaps("one") == 1
    assert heaps("many") > 1


def test_a_library_without_it_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(malloc_arenas.ctypes, "CDLL", lambda _name: object())
    assert malloc_arenas.use_one_arena() is False
