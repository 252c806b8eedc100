from __future__ import annotations

from pathlib import Path

from fakes.gguf_bytes import gguf_bytes, moe_metadata, moe_tensors

from moetuned.decide.read_ahead import typical_slice_bytes
from moetuned.host.model_outline import read_outline
from moetuned.host.tuning_targets import find_targets, model_target
from moetuned.schema.config import Backend, Config
from moetuned.schema.supervise import SuperviseProcess
from moetuned.schema.tunable import CgroupTarget, ModelTarget, Targets


def test_each_model_once_and_no_cgroup_that_nothing_is_asked_for() -> None:
    backends = [
        Backend("a", model="/m/a.gguf"),
        Backend("b", model="/m/b.gguf", supervise=SuperviseProcess(["s"], cgroup="/sys/fs/cgroup/b")),
        Backend("c", model="/m/a.gguf"),
        Backend("d"),
    ]
    found = find_targets(Config(backends=backends), slice_of=lambda path: ModelTarget(path, 7))
    assert found == Targets((ModelTarget("/m/a.gguf", 7), ModelTarget("/m/b.gguf", 7)))


def test_the_slice_of_a_model_and_why_there_is_none(tmp_path: Path) -> None:
    moe, dense, broken = (tmp_path / name for name in ("moe.gguf", "dense.gguf", "broken.gguf"))
    moe.write_bytes(gguf_bytes(moe_metadata(), moe_tensors()))
    dense.write_bytes(gguf_bytes(moe_metadata(), [tensor for tensor in moe_tensors() if "exps" not in tensor.name]))
    broken.write_bytes(b"GGUF")
    assert model_target(str(moe)) == ModelTarget(str(moe), typical_slice_bytes(read_outline(str(moe)).experts))
    assert model_target(str(moe)).slice_bytes
    for path in (dense, broken, tmp_path / "none.gguf"):
        target = model_target(str(path))
        assert target.slice_bytes is None
        assert str(path) in (target.unknown or "")


def test_cgroups_of_the_config_and_of_backends_that_run() -> None:
    backends = [
        Backend("own", memory_low="1GiB", supervise=SuperviseProcess(["s"], cgroup="/sys/fs/cgroup/own")),
        Backend("unit", io_weight=500),
        Backend("gone", io_weight=500),
        Backend("hard", memory_min="2GiB"),
        Backend("plain"),
    ]
    running = {"unit": "/sys/fs/cgroup/system.slice/llama.service", "own": "/sys/fs/cgroup/else"}
    assert find_targets(Config(backends=backends), running).cgroups == (
        CgroupTarget("own", "/sys/fs/cgroup/own", 1 << 30, None),
        CgroupTarget("unit", "/sys/fs/cgroup/system.slice/llama.service", None, 500),
        CgroupTarget("gone", None, None, 500),
        CgroupTarget("hard", memory_min_bytes=2 << 30),
    )


def test_a_backend_that_runs_where_the_daemon_does_has_no_cgroup_to_set() -> None:
    child = Backend("glm", memory_low="1GiB", supervise=SuperviseProcess(["s"]))
    apart = Backend("own", memory_low="1GiB", supervise=SuperviseProcess(["s"], cgroup="/sys/fs/cgroup/own"))
    config = Config(backends=[child, apart])
    first, second = find_targets(config, {}, with_daemon={"glm", "own"}).cgroups
    assert first.directory is None
    assert first.unknown is not None
    assert "glm is in moetuned's own cgroup" in first.unknown
    assert second == CgroupTarget("own", "/sys/fs/cgroup/own", 1 << 30)
