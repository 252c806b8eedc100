"""What of a cgroup's memory the kernel can take nothing of. Pure."""

from __future__ import annotations

from moetuned.schema.sample import CgroupMemory


def unreclaimable_bytes(cgroup: CgroupMemory) -> int | None:
    """What the kernel can take nothing of to make room, swap apart; None: unknown."""
    if cgroup.current_bytes is not None and cgroup.reclaimable_file_bytes is not None:
        reclaimable = cgroup.reclaimable_file_bytes + (cgroup.reclaimable_slab_bytes or 0)
        return max(0, cgroup.current_bytes - reclaimable)
    if cgroup.anonymous_bytes is None:
        return None
    return cgroup.anonymous_bytes + (cgroup.shared_bytes or 0) + (cgroup.kernel_bytes or 0)
