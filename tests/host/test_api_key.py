"""A server's own key is read where the server has it from, as far as the server may read it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from moetuned.host.api_key import read_api_key

SCRIPT = "import os, sys; os.setuid(int(sys.argv[1])) if sys.argv[1] != '0' else None; print('up', flush=True); sys.stdin.read()"


@contextmanager
def server(*arguments: str, uid: int = 0, cwd: Path | None = None, **environ: str) -> Iterator[int]:
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(uid), *arguments],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=cwd, env={**os.environ, **environ},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
    finally:
        process.communicate()


def test_from_its_command_line_or_its_environment() -> None:
    with server("--api-key", "secret,other") as pid:
        assert read_api_key(pid) == "secret"
    with server(LLAMA_API_KEY="secret") as pid:
        assert read_api_key(pid) == "secret"
    with server() as pid:
        assert read_api_key(pid) is None
    assert read_api_key(pid) is None


def test_from_its_file_also_beside_where_it_runs(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("# ours\nsecret\n")
    with server("--api-key-file", str(tmp_path / "keys")) as pid:
        assert read_api_key(pid) == "secret"
    with server("--api-key-file", "keys", cwd=tmp_path) as pid:
        assert read_api_key(pid) == "secret"
    with server("--api-key-file", str(tmp_path / "missing")) as pid:
        assert read_api_key(pid) is None


def test_a_fifo_in_its_place_makes_nobody_wait(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "keys")
    with server("--api-key-file", str(tmp_path / "keys")) as pid:
        assert read_api_key(pid) is None


@pytest.mark.kernel
def test_what_the_server_itself_may_not_read_is_not_read_for_it(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to be somebody else")
    path = tmp_path / "shadow"
    path.write_text("secret\n")
    path.chmod(0o600)
    with server("--api-key-file", str(path), uid=65534) as pid:
        assert read_api_key(pid) is None
        path.chmod(0o644)
        assert read_api_key(pid) == "secret"
