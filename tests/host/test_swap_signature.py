from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from moetuned.host import swap_signature
from moetuned.host.swap_signature import SwapError, find_program, make_signature, read_head, run_program
from moetuned.parse.swap_header import HEADER_BYTES, swap_uuid

UUID = "11111111-2222-3333-4444-555555555555"


def program(directory: Path, name: str, script: str) -> None:
    path = directory / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(stat.S_IRWXU)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(swap_signature, "_SAFE_PATH", (str(tmp_path), "/usr/bin", "/bin"))
    return tmp_path


def test_only_system_directories_are_looked_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, "moetuned-test-program", "true")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_program("moetuned-test-program") is None
    assert find_program("sh") in ("/usr/bin/sh", "/bin/sh")


def test_a_program_that_is_missing_says_what_to_install(programs: Path) -> None:
    with pytest.raises(SwapError, match="there is no program absent; install util-linux"):
        run_program("absent", (), "util-linux")


def test_a_program_that_fails_is_quoted_in_one_short_line(programs: Path) -> None:
    program(programs, "bad", "echo wrong >&2; echo very wrong >&2; yes x | head -c 10000 >&2; exit 3")
    with pytest.raises(SwapError, match="bad failed with code 3: wrong very wrong x x") as caught:
        run_program("bad", (), "x")
    assert len(str(caught.value)) < 300


def test_a_program_that_hangs_is_ended(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(swap_signature, "_SECONDS", 0.05)
    program(programs, "hangs", "exec sleep 100")
    with pytest.raises(SwapError, match="did not end within"):
        run_program("hangs", (), "x")


def test_it_cannot_speak_to_the_service_manager_and_gets_no_shell(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", "/run/x")
    program(programs, "tells", f'env > {programs}/environment; printf "%s\\n" "$@" > {programs}/arguments')
    run_program("tells", ("a b", "$(touch /tmp/x); *"), "x")
    assert "NOTIFY_SOCKET" not in (programs / "environment").read_text()
    assert (programs / "arguments").read_text() == "a b\n$(touch /tmp/x); *\n"


def test_the_signature_has_the_uuid_it_was_given(tmp_path: Path) -> None:
    if find_program("mkswap") is None:
        pytest.skip("needs mkswap of util-linux")
    path = tmp_path / "file"
    path.write_bytes(b"\0" * (1 << 20))
    path.chmod(0o600)
    make_signature(str(path), UUID)
    with path.open("rb") as file:
        assert swap_uuid(read_head(file.fileno())) == UUID
    with pytest.raises(SwapError, match="mkswap failed"):
        make_signature(str(tmp_path / "absent"), UUID)


def test_a_head_is_as_long_as_the_file_and_no_longer_than_a_page(tmp_path: Path) -> None:
    for size in (0, 10, HEADER_BYTES, HEADER_BYTES + 1):
        path = tmp_path / str(size)
        path.write_bytes(b"x" * size)
        descriptor = os.open(path, os.O_RDONLY)
        assert len(read_head(descriptor)) == min(size, HEADER_BYTES)
        os.close(descriptor)
