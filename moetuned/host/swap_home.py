"""Where swap lives on this machine, for the settings that depend on it, and what is wrong with that."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from moetuned.decide.swap_home import swap_warnings, where_swap_lives
from moetuned.host.active_swaps import node_number, read_backings, read_swaps, read_zswap
from moetuned.host.block_devices import device_number
from moetuned.host.fs import HostFS
from moetuned.schema.swap import SwapHome, SwapPlace, SwapStep


def swap_home(
    fs: HostFS, device_of: Callable[[str], tuple[int, int]] = device_number, planned: Sequence[SwapStep] = ()
) -> SwapHome:
    """Where the swaps that are on lie, and those that are `planned` to be made. Never raises; what cannot be read is unknown.

    `device_of` other than the machine's own (a tree of another one) gives the number of a device for its node too.
    """
    try:
        active = read_swaps(fs)
    except OSError as error:
        return SwapHome(SwapPlace.UNKNOWN, f"/proc/swaps cannot be read: {error.strerror or error}")
    backings = read_backings(active or (), fs, node_number if device_of is device_number else device_of)
    return where_swap_lives(active, backings, planned)


def present_swap_warnings(fs: HostFS) -> tuple[str, ...]:
    """What is wrong with the swap that is on, whoever made it; nothing where that cannot be read. Never raises."""
    try:
        active = read_swaps(fs) or ()
    except OSError:
        return ()
    return swap_warnings(active, read_backings(active, fs), read_zswap(fs))
