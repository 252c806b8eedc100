from __future__ import annotations

import hashlib
import os
import threading
from pathlib import Path

import pytest

from moetuned.host import model_hash
from moetuned.host.file_hash import FileHashError, Follow, hash_file
from moetuned.host.model_hash import HashJob, HashOutcome, ModelHash, worker_count
from moetuned.host.sha256_state import HashState


@pytest.mark.parametrize("workers", [1, 3])
def test_every_file_gets_its_sum_or_a_sentence(tmp_path: Path, workers: int):
    paths = [tmp_path / f"{number}" for number in range(5)]
    for path in paths:
        path.write_bytes(os.urandom(1000))
    jobs = [HashJob(str(path), 1000) for path in [*paths, tmp_path / "none"]]
    hashing = ModelHash(jobs, workers)
    assert hashing.wait(60)
    assert {path: one.sha256 for path, one in hashing.outcomes.items() if one.problem is None} == {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths
    }
    assert hashing.outcomes[str(tmp_path / "none")] == HashOutcome(
        problem="cannot be opened: No such file or directory"
    )
    assert hashing.done_bytes == 5000
    assert hashing.current is None


def test_nothing_to_do_is_done_at_once():
    assert ModelHash([], 2).wait(0)


def test_it_stops_between_pieces_and_says_how_far_it_got(monkeypatch: pytest.MonkeyPatch):
    stopped = threading.Event()
    ended = threading.Event()
    state = HashState(64, "0" * 64)

    def slow(path: str, follow: Follow, start: HashState | None = None) -> str | None:
        assert start == HashState(32, "1" * 64)
        assert follow(64, state)
        stopped.wait(60)
        going_on = follow(65, None)
        ended.set()
        return "never" if going_on else None

    monkeypatch.setattr(model_hash, "hash_file", slow)
    hashing = ModelHash([HashJob("/a", 100, HashState(32, "1" * 64)), HashJob("/b", 100)], 1)
    assert not hashing.wait(0)
    hashing.stop(0)
    stopped.set()
    assert ended.wait(60)
    assert hashing.states == {"/a": state}
    assert hashing.done_bytes == 65
    assert hashing.current == "/a"
    assert hashing.outcomes == {}


def test_a_failure_in_one_file_does_not_end_the_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    path = tmp_path / "f"
    path.write_bytes(b"x")

    def failing(path: str, follow: Follow, start: HashState | None = None) -> str | None:
        if path == "/bad":
            raise FileHashError("is bad")
        return hash_file(path, follow, start)

    monkeypatch.setattr(model_hash, "hash_file", failing)
    hashing = ModelHash([HashJob("/bad", 1), HashJob(str(path), 1)], 1)
    assert hashing.wait(60)
    assert hashing.outcomes["/bad"].problem == "is bad"
    assert hashing.outcomes[str(path)].sha256 == hashlib.sha256(b"x").hexdigest()


def test_half_of_the_processors_and_never_more_than_files():
    assert worker_count(1) == 1
    assert 1 <= worker_count(100) <= model_hash.MOST_WORKERS
