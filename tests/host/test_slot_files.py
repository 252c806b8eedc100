"""Saving slots to files and reading them again, against a server that this test plays."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from moetuned.decide.slot_saving import SlotFile
from moetuned.host import slot_files
from moetuned.host.slot_files import SavedSlots
from moetuned.parse.http_response import HttpError

LONG = 1000.0


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, directory: Path) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.directory = directory
        self.key: str | None = None
        self.refused: set[int] = set()
        self.slots: Any = [
            {"id": 0, "n_ctx": 4096, "is_processing": False, "id_task": 3, "n_prompt_tokens": 900},
            {"id": 1, "n_ctx": 4096, "is_processing": True, "id_task": 4, "n_prompt_tokens": 5},
            {"id": 2, "n_ctx": 4096, "is_processing": False},
        ]
        self.held = {0: 900, 1: 5, 2: 0}
        self.asked: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def log_message(self, *_: object) -> None: ...

    def answer(self, status: int, body: Any) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        wants = self.server.key
        if wants is not None and self.headers.get("Authorization") != f"Bearer {wants}":
            return self.answer(401, {})
        return self.answer(200, self.server.slots)

    def do_POST(self) -> None:
        server = self.server
        name = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["filename"]
        number, _, action = self.path.removeprefix("/slots/").partition("?action=")
        server.asked.append(f"{action} {number}")
        path = server.directory / name
        if int(number) in server.refused:
            path.write_bytes(b"half")
            return self.answer(400, {})
        if action == "save":
            path.write_text(str(server.held[int(number)]))
            return self.answer(200, {"n_saved": server.held[int(number)], "n_written": 1 << 60})
        return self.answer(200, {"n_restored": int(path.read_text())})


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path)
    Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def save(server: Server, until: float | None = None, cost: int = 1) -> SavedSlots:
    until = time.monotonic() + LONG if until is None else until
    return slot_files.save_slots("glm", server.url, os.getpid(), str(server.directory), cost, 4096, until)


def names(server: Server) -> list[str]:
    return sorted(os.listdir(server.directory))


def test_what_is_saved_is_read_again_and_removed(server: Server) -> None:
    saved = save(server)
    assert server.asked == ["save 0", "save 2"]
    assert [file.tokens for file in saved.files] == [900]
    assert names(server) == [saved.files[0].name], "the empty one was removed"
    assert (saved.skipped, saved.lost) == ((), 0)
    assert slot_files.restore_slots(server.url, os.getpid(), saved, time.monotonic() + LONG) == 1
    assert server.asked[2:] == ["restore 2"], "the slot that nobody has used"
    assert names(server) == []


def test_one_that_does_not_fit_is_counted(server: Server) -> None:
    server.slots[0]["n_prompt_tokens"] = 4096
    saved = save(server)
    assert (saved.files, saved.skipped, saved.lost) == ((), (), 1)


def test_one_that_is_refused_leaves_nothing(server: Server) -> None:
    server.refused = {0}
    saved = save(server)
    assert saved.files == ()
    assert (saved.skipped, saved.lost) == (("slot 0: it was refused with 400",), 1)
    assert names(server) == []
    (server.directory / "kept").write_text("7")
    server.refused = {2}
    kept = SavedSlots(str(server.directory), (SlotFile("kept", 7),))
    assert slot_files.restore_slots(server.url, os.getpid(), kept, time.monotonic() + LONG) == 0
    assert names(server) == []


def test_neither_the_time_nor_the_disk_is_used_up(server: Server) -> None:
    assert "no time" in save(server, until=time.monotonic() - 1).skipped[0]
    assert "no room for" in save(server, cost=1 << 50).skipped[0]
    assert server.asked == []


def test_its_files_are_removed_also_when_the_server_does_not_answer(server: Server) -> None:
    saved = save(server)
    server.slots = "rubbish"
    with pytest.raises(HttpError):
        slot_files.restore_slots(server.url, os.getpid(), saved, time.monotonic() + LONG)
    assert names(server) == []


def test_a_key_is_used_where_there_is_one_and_told_to_nobody(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    server.key = "secret"
    with pytest.raises(HttpError, match="401"):
        save(server)
    monkeypatch.setattr(slot_files, "read_api_key", lambda pid: "secret")
    assert len(save(server).files) == 1
    assert "secret" not in caplog.text


def test_what_an_earlier_daemon_left_of_this_backend_is_removed_and_nothing_else(server: Server) -> None:
    saved = save(server)
    others = ["moetuned-0123456789abcdef-0123456789abcdef-0.kv", "mine.kv", saved.files[0].name + ".old"]
    for name in others:
        (server.directory / name).touch()
    (server.directory / saved.files[0].name.replace("-0.kv", "-7.kv")).mkdir()
    assert slot_files.remove_old("other", os.getpid(), str(server.directory)) == 0
    assert slot_files.remove_old("glm", os.getpid(), str(server.directory)) == 1
    assert saved.files[0].name not in names(server)
    assert len(names(server)) == len(others) + 1


def test_where_its_directory_is(tmp_path: Path) -> None:
    assert slot_files.directory_of(os.getpid(), str(tmp_path)) == str(tmp_path)
    with pytest.raises(NotADirectoryError):
        slot_files.directory_of(os.getpid(), str(tmp_path / "missing"))
    with pytest.raises(OSError, match="No such"):
        slot_files.directory_of(1 << 30, str(tmp_path))
