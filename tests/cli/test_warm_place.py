"""Where pages are charged, and what is free there."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import pytest
from fakes.cold_file import make_cold_file
from fakes.own_cgroup import own_cgroup

from moetuned.cli import warm_place
from moetuned.cli.warm_place import MappedBy, Place, PlaceError, find_place, limits_at, users_of
from moetuned.host.cgroup import MemoryCgroup

MIB = 1 << 20
OWN, THEIRS = MemoryCgroup("/sys/fs/cgroup/own", 2), MemoryCgroup("/sys/fs/cgroup/llama.service", 2)
SERVER = MappedBy(77, "llama-server", "llama-server")
OTHER = MappedBy(5, "vmtouch", None)


@pytest.fixture
def cgroups(monkeypatch: pytest.MonkeyPatch) -> dict[int, MemoryCgroup]:
    known = {os.getpid(): OWN, 77: THEIRS}
    monkeypatch.setattr(warm_place, "memory_cgroup", lambda pid: known[pid])
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return known


def test_root_warms_in_the_backends_cgroup(cgroups: dict[int, MemoryCgroup]) -> None:
    place = find_place([SERVER])
    assert (place.join, place.charged, place.version) == (THEIRS.directory, THEIRS.directory, 2)
    assert place.said == "charged to /sys/fs/cgroup/llama.service, the cgroup of llama-server (pid 77)"


def test_without_root_it_stays_and_says_so(cgroups: dict[int, MemoryCgroup], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    place = find_place([SERVER])
    assert (place.join, place.charged) == (None, OWN.directory)
    assert "only root may charge them to /sys/fs/cgroup/llama.service" in place.said


@pytest.mark.parametrize("users", [[], [OTHER]])
def test_no_backend(cgroups: dict[int, MemoryCgroup], users: list[MappedBy]) -> None:
    place = find_place(users)
    assert (place.join, place.charged) == (None, OWN.directory)
    assert place.said.endswith("where this command runs")


@pytest.mark.parametrize(
    ("theirs", "said"),
    [
        (OWN, "as those of llama-server (pid 77) are"),
        (MemoryCgroup(version=2), "is in no cgroup"),
        (MemoryCgroup(unknown="it has ended"), "is unknown: it has ended"),
    ],
)
def test_nothing_to_join(cgroups: dict[int, MemoryCgroup], theirs: MemoryCgroup, said: str) -> None:
    cgroups[77] = theirs
    place = find_place([SERVER])
    assert (place.join, place.charged) == (None, OWN.directory)
    assert said in place.said


@pytest.mark.parametrize("directory", ["/tmp", "/sys/fs/cgroup/moetuned-test-none", "relative"])
def test_a_cgroup_that_is_none(directory: str) -> None:
    with pytest.raises(PlaceError) as raised:
        find_place([], directory)
    assert directory in str(raised.value)
    assert not raised.value.refused


@pytest.mark.kernel
def test_a_cgroup_that_was_asked_for_and_its_limits() -> None:
    with own_cgroup(300 * MIB) as directory:
        place = find_place([SERVER], directory)
        assert place.join == place.charged == directory
        machine, own, *_ = limits_at(place)
        assert machine.scope == "machine"
        assert machine.limit_bytes is not None
        assert (own.scope, own.limit_bytes) == (directory, 300 * MIB)
        assert own.headroom_bytes is not None
        assert own.headroom_bytes > 200 * MIB


@pytest.mark.kernel
def test_limits_above_count() -> None:
    with own_cgroup(200 * MIB) as directory:
        inner = f"{directory}/inner"
        os.mkdir(inner)
        try:
            limits = {view.scope: view.limit_bytes for view in limits_at(Place(inner, inner, _version(directory), ""))}
        finally:
            os.rmdir(inner)
        assert limits[directory] == 200 * MIB
        assert inner in limits


def _version(directory: str) -> int:
    return 2 if os.path.exists(f"{directory}/memory.current") else 1


def test_without_a_cgroup_there_is_the_machine() -> None:
    (machine,) = limits_at(Place(None, None, None, ""))
    assert machine.scope == "machine"


def test_who_maps_the_model_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_cold_file(tmp_path / "m.gguf", MIB)
    assert users_of([path]) == ()
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ):
        (found,) = users_of([path])
        assert (found.pid, found.kind) == (os.getpid(), None)
        monkeypatch.setattr(warm_place, "mapped_by", lambda _paths: (3, 4, 5))
        lines = {3: ("/usr/bin/vmtouch",), 4: ("/opt/llama-server", "-m", "x"), 5: ()}
        monkeypatch.setattr(warm_place, "command_line", lines.get)
        assert [(one.pid, one.name) for one in users_of([path])] == [(4, "llama-server"), (3, "vmtouch")]
