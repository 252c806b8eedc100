"""Block devices under a model: what they are, and what is shown of them."""

from __future__ import annotations

import msgspec


class DeviceFacts(msgspec.Struct, frozen=True):
    """One device of /sys/block. None is unknown. `model` and `identity` come from outside and are printable here.

    `bus`: nvme | sata | sas | scsi | usb | mmc | virtio | xen | network | loop. `virtual`: a hypervisor or a network made it; one that says it
    turns is not believed. `usb_megabits`: speed of its USB connection (480 is USB 2). `sd_card`: a card and not soldered eMMC.
    `identity`: how to know it again, also in another slot.
    """

    name: str
    model: str | None = None
    bus: str | None = None
    rotational: bool | None = None
    virtual: bool = False
    usb_megabits: int | None = None
    sd_card: bool | None = None
    identity: str | None = None


class DeviceView(msgspec.Struct, frozen=True):
    """One device under a model. `gone`: it was taken away; `detail`: what is to be known of it, "" nothing."""

    name: str
    model: str | None = None
    bus: str | None = None
    rotational: bool | None = None
    virtual: bool = False
    gone: bool = False
    detail: str = ""


class Pace(msgspec.Struct, frozen=True):
    """What the devices under a model did for some seconds in which they were always busy, for one reader alone.

    `in_order`: it was being loaded, front to back. `request_bytes`, `queue_length`: averages.
    """

    in_order: bool
    request_bytes: float
    queue_length: float
    bytes_per_second: float
