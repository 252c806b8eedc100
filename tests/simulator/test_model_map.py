import os
from pathlib import Path

import pytest

from moetuned.host.model_files import read_model
from moetuned.simulator.model_file import write_model
from moetuned.simulator.model_map import PAGE_BYTES, ModelMap
from moetuned.simulator.model_shape import ModelShape, expert_slice_bytes

SHAPE = ModelShape(
    layers=2, experts=6, experts_used=2, embedding=256, feed_forward=256, heads=2, heads_kv=1, key_length=32
)
SLICE_PAGES = expert_slice_bytes(SHAPE) // PAGE_BYTES


@pytest.fixture
def made(tmp_path):
    path = str(tmp_path / "made.gguf")
    write_model(path, SHAPE, 1, lambda done, total: None)
    return read_model(path)


def mapped_resident_bytes(path):
    """Rss of the mapping of `path` in this process."""
    inside, total = False, 0
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first = line.split()[0]
        if "-" in first:
            inside = line.rstrip().endswith(path)
        elif inside and first == "Rss:":
            total += int(line.split()[1]) << 10
    return total


@pytest.mark.parametrize("threads", [1, 3])
def test_pages_touched_are_those_of_the_slices(made, threads):
    model = ModelMap(made.identity.paths, made.experts, threads)
    for experts in ([0], [1, 4], [0, 1, 2, 3, 4, 5]):
        pages = model.touch_experts(1, experts)
        # Slices do not begin at page borders: one page more each at most.
        assert 3 * len(experts) * SLICE_PAGES <= pages <= 3 * len(experts) * (SLICE_PAGES + 2)
    assert model.touch_experts(0, []) == 0
    assert 0 < model.touch_other() < os.path.getsize(made.identity.paths[0]) // PAGE_BYTES


def test_it_is_a_shared_read_only_mapping_of_the_whole_file(made):
    ModelMap(made.identity.paths, made.experts, 1)
    line = next(
        line
        for line in Path("/proc/self/maps").read_text().splitlines()
        if line.rstrip().endswith(made.identity.paths[0])
    )
    start, _, end = line.split()[0].partition("-")
    assert line.split()[1] == "r--s"
    assert int(end, 16) - int(start, 16) >= made.identity.size_bytes


def test_streaming_maps_every_page_in_file_order(made):
    model = ModelMap(made.identity.paths, made.experts, 1)
    done = []
    model.stream(done.append)
    assert done == sorted(done)
    assert done[-1] == made.identity.size_bytes
    assert mapped_resident_bytes(made.identity.paths[0]) >= made.identity.size_bytes


def test_streaming_works_without_populate(made, monkeypatch):
    monkeypatch.setattr("moetuned.simulator.model_map._MADV_POPULATE_READ", 250)
    model = ModelMap(made.identity.paths, made.experts, 2)
    model.stream(lambda done: None)
    assert mapped_resident_bytes(made.identity.paths[0]) >= made.identity.size_bytes


def test_a_file_cut_short_is_an_error_and_no_crash(made):
    model = ModelMap(made.identity.paths, made.experts, 1)
    os.truncate(made.identity.paths[0], 8192)
    with pytest.raises(OSError, match="cut short"):
        model.touch_experts(1, [5])


def test_a_missing_part_is_an_oserror(made):
    with pytest.raises(FileNotFoundError):
        ModelMap(["/nonexistent.gguf"], made.experts, 1)
