from __future__ import annotations

import os

import pytest

from moetuned.host import stranger as module
from moetuned.host.stranger import NOBODY, stranger

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")


def test_a_child_that_is_nobody_s_and_gone_afterwards() -> None:
    with stranger() as other:
        assert other is not None
        assert other.ours
        assert os.stat(f"/proc/{other.pid}").st_uid == NOBODY
    assert not os.path.exists(f"/proc/{other.pid}")


def test_where_no_child_can_become_another_one_that_is_there_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    with stranger() as there:
        assert there is not None

        def refuse(*_ids: int) -> None:
            raise PermissionError

        monkeypatch.setattr(os, "setresuid", refuse)
        with stranger() as other:
            assert other is not None
            assert not other.ours
            assert os.stat(f"/proc/{other.pid}").st_uid != 0
        assert os.path.exists(f"/proc/{other.pid}")  # it is not ours to end
        monkeypatch.setattr(module.os, "listdir", lambda _path: ["1", "self"])
        with stranger() as other:
            assert other is None
