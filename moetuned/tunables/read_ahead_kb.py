"""How much is read around a page that is not in memory (KiB): the read-ahead of the file system that a model is on.

Why: A fault on a mapped model reads the whole window around it, and experts are met all over the file: a window much larger
than what an expert needs reads its neighbours too, and they push out what the next token needs; a very small one makes
many small reads of one expert. A profile lowers what is larger than the computed value. What is smaller stays, down to half of it:
somebody may have chosen it, it reads less, and a fifth of the speed at most was measured to be lost. Less than half is raised: an
expert is then read in so many small requests that the disk mostly waits.

Risk: Other files on the same file system get it too: reading one from end to end, as loading the model does, may become a little
slower.

Computed: From the slice of an expert (of several models on one file system the smallest) and the kind of disk: a power of two from 64 to
1024, larger for larger slices and for NVMe. Nothing for a model without experts, whose slices cannot be read, or on a disk that turns.

Source: Documentation/ABI/testing/sysfs-class-bdi of the kernel (read_ahead_kb); mm/filemap.c (do_sync_mmap_readahead: the window
around a fault) and mm/readahead.c (file_ra_state_init: taken when a file is opened). The value is computed from the size of
an expert's slice, as measured with a real llama-server (decide/read_ahead.py); `moetunectl tune readahead MODEL` measures it.

Not when: The device mostly serves files that are read from one end to the other (backups, media), or is a rotating disk,
where every seek costs more than what is read in vain. A backend that has its model open keeps the old value until it is
restarted.
"""

from collections.abc import Callable, Sequence

import msgspec

from moetuned.decide.read_ahead import Choice, computed
from moetuned.host.block_devices import FileDevices, under_file
from moetuned.host.fs import HostFS
from moetuned.schema.config import KEEP, Profile
from moetuned.schema.tunable import Codec, ModelTarget, Place, Targets, TunableSpec

SPEC = TunableSpec(
    name="read_ahead_kb",
    config_key="tuning.read_ahead",
    place=Place("/sys/class/bdi/*/read_ahead_kb", Codec.INTEGER, taken_at_open=True),
    wanted={},
    lowest=4,
    highest=65536,
    per_device=True,
)
_LEFT_ALONE = 2
_PAGE_KIB = 4


def instances(fs: HostFS, targets: Targets, device_of: Callable[[str], tuple[int, int]]) -> tuple[TunableSpec, ...]:
    """One setting for each bdi under the models of `targets`, `read_ahead_kb vda`; a model without a known one is one that says why.

    Of several models on one bdi the smallest slice counts: a value that is too large for it costs more than one too small for the others.
    """
    found: dict[str, TunableSpec] = {}
    on_bdi: dict[str, tuple[FileDevices, list[ModelTarget]]] = {}
    for target in targets.models:
        devices = under_file(target.path, fs, device_of)
        path = devices.read_ahead_path
        if path is None:
            where = f"{devices.filesystem} on {', '.join(devices.names)}"
            skip = devices.unknown or f"the kernel does not say which read-ahead counts for it ({where})"
            name = f"{SPEC.name} {target.path}"
            found[name] = _spec(name, SPEC.place, _choice(devices, [target]), skip)
            continue
        on_bdi.setdefault(path, (devices, []))[1].append(target)
    for path, (devices, there) in on_bdi.items():
        choice, name = _choice(devices, there), f"{SPEC.name} {devices.read_ahead_device}"
        found[name] = _spec(name, msgspec.structs.replace(SPEC.place, path=path), choice, None)
    return tuple(found.values())


def _spec(name: str, place: Place, choice: Choice, skip: str | None) -> TunableSpec:
    value = KEEP if choice.kib is None else str(choice.kib)
    return msgspec.structs.replace(
        SPEC,
        name=name,
        place=place,
        wanted=dict.fromkeys((Profile.MOE_OFFLOAD.value, Profile.MOE_OFFLOAD_ZRAM.value), value),
        because=choice.because,
        keep={} if choice.kib is None else _kept(choice.kib),
        skip=skip or (choice.because if choice.kib is None else None),
    )


def _kept(kib: int) -> dict[str, str]:
    """Smaller values that stay; the kernel has no others than multiples of its pages, 4 KiB or more."""
    why = f"it is smaller than the {kib} KiB computed for its experts, so it reads less and is little slower"
    return {str(each): why for each in range(kib // _LEFT_ALONE, kib, _PAGE_KIB)}


def _choice(devices: FileDevices, models: Sequence[ModelTarget]) -> Choice:
    """What the models on one device ask for together."""
    slices = [target.slice_bytes for target in models if target.slice_bytes is not None]
    unknown = next((target.unknown for target in models if target.unknown is not None), None)
    return computed(min(slices, default=None), devices.rotational, unknown, nvme=devices.nvme)
