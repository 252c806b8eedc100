"""What of a machine does not change: read once, unknown where it cannot be read."""

from __future__ import annotations

from pathlib import Path

from moetuned.host.fs import RealFS
from moetuned.host.processes import ProcessIdentity
from moetuned.host.static_texts import read_static


def test_texts_by_path_and_none_for_what_is_missing(tmp_path: Path) -> None:
    for name, text in {
        "proc/version": "Linux\n",
        "proc/7/cgroup": "0::/a\n",
        "sys/block/sda/size": "9\n",
        "proc/7/environ": "A=1",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    told = read_static(ProcessIdentity(7, 1), ("sda",), "/sys/class/bdi/x/read_ahead_kb", RealFS(str(tmp_path)))
    assert (told["/proc/version"], told["/proc/7/cgroup"], told["/sys/block/sda/size"]) == ("Linux\n", "0::/a\n", "9\n")
    assert told["/proc/sys/vm/swappiness"] is None
    assert told["/sys/class/bdi/x/read_ahead_kb"] is None
    assert not any(path.endswith(("environ", "cmdline")) for path in told)
