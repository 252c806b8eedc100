"""How much is read around a page that is not in memory (KiB): the read-ahead of the file system that a model is on.

Why: A fault on a mapped model reads the whole window around it, and experts are met all over the file: a window much larger
than what an expert needs reads its neighbours too, and they push out what the next token needs; a very small one makes
many small reads of one expert.

Risk: Other files on the same file system get it too: reading one from end to end may become a little slower.

Source: Documentation/ABI/testing/sysfs-class-bdi of the kernel (read_ahead_kb); mm/filemap.c (do_sync_mmap_readahead: the window
around a fault) and mm/readahead.c (file_ra_state_init: taken when a file is opened).

Not when: The device mostly serves files that are read from one end to the other (backups, media), or is a rotating disk,
where every seek costs more than what is read in vain. A backend that has its model open keeps the old value until it is
restarted.
"""

from collections.abc import Callable

import msgspec

from moetuned.host.block_devices import under_file
from moetuned.host.fs import HostFS
from moetuned.schema.tunable import Codec, Place, Targets, TunableSpec

SPEC = TunableSpec(
    name="read_ahead_kb",
    config_key="tuning.read_ahead",
    place=Place("/sys/class/bdi/*/read_ahead_kb", Codec.INTEGER, taken_at_open=True),
    wanted={},
    lowest=4,
    highest=65536,
    per_device=True,
)


def instances(fs: HostFS, targets: Targets, device_of: Callable[[str], tuple[int, int]]) -> tuple[TunableSpec, ...]:
    """One setting for each bdi under the models of `targets`, `read_ahead_kb vda`; a model without a known one is one that says why."""
    found: dict[str, TunableSpec] = {}
    for model in (target.path for target in targets.models):
        devices = under_file(model, fs, device_of)
        path = devices.read_ahead_path
        if path is not None:
            name, place, skip = _device(path), msgspec.structs.replace(SPEC.place, path=path), None
        else:
            where = f"{devices.filesystem} on {', '.join(devices.names)}"
            name, place = model, SPEC.place
            skip = devices.unknown or f"the kernel does not say which read-ahead counts for it ({where})"
        name = f"{SPEC.name} {name}"
        found.setdefault(name, msgspec.structs.replace(SPEC, name=name, place=place, skip=skip))
    return tuple(found.values())


def _device(path: str) -> str:
    """/sys/block/vda/bdi/read_ahead_kb is vda's, /sys/class/bdi/btrfs-1/read_ahead_kb is btrfs-1's."""
    return path.removeprefix("/sys/block/").removeprefix("/sys/class/bdi/").partition("/")[0]
