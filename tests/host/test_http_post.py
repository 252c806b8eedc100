"""POST to servers that take it, refuse it, hang, break off and lie."""

from __future__ import annotations

import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fakes.hook_server import Behaviour, HookServer, raw, reset, status

from moetuned.host.http_post import ANSWER_LIMIT_BYTES, post

Serve = Callable[..., HookServer]


@pytest.fixture
def serve() -> Iterator[Serve]:
    servers: list[HookServer] = []

    def start(*behaviours: Behaviour) -> HookServer:
        servers.append(HookServer(*behaviours))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def test_it_arrives_as_it_is(serve: Serve) -> None:
    server = serve()
    posted = post(f"{server.url}/a/b?c=d", b'{"a": 1}', {"Content-Type": "application/json", "X-A": "b"}, 10)
    assert posted.ok, posted
    assert posted.detail == f"{server.url}/… answered 200 OK"
    (taken,) = server.taken
    assert (taken.path, taken.body) == ("/a/b?c=d", b'{"a": 1}')
    assert taken.headers["Content-Type"] == "application/json"
    assert taken.headers["X-A"] == "b"
    assert taken.headers["User-Agent"].startswith("moetuned/")


@pytest.mark.parametrize(("code", "retry"), [(500, True), (503, True), (429, True), (404, False), (401, False)])
def test_refusals(serve: Serve, code: int, retry: bool) -> None:
    posted = post(serve(status(code, {"Retry-After": "7"}, b"why")).url, b"", {}, 10)
    assert (posted.ok, posted.retry, posted.status, posted.body) == (False, retry, code, b"why")
    assert posted.retry_after_seconds == (7.0 if retry else None)


def test_of_a_large_answer_the_beginning_is_read(serve: Serve) -> None:
    posted = post(serve(status(500, {}, b"x" * (3 * ANSWER_LIMIT_BYTES))).url, b"", {}, 10)
    assert posted.body == b"x" * ANSWER_LIMIT_BYTES


@pytest.mark.parametrize(
    "bad",
    [reset, raw(b""), raw(b"SSH-2.0-OpenSSH_9.2\r\n"), raw(b"HTTP/1.1 abc\r\n\r\n"), raw(b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000)],
)  # fmt: skip
def test_what_breaks_off_or_is_no_http_is_tried_again(serve: Serve, bad: Behaviour) -> None:
    server = serve(bad)
    posted = post(f"{server.url}/secret", b"", {}, 10)
    assert (posted.ok, posted.retry, posted.status) == (False, True, None)
    assert posted.detail.startswith(f"{server.url}/…: ")
    assert "secret" not in posted.detail


def test_one_that_hangs_is_left(serve: Serve) -> None:
    server = serve()
    server.behaviours = [server.hang]
    posted = post(server.url, b"", {}, 0.2)
    assert (posted.ok, posted.retry, posted.detail) == (False, True, f"{server.url}: no answer in time")


@pytest.mark.parametrize("head", [b"HTTP/1.1 200 OK\r\n", b""])
def test_one_that_says_something_again_and_again_has_no_more_time(serve: Serve, head: bytes) -> None:
    server = serve()
    server.behaviours = [server.drip(head, b"X: y\r\n" if head else b"HTTP/1.1 100 Continue\r\n\r\n")]
    posted = post(server.url, b"", {}, 0.5)
    assert (posted.ok, posted.retry, posted.detail) == (False, True, f"{server.url}: no answer in time")


@pytest.mark.parametrize(("code", "retry"), [(b"404", False), (b"503", True)])
def test_an_answer_that_never_ends_or_breaks_off_is_still_that_answer(serve: Serve, code: bytes, retry: bool) -> None:
    head = b"HTTP/1.1 " + code + b" No\r\nTransfer-Encoding: chunked\r\n\r\n"
    server = serve()
    server.behaviours = [server.drip(head, b"1\r\nx\r\n"), raw(head + b"5\r\nab")]
    for seconds in (0.5, 10):
        posted = post(server.url, b"", {}, seconds)
        assert (posted.retry, posted.status, posted.detail) == (
            retry,
            int(code),
            f"{server.url} answered {code.decode()} No",
        )


def test_the_time_by_which_the_process_ends_itself_stays(serve: Serve) -> None:
    def ends(_number: int, _frame: object) -> None:
        raise AssertionError

    before, (left, _) = signal.signal(signal.SIGALRM, ends), signal.setitimer(signal.ITIMER_REAL, 200)
    try:
        assert post(serve().url, b"", {}, 10).ok
        assert signal.getsignal(signal.SIGALRM) is ends
        assert 10 < signal.getitimer(signal.ITIMER_REAL)[0] <= 200
    finally:
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, left)


def test_nobody_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    posted = post(f"http://127.0.0.1:{port}", b"", {}, 10)
    assert (posted.ok, posted.retry) == (False, True)
    assert posted.detail.endswith("Connection refused")


@pytest.mark.parametrize("url", ["", "nonsense", "http://", "http://[::1", "http://127.0.0.1:99999999"])
def test_what_is_no_url_is_refused_for_good(url: str) -> None:
    posted = post(url, b"", {}, 1)
    assert not posted.ok


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_no_redirect_to_another_host_is_followed(serve: Serve, code: int) -> None:
    other = serve()
    posted = post(serve(status(code, {"Location": f"{other.url}/secret"})).url, b"", {"Authorization": "x"}, 10)
    assert other.taken == []
    assert (posted.ok, posted.retry) == (False, False)
    assert f"{other.url}/…" in posted.detail
    assert "secret" not in posted.detail


def test_a_redirect_on_the_same_host_is_followed(serve: Serve) -> None:
    server = serve(status(308, {"Location": "/new"}), status(200))
    assert post(f"{server.url}/old", b"body", {"A": "b"}, 10).ok
    assert [(taken.path, taken.body, taken.headers["A"]) for taken in server.taken] == [
        ("/old", b"body", "b"), ("/new", b"body", "b"),
    ]  # fmt: skip


def test_a_redirect_in_a_circle_ends(serve: Serve) -> None:
    server = serve(status(307, {"Location": "/again"}))
    posted = post(server.url, b"", {}, 10)
    assert "without end" in posted.detail
    assert len(server.taken) == 4


def test_no_proxy_of_the_environment_is_used(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy, server = serve(), serve()
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, proxy.url)
    assert post(server.url, b"", {}, 10).ok
    assert proxy.taken == []


def test_a_proxy_that_is_named_is_used(serve: Serve) -> None:
    proxy = serve()
    assert post("http://alerts.invalid/a?b", b"x", {}, 10, proxy=proxy.url).ok
    assert [taken.path for taken in proxy.taken] == ["http://alerts.invalid/a?b"]
    refuses = serve(status(403))
    posted = post("https://alerts.invalid/a?b", b"x", {}, 10, proxy=refuses.url)
    assert not posted.ok
    assert [taken.path for taken in refuses.taken] == ["alerts.invalid:443"]


def test_a_certificate_that_nobody_vouches_for_is_refused(tmp_path: Path) -> None:
    import ssl
    import threading

    made = subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "key", "-out", "cert", "-subj", "/CN=localhost"],
        cwd=tmp_path, check=False, capture_output=True,
    )  # fmt: skip
    if made.returncode != 0:
        pytest.skip("openssl cannot make a certificate here")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert", tmp_path / "key")
    said: list[bytes] = []

    def serve_once(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        try:
            said.append(context.wrap_socket(connection, server_side=True).recv(10))
        except OSError:
            connection.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve_once, args=(listener,))
        thread.start()
        posted = post(f"https://localhost:{listener.getsockname()[1]}/secret", b"body", {}, 10)
        thread.join(10)
    assert not posted.ok
    assert "certificate" in posted.detail
    assert b"".join(said) == b""
