"""The files of a memory cgroup, v1 and v2, in v2's words.

v1: Documentation/admin-guide/cgroup-v1/memory.rst; `total_*` counts the children too, as v2 does. No limit is a huge
number there (LONG_MAX rounded down to a page). v2: Documentation/admin-guide/cgroup-v2.rst; no limit is the word "max".
"""

from __future__ import annotations

from collections.abc import Mapping

from moetuned.parse.kernel_numbers import line_number, single_number
from moetuned.parse.pressure import parse_pressure
from moetuned.schema.sample import CgroupMemory, KeptCgroup, KeptMemory

V1_FILES = (
    "memory.usage_in_bytes",
    "memory.limit_in_bytes",
    "memory.stat",
    "memory.oom_control",
    "memory.kmem.usage_in_bytes",
)
V2_FILES = (
    "memory.current",
    "memory.max",
    "memory.high",
    "memory.stat",
    "memory.events",
    "memory.pressure",
    "memory.swap.current",
    "memory.swap.max",
)
_V1_ABOVE_FILES = ("memory.usage_in_bytes", "memory.limit_in_bytes", "memory.stat")
_V2_ABOVE_FILES = (
    "memory.current",
    "memory.max",
    "memory.high",
    "memory.stat",
    "memory.events",
    "memory.swap.current",
    "memory.swap.max",
)
KEPT_FILES = ("memory.current", "memory.stat")
"""What is asked of a cgroup whose memory is kept, besides how much may be (memory.min; version 2)."""
LIMIT_FILES = {1: ("memory.limit_in_bytes",), 2: ("memory.max", "memory.high")}
"""Where a cgroup's own limits are, by version. The root of version 2 has none of them."""
UNLIMITED_BYTES = 1 << 60
"""A v1 limit from here on means none: no machine has an exbibyte."""


def cgroup_file_names(version: int) -> tuple[str, ...]:
    """Names of the files to read in a cgroup's directory; empty for a version that does not exist."""
    return {1: V1_FILES, 2: V2_FILES}.get(version, ())


def above_file_names(version: int) -> tuple[str, ...]:
    """The same for a cgroup above the backend's, of which only use and limit count."""
    return {1: _V1_ABOVE_FILES, 2: _V2_ABOVE_FILES}.get(version, ())


def parse_kept_memory(one: KeptCgroup, files: Mapping[str, str | None]) -> KeptMemory | None:
    """A cgroup that is kept with its memory, from the texts of `KEPT_FILES` by name; None when none could be read."""
    memory = parse_cgroup_memory(2, files)
    if memory is None:
        return None
    return KeptMemory(one.directory, one.keeps_bytes, one.on_machine, one.shares, memory=memory)


def is_limit(text: str | None) -> bool:
    """Whether the text of a limit's file is a limit."""
    number = single_number(text)
    return number is not None and number < UNLIMITED_BYTES


def parse_cgroup_memory(version: int, files: Mapping[str, str | None]) -> CgroupMemory | None:
    """Memory of a cgroup from its files by name; None when none could be read (no such cgroup)."""
    if not any(files.get(name) for name in cgroup_file_names(version)):
        return None
    return _version_1(files) if version == 1 else _version_2(files)


def _version_1(files: Mapping[str, str | None]) -> CgroupMemory:
    stat = files.get("memory.stat") or ""
    own, inherited = single_number(files.get("memory.limit_in_bytes")), line_number(stat, "hierarchical_memory_limit")
    limit = _smallest(own, inherited)
    with_swap = _smallest(line_number(stat, "hierarchical_memsw_limit"))
    refault_file = line_number(stat, "total_workingset_refault_file")
    return CgroupMemory(
        version=1,
        current_bytes=single_number(files.get("memory.usage_in_bytes")),
        limit_bytes=limit,
        anonymous_bytes=line_number(stat, "total_rss"),
        file_bytes=line_number(stat, "total_cache"),
        shared_bytes=line_number(stat, "total_shmem"),
        unevictable_bytes=line_number(stat, "total_unevictable"),
        kernel_bytes=single_number(files.get("memory.kmem.usage_in_bytes")),
        swap_bytes=line_number(stat, "total_swap"),
        swap_limit_bytes=None if with_swap is None or limit is None else max(0, with_swap - limit),
        refault_file_pages=line_number(stat, "total_workingset_refault") if refault_file is None else refault_file,
        refault_anon_pages=line_number(stat, "total_workingset_refault_anon"),
        oom_kills=line_number(files.get("memory.oom_control") or "", "oom_kill"),
        reclaimable_file_bytes=_sum(line_number(stat, "total_active_file"), line_number(stat, "total_inactive_file")),
        swap_in_pages=line_number(stat, "total_pswpin"),
        swap_out_pages=line_number(stat, "total_pswpout"),
    )


def _version_2(files: Mapping[str, str | None]) -> CgroupMemory:
    stat = files.get("memory.stat") or ""
    refault_file = line_number(stat, "workingset_refault_file")
    return CgroupMemory(
        version=2,
        current_bytes=single_number(files.get("memory.current")),
        limit_bytes=_smallest(single_number(files.get("memory.max"))),
        high_bytes=_smallest(single_number(files.get("memory.high"))),
        anonymous_bytes=line_number(stat, "anon"),
        file_bytes=line_number(stat, "file"),
        shared_bytes=line_number(stat, "shmem"),
        unevictable_bytes=line_number(stat, "unevictable"),
        kernel_bytes=line_number(stat, "kernel"),
        swap_bytes=single_number(files.get("memory.swap.current")),
        swap_limit_bytes=_smallest(single_number(files.get("memory.swap.max"))),
        refault_file_pages=line_number(stat, "workingset_refault") if refault_file is None else refault_file,
        refault_anon_pages=line_number(stat, "workingset_refault_anon"),
        oom_kills=line_number(files.get("memory.events") or "", "oom_kill"),
        pressure=parse_pressure(files.get("memory.pressure")),
        reclaimable_file_bytes=_sum(line_number(stat, "active_file"), line_number(stat, "inactive_file")),
        reclaimable_slab_bytes=line_number(stat, "slab_reclaimable"),
        swap_in_pages=line_number(stat, "pswpin"),
        swap_out_pages=line_number(stat, "pswpout"),
        high_passed=line_number(files.get("memory.events") or "", "high"),
    )


def _smallest(*limits: int | None) -> int | None:
    known = [limit for limit in limits if limit is not None and limit < UNLIMITED_BYTES]
    return min(known) if known else None


def _sum(*parts: int | None) -> int | None:
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None
