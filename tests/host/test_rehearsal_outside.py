"""What a rehearsal learns of a call that is made by a program of its own, here or outside of the daemon's unit."""

from __future__ import annotations

from typing import Any

import pytest

from moetuned.host import rehearsal_outside
from moetuned.host.rehearsal_outside import error_outside


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("print(0)", 0),
        ("import sys; print(sys.argv[1])", 13),
        ("print('é')", None),
        ("import sys; print(1, file=sys.stderr)", None),
        ("raise SystemExit(1)", None),
    ],
)
def test_the_number_that_it_prints(code: str, error: int | None) -> None:
    assert error_outside(code, "13") == error


def test_what_does_not_end_or_start_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rehearsal_outside, "_SECONDS", 0.2)
    assert error_outside("import time; print(0, flush=True); time.sleep(60)") in (None, 0)

    def refuse(*_: Any, **__: Any) -> Any:
        raise FileNotFoundError

    monkeypatch.setattr(rehearsal_outside, "run_bounded", refuse)
    assert error_outside("print(0)") is None
