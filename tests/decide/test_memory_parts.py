from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moetuned.decide.memory_parts import memory_parts
from moetuned.schema.snapshot import BackendView, MemoryView, ProtectView
from moetuned.schema.verdict import Verdict

GIB = 1 << 30
AMOUNT = st.none() | st.integers(0, 1 << 40)


def view(memory: MemoryView, locked: int = 0) -> BackendView:
    return BackendView(
        "glm", "llama-server", Verdict("glm", 1.0), "", memory=memory, protect=ProtectView(locked_bytes=locked)
    )


def test_everything_known() -> None:
    memory = MemoryView(
        "machine", 32 * GIB, 14 * GIB, 12 * GIB, 18 * GIB, 6 * GIB, GIB, kv_cache_bytes=3 * GIB, backend_start_bytes=5 * GIB,
        growth_kind="prompt_cache",
    )  # fmt: skip
    parts = memory_parts(view(memory, 2 * GIB))
    assert [(part.sign, part.label, part.bytes // GIB) for part in parts] == [
        ("L", "locked weights", 2),
        ("K", "KV cache", 3),
        ("P", "prompt cache", 2),
        ("B", "buffers", 2),
        ("O", "others", 5),
        ("▒", "page cache", 10),
        ("░", "free", 8),
    ]


def test_a_leak_is_called_one() -> None:
    memory = MemoryView("machine", 9 * GIB, 8 * GIB, 0, GIB, 8 * GIB, backend_start_bytes=GIB, growth_kind="leak")
    assert [part.label for part in memory_parts(view(memory))] == [
        "grown since its start (a leak)",
        "the backend's own",
        "free",
    ]


def test_whose_it_is_may_be_unknown() -> None:
    parts = memory_parts(view(MemoryView("machine", 4 * GIB, GIB, 2 * GIB)))
    assert [part.label for part in parts] == ["in use that cannot be given back", "page cache", "free"]
    assert memory_parts(view(MemoryView())) == ()


@given(*[AMOUNT] * 8)
def test_they_add_up_to_what_was_measured(
    limit: int | None, held: int | None, cache: int | None, anonymous: int | None, swapped: int | None, kv: int | None,
    start: int | None, locked: int | None,
) -> None:  # fmt: skip
    memory = MemoryView(
        "cgroup", limit, held, cache, backend_anonymous_bytes=anonymous, backend_swap_bytes=swapped, kv_cache_bytes=kv,
        backend_start_bytes=start,
    )  # fmt: skip
    parts = memory_parts(view(memory, locked or 0))
    assert all(part.bytes > 0 for part in parts)
    assert len({part.sign for part in parts}) == len(parts)
    if parts:
        assert limit is not None
        assert held is not None
        assert sum(part.bytes for part in parts if part.held) == held
        assert sum(part.bytes for part in parts) == max(limit, held)


def test_page_cache_that_is_kept_is_no_cache_that_can_be_given_back() -> None:
    memory = MemoryView("machine", 32 * GIB, 20 * GIB, 18 * GIB, 12 * GIB, 6 * GIB, kept_bytes=11 * GIB)
    parts = memory_parts(view(memory))
    assert [(part.sign, part.bytes // GIB, part.held) for part in parts] == [
        ("B", 6, True),
        ("O", 3, True),
        ("M", 11, True),
        ("▒", 7, False),
        ("░", 5, False),
    ]
