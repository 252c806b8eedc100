"""moetunectl completion, and its scripts in the real shells: a line is typed, TAB is pressed, and what stands there then is compared."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import threading
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from shell_typing import ROOT, SCRIPT, SCRIPTS, Shell, make_programs

from moetuned.cli import main

SHELLS = ("bash", "zsh", "fish")


def needs(shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_is_printed_as_it_is_installed(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["completion", shell]) == 0
    assert capsys.readouterr().out == (SCRIPTS / SCRIPT[shell]).read_text()


def test_another_shell_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["completion", "tcsh"]) == 2
    assert "'bash', 'zsh', 'fish'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "path",
    sorted(path for path in SCRIPTS.rglob("*") if path.is_file()),
    ids=lambda path: f"{path.parent.name} {path.name}",
)
def test_a_script_is_sound(path: Path) -> None:
    shell = path.parent.name
    needs(shell)
    done = subprocess.run([shell, "-n", str(path)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    if shell == "bash" and shutil.which("shellcheck"):
        subprocess.run(["shellcheck", "-x", "-s", "bash", str(path)], cwd=ROOT, check=True)


def test_every_script_is_in_the_wheel_under_the_name_by_which_its_shell_finds_it() -> None:
    data = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["data-files"]
    directories = {
        "bash": "bash-completion/completions",
        "zsh": "zsh/site-functions",
        "fish": "fish/vendor_completions.d",
    }
    for shell, directory in directories.items():
        listed = {path for pattern in data[f"share/{directory}"] for path in ROOT.glob(pattern)}
        assert listed == set((SCRIPTS / shell).iterdir())


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with programs, models, a config and a socket at which a daemon knows two backends."""
    programs = tmp_path / "bin"
    programs.mkdir()
    make_programs(programs)
    for name in ("models/one.gguf", "models/two b.gguf", "config/moetuned.yaml", "home/.gitkeep"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "models/deep").mkdir()
    (tmp_path / "run").mkdir()
    return tmp_path


@pytest.fixture
def daemon(place: Path) -> Iterator[None]:
    body = json.dumps({"backends": [{"name": "glm-4.6"}, {"name": "$(touch evil)"}]}).encode()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place / "run/api.sock"))
        listener.listen()

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(1 << 16)
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))

        thread = threading.Thread(target=serve)
        thread.start()
        yield
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def environment(place: Path) -> dict[str, str]:
    return {
        "PATH": f"{place}/bin:{os.environ['PATH']}",
        "HOME": str(place / "home"),
        "LC_ALL": "C.UTF-8",
        "MOETUNED_RUNTIME_DIR": str(place / "run"),
    }


COMPLETED = [
    ("moetunectl sta", "moetunectl status"),
    ("moetunectl tune ver", "moetunectl tune verify"),
    ("moetunectl tune plan --pro", "moetunectl tune plan --profile"),
    ("moetunectl tune plan --profile moe-offload-", "moetunectl tune plan --profile moe-offload-zram"),
    ("moetunectl tune plan --profile=moe-offload-", "moetunectl tune plan --profile=moe-offload-zram"),
    ("moetunectl tune explain vm.swapp", "moetunectl tune explain vm.swappiness"),
    ("moetunectl estimate models/o", "moetunectl estimate models/one.gguf"),
    ("moetunectl tune plan --config config/m", "moetunectl tune plan --config config/moetuned.yaml"),
    ("moetunectl tune plan --config=config/m", "moetunectl tune plan --config=config/moetuned.yaml"),
    ("moetunectl warm x.gguf --cgroup models/", "moetunectl warm x.gguf --cgroup models/deep"),
    ("moetunectl warm x.gguf --cgroup=models/", "moetunectl warm x.gguf --cgroup=models/deep"),
    ("moetunectl backend restart g", "moetunectl backend restart glm-4.6"),
    ("moetunectl record x.jsonl --backend=g", "moetunectl record x.jsonl --backend=glm-4.6"),
    ("moetuned run --verb", "moetuned run --verbose"),
    ("bin/moetunectl sta", "bin/moetunectl status"),
    ("~/../bin/moetunectl sta", "~/../bin/moetunectl status"),
    ("true; moetunectl sta", "true; moetunectl status"),
    ("moetunectl zzz", "moetunectl zzz"),
    ("moetunectl estimate models/one.gguf zzz", "moetunectl estimate models/one.gguf zzz"),
]  # fmt: skip


@pytest.mark.parametrize("name", ["bash", "zsh"])
def test_a_line_is_completed(name: str, place: Path, daemon: None) -> None:
    needs(name)
    shell = Shell(name, place, environment(place))
    try:
        found = [shell.complete(line)[0].rstrip(" /") for line, _ in COMPLETED]
        _, shown = shell.complete("moetunectl status --")
        _, groups = shell.complete("moetunectl tune ")
        _, evil = shell.complete("moetunectl backend restart ")
    finally:
        shell.end()
    assert found == [whole for _, whole in COMPLETED]
    assert all(word in shown for word in ("--json", "--watch", "--socket", "--help"))
    assert all(word in groups for word in ("apply", "explain", "persist", "rollback", "verify"))
    assert "evil" not in evil
    assert not (place / "evil").exists()
    if name == "zsh":
        assert "The daemon's socket" in shown
    assert (place / "bin/said").read_text() == ""
    assert set((place / "bin/started").read_text().split()) == {"moetunectl"}


def test_fish_completes_a_line(place: Path, daemon: None) -> None:
    needs("fish")

    def offered(line: str) -> list[str]:
        code = f"source {SCRIPTS / SCRIPT['fish']}; complete --do-complete $argv[1]"
        done = subprocess.run(
            ["fish", "-c", code, line],
            cwd=place, env=environment(place), capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert done.stderr == ""
        return done.stdout.splitlines()

    for line, whole in COMPLETED:
        before, _, word = whole.rpartition(" ")
        expected = [] if line == whole else [word]
        assert [row.split("\t")[0].rstrip("/") for row in offered(line)] == expected, (line, before)
    assert "--socket\tThe daemon's socket" in offered("moetunectl status --")
    assert [row.partition("\t")[0] for row in offered("moetunectl estimate models/")] == [
        "models/deep/", "models/one.gguf", "models/two b.gguf",
    ]  # fmt: skip
    assert offered("moetunectl backend restart ") == ["glm-4.6"]
    assert (place / "bin/said").read_text() == ""
    assert set((place / "bin/started").read_text().split()) == {"moetunectl"}


def test_bash_finds_it_by_itself_and_also_behind_sudo(place: Path) -> None:
    """As installed for one user: the package bash-completion loads it when it is wanted."""
    needs("bash")
    package = Path("/usr/share/bash-completion/bash_completion")
    if not package.exists():
        pytest.skip("the package bash-completion is not installed")
    own = place / "home/.local/share/bash-completion/completions"
    shutil.copytree(SCRIPTS / "bash", own)
    (place / "bin/sudo").write_text('#!/bin/sh\nexec "$@"\n')
    (place / "bin/sudo").chmod(0o755)
    shell = Shell("bash", place, environment(place), script=package)
    try:
        found = [shell.complete(line)[0] for line in ("moetuned r", "sudo moetunectl tune roll")]
    finally:
        shell.end()
    assert found == ["moetuned run ", "sudo moetunectl tune rollback "]


@pytest.mark.parametrize("name", ["bash", "zsh"])
def test_nothing_is_said_where_the_program_is_gone(name: str, place: Path) -> None:
    needs(name)
    (place / "bin/moetunectl").unlink()
    shell = Shell(name, place, {**environment(place), "PATH": "/usr/bin:/bin"})
    try:
        line, shown = shell.complete("moetunectl sta")
    finally:
        shell.end()
    assert line == "moetunectl sta"
    assert "not found" not in shown
