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


Node = Text | Number | Choice


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


def usual_kernel() -> FakeKernel:
    """The settings moetuned knows, with a distribution's usual values."""
    dirty_ratio, dirty_bytes = dirty_pair(20, 8192, only_on_change=True)
    background_ratio, background_bytes = dirty_pair(10, 1, only_on_change=False)
    return FakeKernel(
        {
            "/proc/sys/kernel/random/boot_id": Text(BOOT_ID + "\n"),
            "/proc/sys/vm/overcommit_memory": Number(0, 0, 2),
            "/proc/sys/vm/dirty_ratio": dirty_ratio,
            "/proc/sys/vm/dirty_bytes": dirty_bytes,
            "/proc/sys/vm/dirty_background_ratio": background_ratio,
            "/proc/sys/vm/dirty_background_bytes": background_bytes,
            "/proc/sys/vm/vfs_cache_pressure": Number(100),
            "/sys/kernel/mm/transparent_hugepage/enabled": Choice(("always", "madvise", "never"), "madvise"),
            "/proc/self/mounts": Text("proc /proc proc rw 0 0\nsysfs /sys sysfs rw 0 0\n"),
        }
    )


def add_disk(kernel: FakeKernel, name: str, number: str, read_ahead_kb: int, mount: str = "") -> str:
    """A disk and its bdi; `mount` is where its file system is. Gives the path of the bdi's read-ahead.

    The kernel keeps read-ahead in pages of 4 KiB (read_ahead_kb_store in mm/backing-dev.c).
    """
    bdi, disk = f"/sys/devices/virtual/bdi/{number}", f"/sys/devices/pci0000:00/block/{name}"
    kernel.files[f"{bdi}/read_ahead_kb"] = Number(read_ahead_kb, 0, 2**40, lambda value: value // 4 * 4)
    kernel.files[f"{disk}/queue/rotational"] = Text("0\n")
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
