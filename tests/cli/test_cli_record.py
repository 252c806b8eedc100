"""The command: options, refusals, and a real recording of a process in an own cgroup that is replayed and graded."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from fakes.own_cgroup import own_cgroup
from trace_truth import Said, faults

from moetuned.cli.record import caller, command, stopped_by_signals
from moetuned.cli.replay import command as replay_command
from moetuned.simulator.make_model import main as make_model


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(command, arguments)
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["a.txt"], "must end in .jsonl or .jsonl.gz"),
        (["a.jsonl", "--interval", "10s"], "between 200ms and 4s"),
        (["a.jsonl", "--interval", "1ms"], "between 200ms and 4s"),
        (["a.jsonl", "--seconds", "0"], "0 is too little"),
        (["a.jsonl", "--seconds", "soon"], "no duration"),
        (["a.jsonl", "--max-size", "x"], "max-size"),
        (["a.jsonl", "--backend", "x", "--pid", "1"], "not both"),
        (["a.jsonl", "--pid", "4194304"], "no process 4194304 runs"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert says in err
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_there_stays(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("mine")
    code, _, err = run(str(path), "--pid", str(os.getpid()))
    assert (code, path.read_text()) == (2, "mine")
    assert "--force" in err
    assert err.count("\n") == 1


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    code, _, err = run(str(tmp_path / "none" / "a.jsonl"), "--pid", str(os.getpid()))
    assert code == 2
    assert "cannot be made: No such file" in err


def test_this_process_for_a_moment(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    code, out, err = run(str(path), "--pid", str(os.getpid()), "--seconds", "400ms", "--interval", "200ms")
    assert (code, err) == (0, "")
    assert "a.jsonl.gz" in out
    assert "http     nothing" in out
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    result = CliRunner().invoke(replay_command, [str(path), "--json"])
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert result.exit_code == 0
    assert rows
    assert {row["phase"] for row in rows} == {"unknown"}
    assert run(str(path), "--pid", str(os.getpid()), "--seconds", "200ms", "--force", "--anonymous")[0] == 0


def test_one_that_would_be_too_large_from_the_start_is_not_left(tmp_path: Path) -> None:
    code, _, err = run(str(tmp_path / "a.jsonl"), "--pid", str(os.getpid()), "--max-size", "100")
    assert code == 1
    assert "nothing was recorded: stopped at its largest size" in err
    assert list(tmp_path.iterdir()) == []


def test_it_is_given_to_who_said_sudo() -> None:
    given = {"SUDO_UID": "1000", "SUDO_GID": "1001"}
    assert caller(given.get) == ((1000, 1001) if os.geteuid() == 0 else None)
    assert caller({"SUDO_UID": "x", "SUDO_GID": "1"}.get) is None
    assert caller({"SUDO_UID": "4294967295", "SUDO_GID": "1"}.get) is None
    assert caller({"SUDO_UID": "9999999999", "SUDO_GID": "1"}.get) is None
    assert caller({}.get) is None


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_pause_and_nothing_else(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with stopped_by_signals() as pause:
        assert pause(0) is False
        signal.raise_signal(number)
        signal.raise_signal(number)
        assert pause(600) is True
    assert signal.getsignal(number) is before


# With a real llama.cpp


def server_command(model: Path, port: int) -> list[str]:
    """llama-server where there is one, else the wheel's; skips without either."""
    program = os.environ.get("LLAMA_SERVER") or shutil.which("llama-server")
    flags = ["-m", str(model), "--port", str(port), "-c", "512", "-np", "1", "-t", "1", "--metrics"]
    if program is not None:
        return [program, *flags, "--no-repack", "-cram", "0", "--alias", "S3cr3tW0rd"]
    pytest.importorskip("xllamacpp")
    return [sys.executable, "-m", "moetuned.xllamacpp_server", *flags]


def ask(port: int, tokens: int) -> None:
    body = json.dumps({"prompt": "S3cr3tW0rd of a user", "n_predict": tokens, "ignore_eos": True}).encode()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/completion", body, timeout=120) as answer:
        answer.read()


def wait_until_ready(process: subprocess.Popen[bytes], port: int) -> None:
    for _ in range(600):
        assert process.poll() is None, "the server ended"
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1) as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(0.1)
    pytest.fail("the server is not ready after a minute")


@pytest.mark.backend
def test_a_real_backends_seconds_are_replayed_as_they_were(tmp_path: Path) -> None:
    model, out = tmp_path / "m.gguf", tmp_path / "a.jsonl.gz"
    assert make_model([str(model), "--size", "60M"]) == 0
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with own_cgroup() as directory:
        join = 'echo $$ > "$0"/cgroup.procs; exec "$@"'
        environ = {**os.environ, "HF_TOKEN": "S3cr3tW0rd", "LLAMA_ARG_TAGS": "S3cr3tW0rd"}
        with subprocess.Popen(
            ["/bin/sh", "-c", join, directory, *server_command(model, port)],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environ,
        ) as server:  # fmt: skip
            try:
                wait_until_ready(server, port)
                recorder = subprocess.Popen(
                    [sys.executable, "-c", "from moetuned.cli.main import main; main()", "record", str(out),
                     "--pid", str(server.pid), "--interval", "500ms"],
                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                )  # fmt: skip
                for _ in range(600):
                    if out.exists() and out.stat().st_size:
                        break
                    time.sleep(0.1)
                began = time.time()
                while time.time() - began < 6:
                    ask(port, 24)
                ended = time.time()
                recorder.send_signal(signal.SIGINT)
                said, trouble = recorder.communicate(timeout=60)
            finally:
                server.kill()
    assert (recorder.returncode, trouble) == (0, "")
    assert f"cgroup   {directory}/" in said
    assert "numbers of /health" in said
    text = gzip.decompress(out.read_bytes()).decode()
    assert "S3cr3tW0rd" not in text
    lines = [json.loads(line) for line in text.splitlines()]
    assert lines[0]["backend"]["model"]["layout"]["experts"] > 0
    assert any("residency" in line for line in lines)
    result = CliRunner().invoke(replay_command, [str(out), "--json", "--signals"])
    rows: list[dict[str, Any]] = [json.loads(line) for line in result.stdout.splitlines()]
    assert len(rows) == len(lines)
    truth = {
        "never": ["thrash_begin", "memory_near_limit", "cache_evicted", "backend_down"],
        "phase": [{"from": began + 1.5, "to": ended, "in": ["prefill", "decode", "idle"]}],
        "paging": [{"from": began + 3, "to": ended, "in": ["steady", "warming"]}],
        "memory": [{"from": began, "to": ended, "in": ["ok"]}],
    }
    offset = lines[0]["wall"] - lines[0]["t"]
    assert faults(truth, [Said(row["t"] + offset, row, row["events"]) for row in rows]) == []
    assert any((row["signals"]["tokens_per_second"] or 0) > 0 for row in rows)
