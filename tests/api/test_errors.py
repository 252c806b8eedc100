from __future__ import annotations

from moetuned.api.errors import DaemonError, DaemonRefused, DaemonUnreachable


def test_each_is_its_sentence_and_an_exit_code() -> None:
    found = [DaemonError("no"), DaemonRefused("no"), DaemonUnreachable("no")]
    assert [(str(error), error.exit_code) for error in found] == [("no", 1), ("no", 4), ("no", 3)]


def test_who_hangs_is_not_absent() -> None:
    assert DaemonUnreachable("it hangs").absent is None
    assert DaemonUnreachable("no socket", "/run/x").absent == "/run/x"
