"""Stands for a backend that cannot be run here: maps a model, and answers over HTTP whatever a file says.

`start` makes a process whose command line is the kind's. The file of answers is JSON, {path: [status, body]}, and is read again for
every request, so that a test changes what the backend does; a path that is not in it is answered with 404.
"""

from __future__ import annotations

import contextlib
import http.server
import json
import mmap
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

MODEL, PORT, ANSWERS = "FAKE_MODEL", "FAKE_PORT", "FAKE_ANSWERS"
_PACKAGE = str(Path(__file__).resolve().parent)
SCRIPT = f"import sys; sys.path.insert(0, {_PACKAGE!r})\nfrom fake_backend import main\nmain()\n"


def main() -> None:
    """Serve until the input closes."""
    held = None
    if os.environ.get(MODEL):
        with open(os.environ[MODEL], "rb") as file:
            held = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ[PORT])), _Handler)
    server.serve_forever()
    del held


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        with open(os.environ[ANSWERS], encoding="utf-8") as file:
            answers = json.load(file)
        with open(os.environ[ANSWERS] + ".asked", "a", encoding="utf-8") as file:
            file.write(self.path + "\n")
        status, body = answers.get(self.path, (404, "{}"))
        data = body.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_said: object) -> None:
        """Quiet."""


class Fake:
    """One such process. `answers` and `asked` are its file's."""

    def __init__(self, process: subprocess.Popen[bytes], path: Path) -> None:
        self.process = process
        self._path = path

    def answers(self, bodies: Mapping[str, object]) -> None:
        """From now on: a body, or (status, body), by path."""
        write_answers(self._path, bodies)

    @property
    def asked(self) -> set[str]:
        """Paths that it was asked for."""
        path = Path(f"{self._path}.asked")
        return set(path.read_text().split()) if path.exists() else set()


def write_answers(path: Path, bodies: Mapping[str, object]) -> None:
    """Whole or not at all."""
    text = {key: body if isinstance(body, tuple) else (200, body) for key, body in bodies.items()}
    new = path.with_suffix(".new")
    new.write_text(json.dumps(text))
    new.replace(path)


@contextlib.contextmanager
def start(
    directory: Path,
    argv: Sequence[str],
    port: int,
    bodies: Mapping[str, object],
    *,
    model: Path | None = None,
    program: str | None = None,
    **environ: str,
) -> Iterator[Fake]:
    """`argv` behind Python's own path, or behind a link of the name `program` to it, in `directory` and listening on `port`."""
    directory.mkdir(exist_ok=True)
    path = directory / "answers.json"
    write_answers(path, bodies)
    executable = sys.executable
    if program is not None:
        link = directory / program
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.realpath(sys.executable))
        executable = str(link)
    added = {ANSWERS: str(path), PORT: str(port), **({} if model is None else {MODEL: str(model)}), **environ}
    process = subprocess.Popen([executable, *argv], cwd=directory, env={**os.environ, **added}, start_new_session=True)
    try:
        yield Fake(process, path)
    finally:
        process.kill()
        process.wait()
