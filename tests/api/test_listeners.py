from __future__ import annotations

import errno
import fcntl
import os
import socket
import stat
from pathlib import Path

import pytest

from moetuned.api import listeners
from moetuned.api.errors import ListenError
from moetuned.api.listeners import (
    PeerCredentials,
    file_identity,
    group_id,
    listen_tcp,
    listen_unix,
    may_act,
    parse_listen,
    peer_credentials,
    unlink_own,
)

GROUP = "moetuned-test-has-no-such-group"


def test_socket_mode_owner_and_directory(tmp_path):
    path = tmp_path / "run" / "api.sock"
    with listen_unix(str(path), GROUP):
        status = path.stat()
        assert stat.S_IMODE(status.st_mode) == 0o660
        assert status.st_uid == os.geteuid()
        assert status.st_gid == os.getegid()
        assert os.listdir(path.parent) == ["api.sock"]


@pytest.mark.kernel
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a socket to a group")
def test_socket_belongs_to_the_group(tmp_path):
    path = tmp_path / "api.sock"
    with listen_unix(str(path), "daemon"):
        assert path.stat().st_gid == group_id("daemon")


def test_stale_socket_is_replaced_and_a_live_one_refused(tmp_path):
    path = str(tmp_path / "api.sock")
    listen_unix(path, GROUP).close()
    assert os.path.exists(path)
    with listen_unix(path, GROUP), pytest.raises(ListenError, match="running moetuned answers") as error:
        listen_unix(path, GROUP)
    assert not error.value.lasting, "that one may end"
    assert os.path.exists(path)


def test_a_file_that_is_no_socket_is_never_removed(tmp_path):
    path = tmp_path / "api.sock"
    path.write_text("precious")
    with pytest.raises(ListenError, match="is no socket") as error:
        listen_unix(str(path), GROUP)
    assert path.read_text() == "precious"
    assert error.value.lasting


class _Refuses:
    """A socket that may not connect: the file belongs to another user."""

    def __init__(self, *_arguments):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        pass

    def connect_ex(self, _path):
        return errno.EACCES


def test_another_users_daemon_is_named_with_the_way_out(tmp_path, monkeypatch):
    path = str(tmp_path / "api.sock")
    with listen_unix(path, GROUP):
        monkeypatch.setattr(listeners.socket, "socket", _Refuses)
        with pytest.raises(ListenError) as error:
            listen_unix(path, GROUP)
    assert f"another user's moetuned has {path}" in str(error.value)
    assert "--runtime-dir DIR" in str(error.value)
    assert "moetunectl status --socket DIR/api.sock" in str(error.value)


@pytest.mark.parametrize(("uid", "named"), [(1000, True), (0, False)])
def test_without_rights_the_way_out_is_named(tmp_path, monkeypatch, uid, named):
    def refused(*_arguments, **_keys):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(listeners.os, "geteuid", lambda: uid)
    monkeypatch.setattr(listeners.os, "makedirs", refused)
    with pytest.raises(ListenError, match="cannot make the directory") as error:
        listen_unix(str(tmp_path / "none" / "api.sock"), GROUP)
    assert ("--runtime-dir DIR" in str(error.value)) is named


@pytest.mark.parametrize("path", ["relative.sock", "/" + "x" * 120])
def test_paths_that_cannot_be(path):
    with pytest.raises(ListenError, match=r"api\.socket"):
        listen_unix(path, GROUP)


def test_directory_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ListenError, match="cannot") as error:
        listen_unix(str(tmp_path / "file" / "api.sock"), GROUP)
    assert error.value.lasting


def test_unlink_only_ones_own(tmp_path):
    path = str(tmp_path / "api.sock")
    first = listen_unix(path, GROUP)
    old = file_identity(path)
    first.close()
    os.rename(path, path + ".old")
    with listen_unix(path, GROUP):
        unlink_own(path, old)
        assert os.path.exists(path)
        unlink_own(path, file_identity(path))
        assert not os.path.exists(path)
    unlink_own(path, old)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:9843", ("127.0.0.1", 9843)),
        ("localhost:1", ("127.0.0.1", 1)),
        ("[::1]:0", ("::1", 0)),
        ("127.9.9.9:80", ("127.9.9.9", 80)),
    ],
)
def test_loopback_addresses(text, expected):
    assert parse_listen(text) == expected


@pytest.mark.parametrize(
    "text",
    ["0.0.0.0:80", "192.168.1.1:80", "9843", ":9843", "[::]:1", "127.0.0.1:99999", "example.org:80", "127.0.0.1", ""],
)
def test_other_addresses_are_refused(text):
    with pytest.raises(ListenError, match=r"api\.listen"):
        parse_listen(text)


def test_port_in_use():
    with listen_tcp("127.0.0.1:0") as first:
        port = first.getsockname()[1]
        with pytest.raises(ListenError, match="another program uses it"):
            listen_tcp(f"127.0.0.1:{port}")


@pytest.mark.parametrize(("port", "named"), [(80, True), (1024, False)])
def test_a_port_for_which_a_right_is_missing(monkeypatch, port, named):
    class _Refused(socket.socket):
        def bind(self, _address):
            raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(listeners.socket, "socket", _Refused)
    monkeypatch.setattr(listeners, "first_open_port", lambda: 1024)
    with pytest.raises(ListenError, match="choose another port, or false") as error:
        listen_tcp(f"127.0.0.1:{port}")
    for word in ("a port below 1024 needs CAP_NET_BIND_SERVICE", "a drop-in of moetuned.service"):
        assert (word in str(error.value)) is named


def test_peer_credentials_are_the_kernels():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        peer = peer_credentials(ours)
    assert (peer.pid, peer.uid, peer.gid) == (os.getpid(), os.geteuid(), os.getegid())
    assert peer.groups == frozenset(os.getgroups())


def test_who_may_act():
    group = group_id("daemon")
    assert group is not None
    stranger = os.geteuid() + 4321
    assert may_act(PeerCredentials(1, 0, 0), None)
    assert may_act(PeerCredentials(1, os.geteuid(), 0), None)
    assert may_act(PeerCredentials(1, stranger, group), group)
    assert may_act(PeerCredentials(1, stranger, 7777, frozenset({group})), group)
    assert not may_act(PeerCredentials(1, stranger, 7777, frozenset({8888})), group)
    assert not may_act(PeerCredentials(1, stranger, 0, frozenset({0})), None)


def test_of_two_that_start_at_the_same_moment_one_waits_for_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else neither sees the other answer, and both run with the same records."""
    path, real, seen = str(tmp_path / "api.sock"), os.rename, []

    def rename(*arguments: str) -> None:
        descriptor = os.open(tmp_path, os.O_RDONLY)
        try:
            with pytest.raises(BlockingIOError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            seen.append(arguments)
        finally:
            os.close(descriptor)
        real(*arguments)

    monkeypatch.setattr(listeners.os, "rename", rename)
    with listen_unix(path, GROUP):
        assert len(seen) == 1
        descriptor = os.open(tmp_path, os.O_RDONLY)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # it holds it no longer than that
        os.close(descriptor)


def test_who_holds_the_lock_for_ever_keeps_no_daemon_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listeners, "_ALONE_SECONDS", 0.0)
    descriptor = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        listen_unix(str(tmp_path / "api.sock"), GROUP).close()
    finally:
        os.close(descriptor)
