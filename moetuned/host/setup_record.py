"""What `moetunectl setup` made, kept in the state directory so that all of it can be taken back."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
from collections.abc import Iterator

import msgspec

from moetuned.host.durable_file import make_private_directory, read_private, remove_durably, replace_durably
from moetuned.schema.setup import SetupRecord

NAME = "setup.json"
_LIMIT_BYTES = 256 << 10
_BACKENDS = "moetuned-backends"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")


def read_record(directory: str) -> SetupRecord:
    """The record in `directory`; an empty one where there is none. Raises OSError, ValueError with the path for one that cannot be understood."""
    path = os.path.join(directory, NAME)
    try:
        data = read_private(path, _LIMIT_BYTES)
    except NotADirectoryError:
        return SetupRecord()
    if not data and not os.path.lexists(path):
        return SetupRecord()
    try:
        return msgspec.json.decode(data, type=SetupRecord)
    except msgspec.DecodeError as error:
        raise ValueError(
            f"{path} cannot be understood ({error}); look at it, take back by hand what it names, and remove it"
        ) from error


def write_record(directory: str, record: SetupRecord) -> None:
    """Make the record say this; an empty one is removed, with the directory where nothing else is in it. Raises OSError."""
    path = os.path.join(directory, NAME)
    if record == SetupRecord():
        if os.path.isdir(directory):
            remove_durably(path)
            remove_durably(f"{path}.new")  # left by one that was killed
            try:
                os.rmdir(directory)
            except OSError:
                return  # the daemon's own files are in it
        return
    make_private_directory(directory)
    replace_durably(path, msgspec.json.encode(record) + b"\n")


@contextlib.contextmanager
def only_one(directory: str) -> Iterator[None]:
    """One at a time may change the record of `directory`. Raises BlockingIOError where another does, OSError.

    The lock is a file beside the directory, which may come and go meanwhile; it goes at the end, unlike the lock of one that was killed,
    which holds nobody up.
    """
    path = f"{directory}.lock"
    os.makedirs(os.path.dirname(path) or "/", 0o755, exist_ok=True)
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_still(descriptor, path):
                break
        except OSError:
            os.close(descriptor)
            raise
        os.close(descriptor)  # whoever had it has just removed it
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.unlink(path)
        os.close(descriptor)


def _is_still(descriptor: int, path: str) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    return False


def remove_unit_state(name: str, var_lib: str = "/var/lib") -> None:
    """Remove what systemd keeps for moetuned-backend@NAME (StateDirectory= with DynamicUser=): saved slots. Raises OSError.

    Not by `systemctl clean`, which needs a message bus. The directories above it go where nothing else is in them.
    """
    if _NAME.fullmatch(name) is None:
        raise ValueError(f"{name!r} is no name of a backend")
    for directory in (f"{var_lib}/{_BACKENDS}", f"{var_lib}/private/{_BACKENDS}"):
        path = f"{directory}/{name}"
        if os.path.islink(path):
            os.unlink(path)
        elif os.path.isdir(path):
            shutil.rmtree(path)
        with contextlib.suppress(OSError):
            os.rmdir(directory)
