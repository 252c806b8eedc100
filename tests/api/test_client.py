from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading

import pytest
from served import Served

from moetuned.api import client as client_module
from moetuned.api.client import Client
from moetuned.api.errors import DaemonError, DaemonRefused, DaemonUnreachable
from moetuned.api.metrics import render
from moetuned.schema.history import BackendHistory, Histories


@pytest.fixture
def running(tmp_path):
    """A server driven by a thread of the test while the client blocks."""
    it = Served(str(tmp_path))
    stop = threading.Event()

    def loop():
        while not stop.is_set():
            it.turn(0.01)

    thread = threading.Thread(target=loop)
    thread.start()
    yield it
    stop.set()
    thread.join()
    it.close()


def test_status_events_and_post(running):
    client = Client(running.path)
    assert client.status().backends[0].verdict == running.snapshot.backends[0].verdict
    assert [event.id for event in client.events("1-1")] == ["1-2"]
    assert client.post("/v1/warm", {"backend": "glm"}) == {"done": "warm"}
    assert client.post("/v1/reload") == {"done": "reload"}
    assert client.explain().backends == ()
    assert client.relief().backends == ()
    assert client.history() == Histories(100, 2, (BackendHistory("glm"),))
    assert client.history(30, "glm").at_seconds == 100
    assert running.remembered == [(600, None), (30, "glm")]
    assert running.calls == [("warm", {"backend": "glm"}), ("reload", {})]


def test_metrics_in_both_formats(running):
    client = Client(running.path)
    assert client.metrics() == render(running.snapshot)
    assert client.metrics(openmetrics=True) == render(running.snapshot, openmetrics=True)


def test_an_error_of_the_daemon_is_its_sentence(running):
    with pytest.raises(DaemonError, match="There is no action") as caught:
        Client(running.path).post("/v1/nope")
    assert caught.value.exit_code == 1
    with pytest.raises(DaemonError, match="event id"):
        Client(running.path).events("a/../b")


def test_no_socket_is_not_running(tmp_path):
    with pytest.raises(DaemonUnreachable, match="no socket at"):
        Client(str(tmp_path / "api.sock")).status()


def test_a_left_over_socket_is_not_running(tmp_path):
    path = str(tmp_path / "api.sock")
    with socket.socket(socket.AF_UNIX) as left_over:
        left_over.bind(path)
    with pytest.raises(DaemonUnreachable, match="left over"):
        Client(path).status()


@pytest.mark.kernel
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_no_permission_says_so(running):
    os.chmod(os.path.dirname(running.path), 0o700)
    code = (
        "import os, sys\nimport moetuned.api.socket_access  # while it may still be read\nfrom moetuned.api.client import Client\nfrom moetuned.api.errors import DaemonRefused\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "try:\n    Client(sys.argv[1]).status()\nexcept DaemonRefused as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, running.path], capture_output=True, text=True, check=True)
    assert "You may not talk to moetuned" in done.stdout


class Listener:
    """A server that answers with fixed bytes, or with nothing."""

    def __init__(self, directory, answer: bytes, *, hang: bool = False):
        self.path = f"{directory}/other.sock"
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(self.path)
        self.socket.listen(4)
        self.done = threading.Event()
        self.thread = threading.Thread(target=self._serve, args=(answer, hang))
        self.thread.start()

    def _serve(self, answer, hang):
        peer, _ = self.socket.accept()
        with peer:
            peer.recv(4096)
            try:
                peer.sendall(answer)
            except OSError:
                return
            if hang:
                self.done.wait(30)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.done.set()
        self.thread.join()
        self.socket.close()


def test_a_daemon_that_hangs(tmp_path):
    with Listener(tmp_path, b"", hang=True) as other, pytest.raises(DaemonUnreachable, match="did not answer"):
        Client(other.path, timeout_seconds=0.2).status()


def test_a_daemon_that_hangs_within_its_answer(tmp_path):
    start = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"
    with Listener(tmp_path, start, hang=True) as other, pytest.raises(DaemonUnreachable, match="did not answer"):
        Client(other.path, timeout_seconds=0.2).status()


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH\r\n",
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n\xff\xfe",
        b"HTTP/1.1 500 Oh\r\nContent-Length: 2\r\n\r\nno",
    ],
)
def test_somebody_else_at_the_socket_is_one_sentence(tmp_path, answer):
    with Listener(tmp_path, answer) as other, pytest.raises(DaemonError):
        Client(other.path).status()


def test_answers_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(client_module, "ANSWER_LIMIT_BYTES", 1000)
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n" + b"x" * 5000
    with Listener(tmp_path, answer) as other, pytest.raises(DaemonError, match="longer than"):
        Client(other.path).status()


def test_refusals_exit_with_4():
    assert DaemonRefused("x").exit_code == 4
    assert DaemonUnreachable("x").exit_code == 3


def test_a_daemon_with_many_waiting_clients_is_tried_again(tmp_path, monkeypatch):
    path = tmp_path / "full.sock"
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as first:
        listener.bind(str(path))
        listener.listen(0)
        first.connect(str(path))
        slept = []

        def room(seconds):
            slept.append(seconds)
            listener.accept()[0].close()

        monkeypatch.setattr(client_module.time, "sleep", room)
        answering = threading.Thread(target=lambda: answer_one(listener, first))
        answering.start()
        assert Client(str(path)).metrics() == b"told"
        answering.join()
    assert len(slept) == 1


def answer_one(listener, first):
    """Answer whoever comes after `first`, which the pause of the client has let in and closed."""
    first.recv(1)
    connection, _ = listener.accept()
    with connection:
        connection.recv(1 << 16)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ntold")


def test_one_that_never_has_room_is_given_up(tmp_path):
    path = tmp_path / "full.sock"
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as first:
        listener.bind(str(path))
        listener.listen(0)
        first.connect(str(path))
        with pytest.raises(DaemonUnreachable, match="did not answer"):
            Client(str(path), timeout_seconds=0.1).status()
