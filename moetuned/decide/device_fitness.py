"""Whether a model should be run from the devices it lies on. Never on what is not known."""

from __future__ import annotations

from collections.abc import Sequence

from moetuned.schema.device import DeviceFacts

USB_2_MEGABITS = 480


def unsuitable(devices: Sequence[DeviceFacts], network_filesystem: str | None) -> str | None:
    """Why not and what to do, one sentence without a full stop; None when nothing known speaks against it.

    Rotating disks need about 10 ms for each expert that is not in memory, USB 2 carries 35 MB/s at most, an SD card 20 to 90 MB/s with
    slow small reads (bus speeds: SD specification, UHS-I), and a network adds its own way to each of thousands of small reads.
    """
    move = "move the model to an NVMe SSD of this machine"
    if network_filesystem is not None:
        return f"its model is read over the network ({network_filesystem}), and each expert that is not in memory goes that way; {move}"
    for device in devices:
        what = device.name if device.model is None else f"{device.name}, {device.model}"
        if device.usb_megabits is not None and device.usb_megabits <= USB_2_MEGABITS:
            return (
                f"its model is on a USB 2 connection ({what}), which carries 35 MB/s at most; plug it into a USB 3 port with a USB 3 "
                f"cable, or {move}"
            )
        if device.rotational is True and not device.virtual:
            return f"its model is on a rotating disk ({what}), which needs about 10 ms for each expert that is not in memory; {move}"
        if device.bus == "mmc":
            kind = {True: "an SD card", False: "eMMC memory", None: "an SD card or eMMC memory"}[device.sd_card]
            return f"its model is on {kind} ({what}), which reads slowly and small pieces slower still; {move}"
    return None
