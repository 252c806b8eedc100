"""Kernel texts without what tells about people: for recordings that are sent to others. The numbers that parsers read all stay."""

from __future__ import annotations

from collections.abc import Callable, Iterable

_STATUS_KEPT = (
    "State:", "Tgid:", "Pid:", "Vm", "Rss", "HugetlbPages:", "Threads:", "Cpus_allowed_list:", "Mems_allowed_list:",
    "voluntary_ctxt_switches:", "nonvoluntary_ctxt_switches:",
)  # fmt: skip
_CPU_KEPT = frozenset(
    ("vendor_id", "cpu family", "model", "model name", "stepping", "cache size", "siblings", "cpu cores", "flags",
     "CPU implementer", "CPU architecture", "CPU part", "Features", "Model")
)  # fmt: skip
"""Boards put a serial number into the same file."""
CGROUP_ROOT = "/sys/fs/cgroup"
_V1_MEMORY = ("memory", "unified")


def redact_file(path: str, text: str | None) -> str | None:
    """The text of a file of /proc or /sys as it may be shown to anybody; unchanged where it holds numbers only."""
    if text is None:
        return None
    redact = _BY_NAME.get(path.rpartition("/")[2]) if path.startswith("/proc/") else None
    return text if redact is None else redact(text)


def anonymous_cgroup(directory: str) -> str:
    """A cgroup's directory with a number in place of each name: units, containers and slices tell who and what runs.

    Directories above one another stay so.
    """
    below = directory.removeprefix(CGROUP_ROOT).strip("/").split("/") if directory.startswith(CGROUP_ROOT) else [""]
    kept = below[:1] if below[0] in _V1_MEMORY else []
    names = [f"level{number}" for number in range(1, len([part for part in below[len(kept) :] if part]) + 1)]
    return "/".join((CGROUP_ROOT, *kept, *names))


def _stat(text: str) -> str:
    """/proc/<pid>/stat: the command's name, which may hold anything, ends at the last bracket. Not for /proc/stat."""
    before, opening, rest = text.partition("(")
    _, closing, numbers = rest.rpartition(")")
    return f"{before}(backend){numbers}" if opening and closing and before.strip().isdigit() else text


def _status(text: str) -> str:
    """/proc/<pid>/status: no name, no user, no groups. A line that was cut stays cut."""
    return "".join(line for line in text.splitlines(keepends=True) if line.startswith(_STATUS_KEPT))


def _version(text: str) -> str:
    """/proc/version names who built the kernel, and where."""
    return " ".join(text.split()[:3]) + "\n"


def _cpu_info(text: str) -> str:
    """/proc/cpuinfo: the first processor, without serial numbers."""
    first = text.partition("\n\n")[0]
    return _lines(line for line in first.splitlines() if line.partition(":")[0].strip() in _CPU_KEPT)


def _swaps(text: str) -> str:
    """/proc/swaps: what kind, how large and how full; a swap file may lie in somebody's directory."""
    head, *rest = text.splitlines() or [""]
    return _lines([head, *(f"swap{number} {_after_name(line)}" for number, line in enumerate(rest, 1))])


def _after_name(line: str) -> str:
    return " ".join(line.split()[-4:])


def _lines(lines: Iterable[str]) -> str:
    return "".join(line + "\n" for line in lines)


_BY_NAME: dict[str, Callable[[str], str]] = {
    "stat": _stat,
    "status": _status,
    "version": _version,
    "cpuinfo": _cpu_info,
    "swaps": _swaps,
}
