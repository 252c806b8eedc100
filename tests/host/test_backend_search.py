"""Who runs a backend, and units that would start one; from texts of units and of /proc/<pid>/cgroup."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from moetuned import backends
from moetuned.host import backend_search
from moetuned.host.backend_search import FoundServer, find_servers, find_units, free_port
from moetuned.host.processes import ProcessIdentity
from moetuned.host.running_backends import FoundBackend
from moetuned.host.service import ServiceError
from moetuned.schema.backend_description import BackendDescription

ID = "0123456789abcdef" * 4


def unit(directory: Path, name: str, text: str) -> None:
    directory.mkdir(exist_ok=True)
    (directory / name).write_text(text)


def test_units_that_start_a_backend(tmp_path: Path) -> None:
    etc, usr = tmp_path / "etc", tmp_path / "usr"
    command = "ExecStart=/opt/llama-server -m /m.gguf --port 8090 -c 4096\n"
    unit(etc, "llama.service", f"[Service]\n{command}")
    unit(usr, "llama.service", "[Service]\nExecStart=/bin/true\n")
    unit(usr, "other.service", "[Service]\nExecStart=/bin/true\n")
    unit(usr, "masked.service", f"[Service]\n{command}")
    unit(etc, "masked.service", "")
    unit(etc, "llama@.service", f"[Service]\n{command}")
    unit(etc, "two.service", f"[Service]\n{command}{command}")
    unit(etc, "llama.timer", f"[Service]\n{command}")
    found = find_units(backends.find, directories=(str(etc), str(usr), str(tmp_path / "none")))
    assert [(each.unit, each.kind, each.model_path, each.pid) for each in found] == [
        ("llama.service", "llama-server", "/m.gguf", None)
    ]
    assert found[0].description.context_length == 4096


def running(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cgroup: str, ids: dict[str, str] | None) -> FoundServer:
    """One backend in this cgroup; `ids`: what the engine answers, None: nothing."""
    process = FoundBackend(
        ProcessIdentity(812, 1), "llama-server", BackendDescription(), ("llama-server",), 812, "/m.gguf"
    )
    finder = type("Finder", (), {"__init__": lambda *_: None, "find": lambda _: (process,)})
    monkeypatch.setattr(backend_search, "Finder", finder)
    monkeypatch.setattr(backend_search, "read_or_none", lambda *_: cgroup)

    def asked(_: object) -> dict[str, str]:
        if ids is None:
            raise ServiceError("it does not answer")
        return ids

    monkeypatch.setattr(backend_search.Engine, "ids", asked)
    (found,) = find_servers(backends.find, directories=())
    return found


@pytest.mark.parametrize(
    ("cgroup", "ids", "expected"),
    [
        ("0::/system.slice/llama.service\n", {}, ("llama.service", None)),
        ("0::/user.slice/user-1000.slice/user@1000.service/app.slice/llama.service\n", {}, (None, None)),
        ("0::/user.slice/user-1000.slice/session-3.scope\n", {}, (None, None)),
        (f"0::/system.slice/docker-{ID}.scope\n", {"other": "f" * 64, "llama": ID}, (None, "llama")),
        (f"0::/system.slice/docker-{ID}.scope\n", {}, (None, None)),
        (f"0::/machine.slice/libpod-{ID}.scope\n", None, (None, None)),
        ("", {}, (None, None)),
    ],
)
def test_who_runs_it(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    cgroup: str,
    ids: dict[str, str] | None,
    expected: tuple[str | None, str | None],
) -> None:
    found = running(monkeypatch, tmp_path, cgroup, ids)
    assert (found.unit, found.container) == expected
    assert found.pid == 812


def test_a_unit_that_runs_is_found_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    unit(tmp_path, "llama.service", "[Service]\nExecStart=/opt/llama-server -m /m.gguf\n")
    server = running(monkeypatch, tmp_path, "0::/system.slice/llama.service\n", {})
    monkeypatch.setattr(backend_search, "read_or_none", lambda fs, path, *_: "0::/system.slice/llama.service\n" if path.startswith("/proc") else (tmp_path / "llama.service").read_text())  # fmt: skip
    assert find_servers(backends.find, directories=(str(tmp_path),)) == (server,)


def test_a_port_that_is_free() -> None:
    assert free_port((), lambda _: True) == 8080
    assert free_port((8080, 8081), lambda port: port != 8082) == 8083
    assert free_port((), lambda _: False) == 8080
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert not backend_search._can_bind(taken.getsockname()[1])
