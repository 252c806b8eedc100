from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.parse.cgroup_memory import (
    V1_FILES,
    V2_FILES,
    above_file_names,
    cgroup_file_names,
    is_limit,
    parse_cgroup_memory,
)
from moetuned.schema.sample import CgroupMemory, Pressure

V1 = {
    "memory.usage_in_bytes": "1048354816\n",
    "memory.limit_in_bytes": "1048576000\n",
    "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
    "memory.kmem.usage_in_bytes": "4096\n",
    "memory.stat": "cache 1\nrss 2\nhierarchical_memory_limit 1048576000\nhierarchical_memsw_limit 2097152000\n"
    "total_cache 959631360\ntotal_rss 80117760\ntotal_shmem 8192\ntotal_workingset_refault_anon 4\n"
    "total_workingset_refault_file 20330897\ntotal_swap 0\ntotal_inactive_file 650981376\n"
    "total_active_file 308609024\ntotal_unevictable 0\n",
}
V2 = {
    "memory.current": "1048354816\n",
    "memory.max": "1048576000\n",
    "memory.high": "max\n",
    "memory.events": "low 0\nhigh 0\nmax 7\noom 1\noom_kill 1\noom_group_kill 0\n",
    "memory.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=12\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=3\n",
    "memory.swap.current": "0\n",
    "memory.swap.max": "max\n",
    "memory.stat": "anon 80117760\nfile 959631360\nkernel 12345\nshmem 8192\ninactive_file 650981376\nactive_file 308609024\n"
    "unevictable 0\nslab_reclaimable 100\nworkingset_refault_anon 4\nworkingset_refault_file 20330897\n",
}


def test_version_1_counts_children_too() -> None:
    assert parse_cgroup_memory(1, V1) == CgroupMemory(
        version=1,
        current_bytes=1048354816,
        limit_bytes=1048576000,
        anonymous_bytes=80117760,
        file_bytes=959631360,
        shared_bytes=8192,
        unevictable_bytes=0,
        kernel_bytes=4096,
        swap_bytes=0,
        swap_limit_bytes=1048576000,
        refault_file_pages=20330897,
        refault_anon_pages=4,
        oom_kills=2,
        reclaimable_file_bytes=959590400,
    )


def test_version_2() -> None:
    assert parse_cgroup_memory(2, V2) == CgroupMemory(
        version=2,
        current_bytes=1048354816,
        limit_bytes=1048576000,
        anonymous_bytes=80117760,
        file_bytes=959631360,
        shared_bytes=8192,
        unevictable_bytes=0,
        kernel_bytes=12345,
        swap_bytes=0,
        refault_file_pages=20330897,
        refault_anon_pages=4,
        oom_kills=1,
        pressure=Pressure(12, 3),
        reclaimable_file_bytes=959590400,
        reclaimable_slab_bytes=100,
        high_passed=0,
    )


@pytest.mark.parametrize(
    ("own", "inherited", "limit"),
    [
        ("9223372036854771712\n", 9223372036854771712, None),
        ("9223372036854771712\n", 1000, 1000),
        ("500\n", 1000, 500),
        ("2000\n", 1000, 1000),
    ],
)
def test_version_1_takes_the_smaller_of_its_own_limit_and_the_inherited(
    own: str, inherited: int, limit: int | None
) -> None:
    files = {"memory.limit_in_bytes": own, "memory.stat": f"cache 0\nhierarchical_memory_limit {inherited}\n"}
    memory = parse_cgroup_memory(1, files)
    assert memory is not None
    assert memory.limit_bytes == limit


def test_no_file_is_no_cgroup() -> None:
    assert parse_cgroup_memory(2, dict.fromkeys(V2_FILES)) is None
    assert parse_cgroup_memory(3, V2) is None
    assert cgroup_file_names(3) == ()


def test_kernels_before_5_9_count_refaults_of_files_only() -> None:
    memory = parse_cgroup_memory(1, {"memory.stat": "cache 0\ntotal_workingset_refault 9\n"})
    assert memory is not None
    assert memory.refault_file_pages == 9


def test_swapped_pages_of_a_cgroup_where_the_kernel_counts_them() -> None:
    newer = {**V2, "memory.stat": V2["memory.stat"] + "pswpin 7\npswpout 9\n", "memory.events": "high 3\noom_kill 0\n"}
    memory = parse_cgroup_memory(2, newer)
    assert memory is not None
    assert (memory.swap_in_pages, memory.swap_out_pages, memory.high_passed) == (7, 9, 3)
    older = parse_cgroup_memory(1, V1)
    assert older is not None
    assert (older.swap_in_pages, older.swap_out_pages, older.high_passed) == (None, None, None)


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("max\n", False),
        ("9223372036854771712\n", False),
        ("1048576\n", True),
        ("0\n", True),
        ("10485", False),
        (None, False),
    ],
)
def test_what_is_a_limit(text: str | None, limit: bool) -> None:
    assert is_limit(text) is limit


def test_above_the_backend_only_use_and_limit_are_read() -> None:
    for version, files in ((1, V1_FILES), (2, V2_FILES)):
        assert set(above_file_names(version)) < set(files)
    assert above_file_names(3) == ()
    above = parse_cgroup_memory(2, {name: V2[name] for name in above_file_names(2)})
    assert above is not None
    assert (above.limit_bytes, above.current_bytes, above.pressure) == (1048576000, 1048354816, None)


@pytest.mark.parametrize(("version", "files"), [(1, V1), (2, V2)])
@given(data=st.data())
def test_cut_text_gives_right_numbers_or_none(version: int, files: dict[str, str], data: st.DataObject) -> None:
    whole = parse_cgroup_memory(version, files)
    cut = {name: text[: data.draw(st.integers(0, len(text)))] for name, text in files.items()}
    parsed = parse_cgroup_memory(version, cut)
    if parsed is not None:
        for field in CgroupMemory.__struct_fields__:
            if field not in ("limit_bytes", "swap_limit_bytes", "pressure"):
                assert getattr(parsed, field) in (None, getattr(whole, field))


@given(st.sampled_from([1, 2]), st.dictionaries(st.sampled_from(V1_FILES + V2_FILES), st.one_of(st.none(), st.text())))
def test_hostile_text_is_no_exception(version: int, files: dict[str, str | None]) -> None:
    parsed = parse_cgroup_memory(version, files)
    assert parsed is None or parsed.version == version
