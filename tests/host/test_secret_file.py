from __future__ import annotations

import os
import pathlib
import re

import pytest

from moetuned.host.secret_file import LIMIT_BYTES, SecretFileError, read_secret


@pytest.fixture
def secret(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "secret"
    path.write_text("token-of-mine\n")
    path.chmod(0o600)
    return path


def refused(path: pathlib.Path, why: str) -> None:
    with pytest.raises(SecretFileError, match=re.escape(why)) as caught:
        read_secret(str(path))
    assert str(path) in str(caught.value)
    assert "token-of-mine" not in str(caught.value)


def test_it_is_read(secret: pathlib.Path) -> None:
    assert read_secret(str(secret)) == "token-of-mine\n"


def test_one_that_others_may_read_is_refused(secret: pathlib.Path) -> None:
    for mode in (0o640, 0o604, 0o660):
        secret.chmod(mode)
        refused(secret, f"chmod 600 {secret}")


def test_one_that_is_not_there_or_no_file(secret: pathlib.Path, tmp_path: pathlib.Path) -> None:
    refused(tmp_path / "none", "No such file")
    refused(tmp_path, "Is a directory")
    os.mkfifo(tmp_path / "fifo", 0o600)
    refused(tmp_path / "fifo", "no plain file")


def test_one_in_a_directory_of_others_is_refused(secret: pathlib.Path, tmp_path: pathlib.Path) -> None:
    tmp_path.chmod(0o777)
    refused(secret, f"chmod go-w {tmp_path}")
    tmp_path.chmod(0o1777)
    assert read_secret(str(secret)) == "token-of-mine\n"


def test_a_link_that_others_could_replace_is_refused(secret: pathlib.Path, tmp_path: pathlib.Path) -> None:
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    link = open_to_all / "link"
    link.symlink_to(secret)
    assert read_secret(str(link)) == "token-of-mine\n"
    open_to_all.chmod(0o777)
    refused(link, f"chmod go-w {open_to_all}")


@pytest.mark.kernel
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_one_of_another_user_is_refused(secret: pathlib.Path) -> None:
    os.chown(secret, 65534, 65534)
    refused(secret, f"chown root {secret}")


@pytest.mark.parametrize(("content", "why"), [(b"\xff\xfe", "no text"), (b"x" * (LIMIT_BYTES + 1), "larger than")])
def test_rubbish_is_refused(secret: pathlib.Path, content: bytes, why: str) -> None:
    secret.write_bytes(content)
    refused(secret, why)
