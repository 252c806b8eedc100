"""What the schema's types cannot say about `tuning.swap`: its path, its sizes, and that it wants anything at all."""

from __future__ import annotations

from collections.abc import Iterator

from moetuned.parse.config_problem import Problem, key_path, shown
from moetuned.schema.swap import HIGHEST_PRIORITY, Swap
from moetuned.schema.units import format_bytes, parse_bytes

LEAST_BYTES = 64 << 20
"""Less holds nothing worth the trouble."""
MOST_FILE_BYTES = 1 << 40
MOST_ZRAM_BYTES = 1 << 38
_PATH_BYTES = 1024


def check_swap(swap: Swap | None) -> Iterator[Problem]:
    """Problems of `tuning.swap`, each with its key; none for None."""
    if swap is None:
        return
    if swap.file is None and swap.zram is None:
        hint = "has neither file nor zram, so there is no swap to make; give one, e.g. file: /var/lib/moetuned/swapfile"
        yield _problem((), None, hint)
    if swap.file is not None:
        why = _path_problem(swap.file)
        if why is not None:
            yield _problem(("file",), swap.file, why)
    yield from _size(("size",), swap.size, MOST_FILE_BYTES)
    if swap.zram is not None:
        yield from _size(("zram",), swap.zram, MOST_ZRAM_BYTES)
    if swap.file is None and swap.size != "auto":
        hint = "has no effect: it is the size of the swap file, and file is not set; the size of zram is written zram: SIZE"
        yield _problem(("size",), swap.size, hint, warning=True)
    if swap.file is None and swap.priority is not None:
        hint = "has no effect: it is the priority of the swap file, and file is not set"
        yield _problem(("priority",), swap.priority, hint, warning=True)
    if swap.file is not None and swap.zram is not None and swap.priority == HIGHEST_PRIORITY:
        yield _problem(("priority",), swap.priority, f"must be below {HIGHEST_PRIORITY}: zram gets a higher one")


def _path_problem(path: str) -> str | None:
    if not path.startswith("/"):
        return "must be an absolute path, e.g. /var/lib/moetuned/swapfile"
    parts = path.split("/")[1:]
    if "" in parts or "." in parts or ".." in parts:
        return "must be a plain path of a file, without //, /./, /../ and a / at its end"
    if any(not one.isprintable() for one in path):
        return "must have printable characters only"
    if len(path.encode()) > _PATH_BYTES or len(parts[-1].encode()) > 128:
        return f"must be at most {_PATH_BYTES} bytes long, its last part 128"
    if parts[0] in ("proc", "sys", "dev", "run"):
        return f"is in /{parts[0]}, which is not on a disk; write e.g. /var/lib/moetuned/swapfile"
    return None


def _size(key: tuple[str, ...], value: str | int, most_bytes: int) -> Iterator[Problem]:
    if value == "auto":
        return
    try:
        size = parse_bytes(value)
    except ValueError as error:
        yield _problem(key, None, f"{error}, or auto")
        return
    if not LEAST_BYTES <= size <= most_bytes:
        yield _problem(
            key, value, f"must be between {format_bytes(LEAST_BYTES)} and {format_bytes(most_bytes)}, or auto"
        )


def _problem(key: tuple[str, ...], value: object, hint: str, *, warning: bool = False) -> Problem:
    path = key_path(("tuning", "swap", *key))
    return Problem("", path, None if value is None else shown(value), hint, severity="warning" if warning else "error")
