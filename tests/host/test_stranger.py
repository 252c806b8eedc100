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


def test_it_ends_with_us_where_we_may_not_signal_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_ids: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", refuse)
    with stranger() as other:
        assert other is not None
    assert not os.path.exists(f"/proc/{other.pid}")


def test_it_holds_no_pipe_of_ours_open() -> None:
    reading, writing = os.pipe()
    with module.waiting_child() as child:
        assert child is not None
        os.close(writing)
        assert os.read(reading, 1) == b""
    os.close(reading)


def test_one_that_cannot_be_prepared_is_none() -> None:
    def refuse() -> None:
        raise PermissionError

    with module.waiting_child(refuse) as child:
        assert child is None
