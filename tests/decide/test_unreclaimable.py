"""What of a cgroup's memory can never be taken to make room."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moetuned.decide.unreclaimable import unreclaimable_bytes
from moetuned.schema.sample import CgroupMemory


def test_all_that_is_on_no_list_of_page_cache() -> None:
    memory = CgroupMemory(2, current_bytes=10, reclaimable_file_bytes=6, reclaimable_slab_bytes=1, anonymous_bytes=99)
    assert unreclaimable_bytes(memory) == 3
    assert unreclaimable_bytes(CgroupMemory(2, current_bytes=5, reclaimable_file_bytes=9)) == 0, "read a moment apart"


def test_without_those_lists_its_parts_and_without_them_nothing_is_known() -> None:
    assert unreclaimable_bytes(CgroupMemory(1, anonymous_bytes=3, shared_bytes=2, kernel_bytes=1)) == 6
    assert unreclaimable_bytes(CgroupMemory(1, current_bytes=10)) is None


@given(st.integers(0, 1 << 50), st.integers(0, 1 << 50), st.none() | st.integers(0, 1 << 50))
def test_it_is_never_more_than_is_used(current: int, file: int, slab: int | None) -> None:
    memory = CgroupMemory(2, current_bytes=current, reclaimable_file_bytes=file, reclaimable_slab_bytes=slab)
    assert 0 <= (unreclaimable_bytes(memory) or 0) <= current
