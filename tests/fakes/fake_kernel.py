"""A HostFS in memory that answers as the kernel does.

A plain file takes any text and gives it back; /proc/sys and /sys do not. Here a number is parsed, checked against its
range and printed with a newline, a choice file shows `always [madvise] never`, a pair of files excludes itself, a mount can be
read-only, a write can be refused or adjusted, and somebody else can write in between.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

READ_LIMIT_BYTES = 4 << 20
BOOT_ID = "11111111-2222-3333-4444-555555555555"


def kernel_error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)


class Text:
    """A file that nobody may write (uptime, boot_id)."""

    def __init__(self, text: str) -> None:
        self.text = text

    def read(self) -> str:
        return self.text

    def write(self, text: str) -> None:
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))


class Number:
    """An integer as proc_dointvec_minmax keeps it; `adjust` is what this kernel makes of a value it takes."""

    def __init__(
        self, value: int, lowest: int = 0, highest: int = 2**31 - 1, adjust: Callable[[int], int] = lambda value: value
    ) -> None:
        self.value = value
        self.lowest, self.highest, self.adjust = lowest, highest, adjust
        self.on_write: Callable[[int, int], None] = lambda _old, _new: None

    def read(self) -> str:
        return f"{self.value}\n"

    def write(self, text: str) -> None:
        try:
            value = int(text.split()[0], 0)  # the kernel, too, takes the first number and leaves the rest
        except (IndexError, ValueError):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL)) from None
        if not self.lowest <= value <= self.highest:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        old, self.value = self.value, self.adjust(value)
        self.on_write(old, self.value)


class Choice:
    """A sysfs file that offers words and puts the one in force in brackets; it compares as sysfs_streq does."""

    def __init__(self, words: tuple[str, ...], chosen: str) -> None:
        self.words, self.chosen = words, chosen

    def read(self) -> str:
        return " ".join(f"[{word}]" if word == self.chosen else word for word in self.words) + "\n"

    def write(self, text: str) -> None:
        word = text.removesuffix("\n")
        if word not in self.words:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        self.chosen = word


class StrictNumber(Number):
    """A number in sysfs: kstrtoul takes the whole text or nothing."""

    def write(self, text: str) -> None:
        if not text.removesuffix("\n").isdigit():
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        super().write(text)


class Scheduler(Choice):
    """queue/scheduler: it may be padded with blanks, and a change sets what hangs on it anew (elevator_switch in block/elevator.c).

    The queue's length becomes the disk's own without a scheduler, twice that with one (256 at most); bfq turns write-back
    throttling off while it is chosen, and its default on when it goes; what a person wrote there stays (wbt_disable_default in block/blk-wbt.c).
    """

    def __init__(
        self, words: tuple[str, ...], chosen: str, nr_requests: Number, wbt_lat_usec: Number, depth: int = 128
    ) -> None:
        super().__init__(words, chosen)
        self.nr_requests, self.wbt_lat_usec, self.depth = nr_requests, wbt_lat_usec, depth
        self.wbt_default, self.by_person = wbt_lat_usec.value, False
        wbt_lat_usec.on_write = self._written
        self._limit()

    def read(self) -> str:
        return super().read().removesuffix("\n") + " \n"  # as the kernel does, with a blank

    def write(self, text: str) -> None:
        before = self.chosen
        super().write(text.strip())
        if self.chosen == before:
            return
        self._limit()
        self.nr_requests.value = self.depth if self.chosen == "none" else min(2 * self.depth, 256)
        if "bfq" in (before, self.chosen) and not self.by_person:
            self.wbt_lat_usec.value = 0 if self.chosen == "bfq" else self.wbt_default

    def _written(self, old: int, new: int) -> None:
        self.by_person = self.by_person or old != new

    def _limit(self) -> None:
        self.nr_requests.highest = self.depth if self.chosen == "none" else 8 * self.depth


class Limit:
    """memory.low of a cgroup, and the like: bytes in whole pages, or max (page_counter_memparse in mm/page_counter.c)."""

    def __init__(self, value: str = "0") -> None:
        self.value = value

    def read(self) -> str:
        return f"{self.value}\n"

    def write(self, text: str) -> None:
        word = text.strip()
        if word != "max" and not word.isdigit():
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        self.value = word if word == "max" else str(int(word) // 4096 * 4096)


class Weight:
    """io.weight of a cgroup: a line for all devices and lines for single ones (ioc_weight_write in block/blk-iocost.c)."""

    def __init__(self, default: int = 100, devices: str = "") -> None:
        self.default, self.devices = default, devices

    def read(self) -> str:
        return f"default {self.default}\n{self.devices}"

    def write(self, text: str) -> None:
        word = text.strip().removeprefix("default").strip()
        if not word.isdigit() or not 1 <= int(word) <= 10000:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        self.default = int(word)


Node = Text | Number | Choice | Limit | Weight


class FakeKernel:
    """Files by absolute path. `log` holds every (operation, path, text) that was tried through the HostFS side.

    `before` is called with (operation, path) ahead of each operation: a test raises there, or lets somebody else write.
    """

    def __init__(self, files: dict[str, Node] | None = None) -> None:
        self.files: dict[str, Node] = dict(files or {})
        self.links: dict[str, str] = {}
        self.log: list[tuple[str, str, str]] = []
        self.before: Callable[[str, str], None] = lambda _operation, _path: None
        self._failures: dict[tuple[str, str], list[int]] = {}
        self._read_only: list[str] = []

    # What a test arranges.

    def fail(self, operation: str, path: str, *errors: int) -> None:
        """The next operations ("read", "write") on `path` fail with these errno, one each."""
        self._failures.setdefault((operation, path), []).extend(errors)

    def mount_read_only(self, point: str) -> None:
        """Mount `point` read-only over what is there, as containers do with /proc/sys."""
        self._read_only.append(point)
        mounts = "proc /proc proc rw,nosuid 0 0\nsysfs /sys sysfs rw,nosuid 0 0\n"
        mounts += "".join(f"proc {mounted} proc ro,nosuid,nodev 0 0\n" for mounted in self._read_only)
        self.files["/proc/self/mounts"] = Text(mounts)

    def foreign_write(self, path: str, text: str) -> None:
        """Somebody else writes: nothing is logged, no injected failure applies."""
        self.files[path].write(text)

    def foreign_read(self, path: str) -> str:
        return self.files[path].read()

    def writes(self) -> list[tuple[str, str]]:
        """What was written through the HostFS side, refused writes too."""
        return [(path, text) for operation, path, text in self.log if operation == "write"]

    def settings(self) -> dict[str, str]:
        """Everything that can be written, as it reads now."""
        return {path: node.read() for path, node in self.files.items() if not isinstance(node, Text)}

    # HostFS.

    def read_text(self, path: str, limit_bytes: int = READ_LIMIT_BYTES) -> str:
        self._enter("read", path)
        return self._node(self.follow(path)).read()[:limit_bytes]

    def write_text(self, path: str, text: str) -> None:
        self._enter("write", path, text)
        node = self._node(self.follow(path))
        if not text:  # write(2) of nothing does nothing
            return
        if any(path.startswith(point + "/") for point in self._read_only):
            raise kernel_error(errno.EROFS, path)
        try:
            node.write(text)
        except OSError as error:
            raise kernel_error(error.errno or errno.EIO, path) from None

    def exists(self, path: str) -> bool:
        path = self.follow(path)
        return path in self.files or any(name.startswith(path.rstrip("/") + "/") for name in self.files)

    def list_directory(self, path: str) -> list[str]:
        prefix = self.follow(path).rstrip("/") + "/"
        names = {name.removeprefix(prefix).split("/")[0] for name in self.files if name.startswith(prefix)}
        if not names:
            raise kernel_error(errno.ENOENT, path)
        return sorted(names)

    def resolve_link(self, path: str) -> str:
        if not self.exists(path):
            raise kernel_error(errno.ENOENT, path)
        return self.follow(path)

    def follow(self, path: str) -> str:
        """`path` with all links in it resolved; `links` holds absolute targets."""
        for link, target in self.links.items():
            if path == link or path.startswith(link + "/"):
                return self.follow(target + path.removeprefix(link))
        return path

    def _enter(self, operation: str, path: str, text: str = "") -> None:
        self.before(operation, path)
        self.log.append((operation, path, text))
        failures = self._failures.get((operation, path))
        if failures:
            raise kernel_error(failures.pop(0), path)

    def _node(self, path: str) -> Node:
        if path not in self.files:
            raise kernel_error(errno.ENOENT, path)
        return self.files[path]


def dirty_pair(ratio: int, lowest_bytes: int, *, only_on_change: bool) -> tuple[Number, Number]:
    """A ratio and its bytes as in mm/page-writeback.c: writing one zeroes the other.

    `only_on_change` is vm.dirty_ratio, where a write of the value that stands there leaves the twin alone; the
    background pair zeroes it always.
    """
    ratio_file, bytes_file = Number(ratio, 0, 100), Number(0, lowest_bytes, 2**63 - 1)

    def zero(other: Number) -> Callable[[int, int], None]:
        def on_write(old: int, new: int) -> None:
            if old != new or not only_on_change:
                other.value = 0

        return on_write

    ratio_file.on_write, bytes_file.on_write = zero(bytes_file), zero(ratio_file)
    return ratio_file, bytes_file


class ThpEnabled(Choice):
    """transparent_hugepage/enabled: each write computes vm.min_free_kbytes anew (set_recommended_min_free_kbytes in mm/khugepaged.c).

    With huge pages it is raised to what they need; without, it becomes the kernel's own value, unless a person has written
    more (calculate_min_free_kbytes in mm/page_alloc.c).
    """

    def __init__(self, chosen: str, min_free_kbytes: Number, with_pages: int, without: int) -> None:
        super().__init__(("always", "madvise", "never"), chosen)
        self.min_free_kbytes, self.with_pages, self.without = min_free_kbytes, with_pages, without
        self.person = -1
        min_free_kbytes.on_write = self._written

    def write(self, text: str) -> None:
        super().write(text)
        if self.chosen != "never":
            self.min_free_kbytes.value = max(self.min_free_kbytes.value, self.with_pages)
        elif self.without > self.person:
            self.min_free_kbytes.value = self.without

    def _written(self, _old: int, new: int) -> None:
        self.person = new


def usual_kernel(min_free_kbytes: tuple[int, int] = (67584, 19829)) -> FakeKernel:
    """The settings moetuned knows, with a distribution's usual values; `min_free_kbytes` with and without huge pages."""
    dirty_ratio, dirty_bytes = dirty_pair(20, 8192, only_on_change=True)
    background_ratio, background_bytes = dirty_pair(10, 1, only_on_change=False)
    min_free = Number(min_free_kbytes[0])
    thp = "/sys/kernel/mm/transparent_hugepage"
    return FakeKernel(
        {
            "/proc/sys/kernel/random/boot_id": Text(BOOT_ID + "\n"),
            "/proc/sys/kernel/osrelease": Text("6.18.0\n"),
            "/proc/cmdline": Text("quiet\n"),
            "/proc/meminfo": Text(
                "MemTotal:       67108864 kB\nAnonPages:       2097152 kB\nShmem:            65536 kB\n"
            ),
            "/proc/swaps": Text("Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"),
            "/proc/sys/vm/overcommit_memory": Number(0, 0, 2),
            "/proc/sys/vm/dirty_ratio": dirty_ratio,
            "/proc/sys/vm/dirty_bytes": dirty_bytes,
            "/proc/sys/vm/dirty_background_ratio": background_ratio,
            "/proc/sys/vm/dirty_background_bytes": background_bytes,
            "/proc/sys/vm/vfs_cache_pressure": Number(100),
            "/proc/sys/vm/swappiness": Number(60, 0, 200),
            "/proc/sys/vm/page-cluster": Number(3, 0, 31),
            "/proc/sys/vm/min_free_kbytes": min_free,
            "/proc/sys/vm/watermark_scale_factor": Number(10, 1, 3000),
            "/proc/sys/vm/max_map_count": Number(65530),
            f"{thp}/enabled": ThpEnabled("madvise", min_free, *min_free_kbytes),
            f"{thp}/defrag": Choice(("always", "defer", "defer+madvise", "madvise", "never"), "madvise"),
            f"{thp}/khugepaged/defrag": StrictNumber(1, 0, 1),
            "/sys/kernel/mm/lru_gen/min_ttl_ms": StrictNumber(0, 0, 2**32 - 1),
            "/proc/self/mounts": Text("proc /proc proc rw 0 0\nsysfs /sys sysfs rw 0 0\n"),
        }
    )


def add_disk(
    kernel: FakeKernel, name: str, number: str, read_ahead_kb: int, mount: str = "", *, rotational: bool = False
) -> str:
    """A disk and its bdi; `mount` is where its file system is. Gives the path of the bdi's read-ahead.

    The kernel keeps read-ahead in pages of 4 KiB (read_ahead_kb_store in mm/backing-dev.c).
    """
    bdi, disk = f"/sys/devices/virtual/bdi/{number}", f"/sys/devices/pci0000:00/block/{name}"
    kernel.files[f"{bdi}/read_ahead_kb"] = Number(read_ahead_kb, 0, 2**40, lambda value: value // 4 * 4)
    nr_requests, wbt_lat_usec = StrictNumber(128, 0, 2**31 - 1, lambda value: max(value, 4)), Number(2000, -1)
    kernel.files |= {
        f"{disk}/queue/rotational": Text(f"{int(rotational)}\n"),
        f"{disk}/queue/nr_requests": nr_requests,
        f"{disk}/queue/wbt_lat_usec": wbt_lat_usec,
        f"{disk}/queue/scheduler": Scheduler(
            ("none", "mq-deadline", "kyber", "bfq"), "none", nr_requests, wbt_lat_usec
        ),
    }
    kernel.links |= {
        f"/sys/block/{name}": disk,
        f"/sys/dev/block/{number}": disk,
        f"{disk}/bdi": bdi,
        f"/sys/class/bdi/{number}": bdi,
    }
    if mount:
        table = kernel.files.get("/proc/self/mountinfo", Text("")).read()
        kernel.files["/proc/self/mountinfo"] = Text(table + f"1 1 {number} / {mount} rw - ext4 /dev/{name} rw\n")
    return f"{bdi}/read_ahead_kb"


def memory_stat(anonymous: int = 0, file: int = 0) -> str:
    """memory.stat of a cgroup with so many bytes."""
    return (
        f"anon {anonymous}\nfile {file}\nshmem 0\nkernel 0\nactive_file {file}\ninactive_file 0\nslab_reclaimable 0\n"
    )


def add_cgroups(kernel: FakeKernel, *names: str, kind: str = "cgroup2", root: str = "/sys/fs/cgroup") -> None:
    """Cgroups of version 2 at `root` with the memory and io controllers, and all above them; of version 1 with neither file."""
    table = kernel.files.get("/proc/self/mountinfo", Text("")).read()
    options = "rw,memory" if kind == "cgroup" else "rw,memory_recursiveprot"
    kernel.files["/proc/self/mountinfo"] = Text(table + f"1 1 0:29 / {root} rw - {kind} cgroup {options}\n")
    for name in names:
        parts = name.split("/")
        for count in range(1, len(parts) + 1):
            directory = "/".join((root, *parts[:count]))
            kernel.files.setdefault(f"{directory}/cgroup.procs", Text(""))
            if kind == "cgroup2":
                kernel.files.setdefault(f"{directory}/memory.current", Text("0\n"))
                kernel.files.setdefault(f"{directory}/memory.stat", Text(memory_stat()))
                kernel.files.setdefault(f"{directory}/memory.low", Limit())
                kernel.files.setdefault(f"{directory}/memory.min", Limit())
                kernel.files.setdefault(f"{directory}/memory.max", Limit("max"))
                kernel.files.setdefault(f"{directory}/memory.high", Limit("max"))
                kernel.files.setdefault(f"{directory}/io.weight", Weight())
