"""Opening the daemon's two listening sockets: the Unix socket and loopback TCP."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import grp
import ipaddress
import os
import re
import socket
import stat
import struct
import time
from collections.abc import Iterator

import msgspec

from moetuned.api.errors import ListenError
from moetuned.host.privileged_port import CURE, first_open_port

SOCKET_MODE = 0o660
BACKLOG = 64
_SO_PEERGROUPS = 59  # asm-generic/socket.h, Linux 4.13; Python has no name for it
_PATH_LIMIT_BYTES = 107  # sun_path, unix(7)
_LASTING = (errno.EACCES, errno.EEXIST, errno.ENOTDIR, errno.EPERM, errno.EROFS)
_ALONE_SECONDS, _TRY_SECONDS = 2.0, 0.01
_OWN_DIRECTORY = (
    "; run yours with --runtime-dir DIR, a directory of your own (e.g. ~/.moetuned), "
    "and ask it with moetunectl status --socket DIR/api.sock"
)


class PeerCredentials(msgspec.Struct, frozen=True):
    """Who is at the other end of a Unix socket, as the kernel says. `groups` are the supplementary ones."""

    pid: int
    uid: int
    gid: int
    groups: frozenset[int] = frozenset()


def group_id(name: str) -> int | None:
    """Number of a group, None where it does not exist."""
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        return None


def listen_unix(path: str, group: str) -> socket.socket:
    """Listen at `path`, mode 0660, owned by root:`group` where the group exists.

    A socket that a dead daemon left is replaced; the new one appears under its name only once it is ready (rename(2)).
    Raises ListenError when a daemon answers there already, or when the place cannot be used.
    """
    if len(os.fsencode(path)) > _PATH_LIMIT_BYTES - 16 or not path.startswith("/"):
        raise ListenError(
            f"api.socket: {path} must be an absolute path of at most {_PATH_LIMIT_BYTES - 16} bytes; choose another."
        )
    _make_directory(os.path.dirname(path))
    with _alone(os.path.dirname(path)):
        return _listen_unix(path, group)


@contextlib.contextmanager
def _alone(directory: str) -> Iterator[None]:
    """No other daemon that starts at this moment looks for a live one before this one answers. Waits for `_ALONE_SECONDS` at most:
    anybody who may open the directory could hold the lock.
    """
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise ListenError(f"api.socket: cannot open {directory}: {error.strerror}{_cure(error)}.") from error
    try:
        until = time.monotonic() + _ALONE_SECONDS
        while not _lock(descriptor) and time.monotonic() < until:
            time.sleep(_TRY_SECONDS)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _listen_unix(path: str, group: str) -> socket.socket:
    _refuse_live(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    new = f"{path}.{os.getpid()}"
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(new)
        listener.bind(new)
        os.chmod(new, SOCKET_MODE)
        number = group_id(group)
        if number is not None and os.geteuid() == 0:
            os.chown(new, 0, number)
        listener.listen(BACKLOG)  # nobody can connect before this, whatever the umask was
        os.rename(new, path)
    except OSError as error:
        listener.close()
        with contextlib.suppress(OSError):
            os.unlink(new)
        raise ListenError(f"api.socket: cannot listen at {path}: {error.strerror}{_cure(error)}.") from error
    return listener


def _make_directory(directory: str) -> None:
    try:
        os.makedirs(directory, mode=0o755, exist_ok=True)
    except OSError as error:
        raise ListenError(
            f"api.socket: cannot make the directory {directory}: {error.strerror}{_cure(error)}.",
            lasting=error.errno in _LASTING,
        ) from error


def _refuse_live(path: str) -> None:
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise ListenError(
                f"api.socket: {path} exists and is no socket; remove it or choose another path.", lasting=True
            )
    except FileNotFoundError:
        return
    except OSError as error:
        raise ListenError(f"api.socket: cannot look at {path}: {error.strerror}{_cure(error)}.") from error
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC) as probe:
        result = probe.connect_ex(path)
    if result in (errno.ECONNREFUSED, errno.ENOENT):
        return
    if result in (errno.EACCES, errno.EPERM):
        raise ListenError(f"api.socket: another user's moetuned has {path}{_OWN_DIRECTORY}.")
    if result in (0, errno.EAGAIN, errno.EINPROGRESS):
        raise ListenError(
            f"api.socket: a running moetuned answers at {path} already; stop it (systemctl stop moetuned), "
            "or give this one another api.socket or --runtime-dir."
        )
    raise ListenError(f"api.socket: cannot tell whether {path} is in use: {os.strerror(result)}.")


def _cure(error: OSError) -> str:
    """What somebody without rights can do; nothing for other errors."""
    return _OWN_DIRECTORY if isinstance(error, PermissionError) and os.geteuid() != 0 else ""


def unlink_own(path: str, identity: tuple[int, int]) -> None:
    """Remove the socket file unless another daemon has put its own there; `identity` is (device, inode)."""
    with contextlib.suppress(OSError):
        if file_identity(path) == identity:
            os.unlink(path)


def file_identity(path: str) -> tuple[int, int]:
    """Device and inode of `path` itself. Raises OSError."""
    status = os.lstat(path)
    return status.st_dev, status.st_ino


def parse_listen(text: str) -> tuple[str, int]:
    """Address and port of "127.0.0.1:9843", "[::1]:9843" or "localhost:9843". Raises ListenError unless loopback."""
    match = re.fullmatch(r"(?:\[([0-9a-fA-F:]+)\]|([^\[\]:]+)):(\d{1,5})", text)
    problem = f"api.listen: {text!r} is no loopback address with a port; write e.g. 127.0.0.1:9843, or false."
    if match is None or int(match[3]) > 65535:
        raise ListenError(problem)
    host = match[1] or match[2]
    try:
        address = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError as error:
        raise ListenError(problem) from error
    if not address.is_loopback:
        raise ListenError(problem)
    return str(address), int(match[3])


def listen_tcp(text: str) -> socket.socket:
    """Listen on a loopback address. Raises ListenError."""
    host, port = parse_listen(text)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        why, cure = error.strerror, ""
        if error.errno == errno.EADDRINUSE:
            why = "another program uses it"
        elif error.errno == errno.EACCES and 0 < port < (first := first_open_port()):
            why, cure = f"a port below {first} needs CAP_NET_BIND_SERVICE", f"; or {CURE}"
        raise ListenError(
            f"api.listen: cannot listen at {text}: {why}; choose another port, or false{cure}."
        ) from error
    return listener


def peer_credentials(connection: socket.socket) -> PeerCredentials:
    """Credentials of the process that connected (SO_PEERCRED, SO_PEERGROUPS; unix(7)). Raises OSError."""
    size = struct.calcsize("iII")
    pid, uid, gid = struct.unpack("iII", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    try:
        raw = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, 1024)
    except OSError:  # more groups than fit, or a kernel without it: the primary group has to do
        raw = b""
    groups = frozenset(struct.unpack(f"{len(raw) // 4}I", raw))
    return PeerCredentials(pid=pid, uid=uid, gid=gid, groups=groups)


def may_act(peer: PeerCredentials, group: int | None) -> bool:
    """Whether a peer may change things: root, the user the daemon runs as, members of the group of this number."""
    if peer.uid in (0, os.geteuid()):
        return True
    return group is not None and (peer.gid == group or group in peer.groups)
