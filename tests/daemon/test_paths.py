from __future__ import annotations

from moetuned.daemon.paths import Paths


def test_what_lies_where() -> None:
    paths = Paths(None, "/var/lib/moetuned/undo.jsonl", "/run/moetuned/backends")
    assert (paths.state_directory, paths.runtime_directory) == ("/var/lib/moetuned", "/run/moetuned")
