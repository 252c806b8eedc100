"""What was learned of a model's experts, found by either of its names."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes.gguf_bytes import TensorSpec, gguf_bytes, moe_metadata, moe_tensors

from moetuned.cli.learned_heat import known_use, learned_heat
from moetuned.cli.model_residency import Look, PartResidency
from moetuned.cli.warm_here import plan_for
from moetuned.host.model_files import ModelFile, read_model
from moetuned.host.model_stamp import model_stamp
from moetuned.schema.heat import ExpertPages, Heat
from moetuned.state import heat_store

PAGES = ExpertPages(2, 4, (0,) * 8, (1,) * 8)


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModelFile:
    monkeypatch.setenv("MOETUNED_STATE_DIR", str(tmp_path / "state"))
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf_bytes(moe_metadata(), moe_tensors()))
    return read_model(str(path))


def learn(model: ModelFile, tmp_path: Path) -> Heat:
    heat = Heat(model_stamp(model), 2, 4, (0, 0, 5, 0, 0, 7, 0, 0), 7, 1.0)
    directory = str(tmp_path / "state" / "heat")
    assert heat_store.save(model.identity.paths, heat, 1.0, restore_interrupted=False, directory=directory)
    return heat


def test_nothing_was_learned(model: ModelFile) -> None:
    assert learned_heat(model, PAGES) == "nothing was learned of its experts yet"
    assert known_use(model) is None


def test_by_its_own_name_and_by_a_link(model: ModelFile, tmp_path: Path) -> None:
    heat = learn(model, tmp_path)
    assert learned_heat(model, PAGES) == heat
    link = tmp_path / "link.gguf"
    link.symlink_to(model.identity.paths[0])
    assert learned_heat(read_model(str(link)), PAGES) == heat


def test_another_model_of_that_name(model: ModelFile, tmp_path: Path) -> None:
    learn(model, tmp_path)
    path = Path(model.identity.paths[0])
    path.write_bytes(gguf_bytes(moe_metadata(), moe_tensors()) + b"more")
    assert isinstance(learned_heat(read_model(str(path)), PAGES), str)
    assert isinstance(learned_heat(model, PAGES), str)  # read before it was replaced


def test_what_was_used_last_is_warmed_first(model: ModelFile, tmp_path: Path) -> None:
    learn(model, tmp_path)
    use = known_use(model)
    assert use is not None
    assert use.order == ((1, 1), (0, 2))
    assert not use.just_loaded
    size, experts = model.identity.size_bytes, model.identity.layout.expert_bytes  # type: ignore[union-attr]
    cold = Look((PartResidency(model.identity.paths[0], size, 0, experts, 0),))
    plan = plan_for(model, size - experts + experts // 4, cold, use)
    assert "of experts that were used" in plan.reason
    assert plan.page_out == ()


def test_a_dense_model_has_no_use(tmp_path: Path) -> None:
    path = tmp_path / "dense.gguf"
    metadata = {"general.architecture": "llama", "llama.block_count": 1}
    path.write_bytes(gguf_bytes(metadata, [TensorSpec("blk.0.attn_q.weight", (64, 64))]))
    assert known_use(read_model(str(path))) is None
