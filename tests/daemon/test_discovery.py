"""The loop's finder knows the kinds that there are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from moetuned.daemon import discovery


def test_a_running_backend_of_a_known_kind_is_found(tmp_path: Path) -> None:
    code = "import sys; sys.stdout.write('x'); sys.stdout.flush(); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=tmp_path
    ) as other, subprocess.Popen(
        ["llama-server", "-c", code, "--port", "8099"], executable=sys.executable, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as backend:  # fmt: skip
        assert other.stdout.read(1) == backend.stdout.read(1) == b"x"
        found = {each.identity.pid: each for each in discovery.Finder().find()}
        other.stdin.close()
        backend.stdin.close()
    assert other.pid not in found
    assert found[backend.pid].kind == "llama-server"
    assert discovery.name_for(found[backend.pid], ()) == "llama-server-8099"
