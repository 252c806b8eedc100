"""What is kept counts for every backend, and is given up before anybody is restarted."""

from __future__ import annotations

import msgspec
import pytest
from fakes.fake_kernel import FakeKernel, Limit, add_cgroups

from moetuned.daemon.kept_memory import LOOK_SECONDS, KeptMemory
from moetuned.daemon.watched import Watched
from moetuned.host.cgroup import MemoryCgroup
from moetuned.schema.config import Backend
from moetuned.schema.snapshot import MemoryView
from moetuned.schema.verdict import MemoryState

PATH = "/sys/fs/cgroup/a/memory.min"


@pytest.fixture(name="kernel")
def with_cgroup() -> FakeKernel:
    kernel = FakeKernel({})
    add_cgroups(kernel, "a")
    return kernel


def test_it_is_looked_for_now_and_then(kernel: FakeKernel) -> None:
    watched = Watched("glm", Backend("glm"), 0.0)
    kept = KeptMemory(kernel, lambda _: False)
    kept.follow([watched], 1.0)
    assert watched.identity.kept == ()
    kernel.files[PATH] = Limit("7")
    kept.follow([watched], LOOK_SECONDS)
    assert watched.identity.kept == ()
    kept.follow([watched], 1.0 + LOOK_SECONDS)
    assert [(one.directory, one.keeps_bytes) for one in watched.identity.kept] == [("/sys/fs/cgroup/a", 7)]


@pytest.mark.parametrize("memory", list(MemoryState))
@pytest.mark.parametrize("kept_bytes", [0, 5 << 30])
@pytest.mark.parametrize("ours", [True, False])
def test_it_is_given_up_only_where_it_is_a_part_of_what_is_short(
    kernel: FakeKernel, memory: MemoryState, kept_bytes: int, ours: bool
) -> None:
    told: list[str] = []

    def give_up(why: str) -> bool:
        told.append(why)
        kernel.files[PATH] = Limit("0")
        return ours

    kernel.files[PATH] = Limit("7")
    watched = Watched("glm", Backend("glm"), 0.0)
    watched.verdict = msgspec.structs.replace(watched.verdict, memory=memory)
    watched.memory = MemoryView(kept_bytes=kept_bytes, limit_of="the machine's 32.0 GiB")
    kept = KeptMemory(kernel, give_up)
    kept.follow([watched], 1.0)
    short = memory in (MemoryState.NEAR_LIMIT, MemoryState.CRITICAL) and kept_bytes > 0
    assert kept.gives_up_for(watched) == (short and ours)
    assert bool(told) == short
    kept.follow([watched], 2.0)
    assert bool(watched.identity.kept) != (short and ours), "what it gave up counts no more from the next look on"
    if told:
        assert "memory was near its limit (the machine's 32.0 GiB) for glm, and 5.0 GiB of it was page cache" in told[0]


def test_what_is_given_up_for_one_comes_before_relief_of_the_others_too(kernel: FakeKernel) -> None:
    both = [Watched(name, Backend(name), 0.0) for name in ("glm", "qwen")]
    for watched in both:
        watched.verdict = msgspec.structs.replace(watched.verdict, memory=MemoryState.CRITICAL)
        watched.memory = MemoryView(kept_bytes=5)
    answers = iter([True, False])
    kept = KeptMemory(kernel, lambda _: next(answers))
    kept.follow(both, 1.0)
    assert [kept.gives_up_for(watched) for watched in both] == [True, True]
    kept.follow(both, 2.0)
    assert not kept.gives_up_for(both[0])


def test_a_backend_under_another_limit_is_reason_to_look(kernel: FakeKernel) -> None:
    add_cgroups(kernel, "b/one/inner", "b/two")
    kernel.files["/sys/fs/cgroup/b/two/memory.min"] = Limit("5")
    watched = Watched("glm", Backend("glm"), 0.0)
    kept = KeptMemory(kernel, lambda _: False)
    kept.follow([watched], 1.0)
    assert watched.identity.kept == ()
    watched.cgroup = MemoryCgroup("/sys/fs/cgroup/b/one", 2, limited_above=("/sys/fs/cgroup/b",))
    kept.follow([watched], 2.0)
    assert [(one.directory, one.on_machine) for one in watched.identity.kept] == [("/sys/fs/cgroup/b/two", False)]
