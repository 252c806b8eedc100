"""Every setting of the kernel that moetuned could touch: all of `sysctl -a`, memory management and the queues of all disks."""

from __future__ import annotations

import os
import subprocess

_TREES = ("/proc/sys", "/sys/kernel/mm")


def read_settings(*, but_disks: frozenset[str] = frozenset()) -> dict[str, str]:
    """Each file that can be read and written, and what is in it; counters cannot be written.

    Loop devices are whoever's who set them up, so they are left out, and `but_disks`.
    """
    found: dict[str, str] = {}
    for path in _paths(but_disks):
        try:
            if os.stat(path).st_mode & 0o600 != 0o600:
                continue
            with open(path, encoding="utf-8", errors="replace") as file:
                found[path] = file.read()
        except OSError:
            continue  # write-only in truth (stat_refresh), or of a network that is not there
    return found


def still_settings(*, but_disks: frozenset[str] = frozenset()) -> dict[str, str]:
    """Those that stay as they are when nobody changes them: read twice, with a process started in between (ns_last_pid)."""
    first = read_settings(but_disks=but_disks)
    subprocess.run(["true"], check=True, timeout=60)
    second = read_settings(but_disks=but_disks)
    return {path: text for path, text in first.items() if second.get(path) == text}


def changed(before: dict[str, str], *, but_disks: frozenset[str] = frozenset()) -> dict[str, tuple[str, str | None]]:
    """What reads otherwise than in `before`: what it was and what it is."""
    now = read_settings(but_disks=but_disks)
    return {path: (text, now.get(path)) for path, text in before.items() if now.get(path) != text}


def _paths(but_disks: frozenset[str]) -> list[str]:
    found = [os.path.join(directory, name) for top in _TREES for directory, _, names in os.walk(top) for name in names]
    for disk in os.listdir("/sys/block"):
        if disk.startswith("loop") or disk in but_disks:
            continue
        for directory, _, names in os.walk(f"/sys/block/{disk}/queue"):
            found += [os.path.join(directory, name) for name in names]
    return found
