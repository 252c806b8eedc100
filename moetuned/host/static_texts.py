"""What of a machine does not change from second to second and a bug report needs: kernel, settings, disks, how the backend runs."""

from __future__ import annotations

from collections.abc import Iterable

from moetuned.host.fs import HostFS, RealFS, read_or_none
from moetuned.host.processes import ProcessIdentity

_REAL = RealFS()
_LIMIT_BYTES = 64 << 10
_MACHINE = (
    "/proc/version",
    "/proc/cpuinfo",
    "/proc/swaps",
    "/sys/kernel/mm/transparent_hugepage/enabled",
    "/sys/kernel/mm/transparent_hugepage/defrag",
    "/sys/kernel/mm/lru_gen/enabled",
    "/sys/kernel/mm/lru_gen/min_ttl_ms",
    *(
        f"/proc/sys/vm/{name}"
        for name in (
            "swappiness", "overcommit_memory", "dirty_ratio", "dirty_background_ratio", "vfs_cache_pressure", "min_free_kbytes",
            "watermark_scale_factor", "page-cluster", "max_map_count",
        )
    ),
)  # fmt: skip
_DISK = (
    "size",
    "dev",
    "device/model",
    "queue/rotational",
    "queue/read_ahead_kb",
    "queue/scheduler",
    "queue/nr_requests",
)


def read_static(
    process: ProcessIdentity, disks: Iterable[str], read_ahead_path: str | None = None, fs: HostFS = _REAL
) -> dict[str, str | None]:
    """Text by path, None where it cannot be read. Never raises.

    The process's command line and environment are not among it: whoever needs them has to redact them.
    """
    paths = [*_MACHINE, f"/proc/{process.pid}/cgroup"]
    paths += [f"/sys/block/{disk}/{name}" for disk in disks for name in _DISK]
    if read_ahead_path is not None:
        paths.append(read_ahead_path)
    return {path: read_or_none(fs, path, _LIMIT_BYTES) for path in paths}
