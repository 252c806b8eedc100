"""What the subcommands of moetunectl backend share."""

from __future__ import annotations

import pytest
from backend_scenes import ANSWER

from moetuned.cli import backend_client
from moetuned.schema.supervision import BackendAnswer


def test_an_answer_is_typed() -> None:
    class Daemon:
        def post(self, path: str, payload: object) -> object:
            assert (path, payload) == ("/v1/backend", {"backend": "glm", "do": "restart"})
            return {"backend": "glm", "do": "restart", "done": True, "asked_wall_seconds": 1.5, "later_field": 1}

    answer = backend_client.ask(Daemon(), backend="glm", do="restart")  # type: ignore[arg-type]
    assert answer == BackendAnswer("glm", ANSWER.do, done=True, asked_wall_seconds=1.5)


def test_a_sentence_is_wrapped_and_clean(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(backend_client, "width", lambda: 40)
    backend_client.say("a\x1b[31m " + "word " * 20)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("a?[31m word")
    assert max(map(len, lines)) <= 40
