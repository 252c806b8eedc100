"""Swap: what is wished for, what the machine has, and what a plan says. Data only."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Size = Annotated[str | int, Meta(description="size")]
HIGHEST_PRIORITY = 32767
"""The kernel's (SWAP_FLAG_PRIO_MASK of include/linux/swap.h)."""


class Swap(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Swap to make at start and to take away at stop. What is there already is left alone."""

    file: Annotated[
        str | None,
        Meta(
            description="Swap file to make, e.g. /var/lib/moetuned/swapfile, on an SSD with ext4, xfs or btrfs; unset: none."
        ),
    ] = None
    size: Annotated[
        Size | Literal["auto"],
        Meta(
            description="Size of the swap file; auto: a quarter of RAM, 2GiB to 16GiB, at most a tenth of the free room."
        ),
    ] = "auto"
    zram: Annotated[
        Size | Literal["auto"] | None,
        Meta(
            description="Compressed swap in RAM, as bytes before compression; auto: an eighth of RAM, at most 4GiB; unset: none, "
            "but auto in the profile moe-offload-zram when there is no tuning.swap at all."
        ),
    ] = None
    priority: Annotated[
        Annotated[int, Meta(ge=0, le=HIGHEST_PRIORITY)] | None,
        Meta(
            description="Priority of the swap file, the highest is used first; unset: below all that are on already. Zram "
            "always gets a higher one, 100 or more."
        ),
    ] = None


class ActiveSwap(msgspec.Struct, frozen=True):
    """One line of /proc/swaps. `size_bytes` is what it can hold: a page less than its file or device.

    `name` is the path as this process would see it; the file may be known by another name, or by none, elsewhere.
    `deleted`: the kernel says that the name is gone.
    """

    name: str
    kind: str
    size_bytes: int
    used_bytes: int
    priority: int
    deleted: bool = False


class SwapBacking(msgspec.Struct, frozen=True):
    """What is under an active swap: compressed RAM, or a disk. `rotational` None: unknown, and `unknown` says why."""

    name: str
    zram: bool = False
    rotational: bool | None = None
    unknown: str | None = None


class SwapPlace(StrEnum):
    """Where pages go that are swapped out."""

    NONE = "none"
    ZRAM = "zram only"
    SSD = "ssd"
    ROTATIONAL = "rotational"
    MIXED = "mixed"
    UNKNOWN = "unknown"


class SwapHome(msgspec.Struct, frozen=True):
    """Where swap lives, and a sentence that says how it is known.

    `compressed_first`: of zram and a disk, zram has the higher priority, so it is filled first.
    """

    place: SwapPlace
    reason: str
    compressed_first: bool = False


class SwapFileFacts(msgspec.Struct, frozen=True):
    """What is known of the place of a wished swap file. None: unknown.

    `virtual`: its disks are made by a hypervisor or a network. `problem`: why no file of ours may be in its directory; `taken`: something is at its path; `active`: it is a swap in use.
    """

    filesystem: str | None = None
    disks: tuple[str, ...] = ()
    rotational: bool | None = None
    virtual: bool = False
    unknown: str | None = None
    free_bytes: int | None = None
    total_bytes: int | None = None
    problem: str | None = None
    taken: bool = False
    active: bool = False


class SwapFacts(msgspec.Struct, frozen=True):
    """The machine as a plan needs it.

    `refusal`: why nothing at all can be swapped on from here. `active` None: the kernel has no /proc/swaps. `zram_refusal`: why
    there can be no zram device, None when there can be one.
    """

    memory_bytes: int | None = None
    active: tuple[ActiveSwap, ...] | None = ()
    refusal: str | None = None
    zram_refusal: str | None = None
    file: SwapFileFacts | None = None


class OurSwap(msgspec.Struct, frozen=True):
    """What moetuned made and still finds. Sizes of the file and of the device, not what they can hold.

    `file_yielded`, `zram_yielded`: what somebody did to it, where it is theirs to decide about.
    """

    file_path: str | None = None
    file_bytes: int | None = None
    zram_number: int | None = None
    zram_bytes: int | None = None
    file_yielded: str | None = None
    zram_yielded: str | None = None


class SwapKind(StrEnum):
    """The two kinds of swap that moetuned makes."""

    FILE = "file"
    ZRAM = "zram"


class SwapStepKind(StrEnum):
    """What applying a plan does: makes it, keeps its own, finds somebody else's already, or leaves it with a reason.

    `YIELDED`: somebody took ours away in this boot, so it is theirs to decide about.
    """

    MAKE = "make"
    KEEP = "keep"
    ALREADY = "already"
    SKIPPED = "skipped"
    YIELDED = "yielded"


class SwapStep(msgspec.Struct, frozen=True):
    """One swap of a plan. `why` explains its size and its use, `risk` what it costs, `reason` why it is not made.

    `path` is the swap file's; a zram device gets its path when it is made. `priority` None: the kernel's choice. `virtual`: the
    file's disk is one that does not tell what it is on. `asked`: what the config says of this swap, to be compared.
    """

    name: str
    target: SwapKind
    kind: SwapStepKind
    wanted: str
    why: str = ""
    risk: str = ""
    reason: str = ""
    path: str | None = None
    size_bytes: int = 0
    priority: int | None = None
    filesystem: str | None = None
    virtual: bool = False
    asked: str = ""


class FileLook(msgspec.Struct, frozen=True):
    """What is at the path of a swap file. `uuid` is that of its swap signature, None when it has none."""

    inode: int
    size_bytes: int
    mode: int = 0o600
    owner: int = 0
    regular: bool = True
    uuid: str | None = None


class ZramLook(msgspec.Struct, frozen=True):
    """A zram device. `sequence` is the kernel's diskseq, never given twice in a boot; `size_bytes` 0: not set up.

    `blank`: it is set up and its first page was never written.
    """

    number: int
    sequence: int | None
    size_bytes: int = 0
    uuid: str | None = None
    blank: bool = True


class SwapOffRoom(msgspec.Struct, frozen=True):
    """What swapping off needs and what there is. `used_bytes` is an upper bound where it is not known exactly.

    `tight`: memory cgroups, each with why it could not take back its own swapped pages.
    """

    used_bytes: int | None
    available_bytes: int | None
    memory_bytes: int | None
    tight: tuple[str, ...] = ()
