"""The detector's limits and hold times. The defaults hold for models and disks of any size: they are shares and costs."""

from __future__ import annotations

import msgspec

MEGABYTE = 1e6


class DetectorSettings(msgspec.Struct, frozen=True):
    """Limits (ratios, bytes) and how long they must be passed (seconds).

    Memory: `near_headroom_bytes` and `critical_headroom_bytes` go before the ratios of the limit.
    """

    near_headroom_ratio: float = 0.08
    critical_headroom_ratio: float = 0.03
    near_headroom_bytes: int | None = None
    critical_headroom_bytes: int | None = None
    near_seconds: float = 25.0
    """A steady growth that reaches the limit within this time is near it, too; a restart of a backend needs that long."""
    trend_headroom_ratio: float = 0.5
    """Above this headroom growth alone is no reason,"""
    surely_near_seconds: float = 14.0
    """unless the limit is reached within this time, however much room there is now: ten seconds of warning are wanted, and one
    look may pass before it is seen and one before it is said."""
    trend_release_factor: float = 2.0
    """A growth that began an alarm ends it only when the limit is this many times `near_seconds` away. Measured: a steady leak looks
    up to a third slower for some seconds."""
    memory_hold_seconds: float = 1.0
    memory_release_seconds: float = 5.0
    memory_release_factor: float = 1.25

    quiet_read_bytes_per_second: float = 8 * MEGABYTE
    """Reads below this are nothing: logs, small files, the odd page."""
    quiet_token_ratio: float = 0.02
    """Nor are reads below this share of a token's active experts."""
    cheap_token_ratio: float = 0.05
    """Tokens that cost less than this share to read are no thrash, however small the cache became."""
    churn_refault_ratio: float = 0.3
    filling_ratio: float = 0.3
    """Reads of which this share makes the page cache grow are filling it."""

    costly_active_ratio: float = 2.0
    """Bytes a token against all its active experts: above, it reads twice what it would with nothing cached at all.

    Measured with read-ahead that fits: 0.7 (590 kB slices) to 1.3 (295 kB slices); with 8 MiB of read-ahead 7 to 13.
    """
    costly_amplification: float = 3.5
    """Bytes a token against its missing experts. Measured: 0.5 to 2.6 with read-ahead that fits (up to 3.7 for single seconds, or where
    a token costs less than all its active experts), 3.5 to 5.6 in a thrash with 512 KiB for slices of 590 kB, 4 to 25 with 8 MiB."""
    amplified_active_ratio: float = 1.0
    """It counts only from this share of all active experts on: where little is missing, a little too much is no trouble."""
    wide_amplification: float = 2.5
    wide_active_ratio: float = 0.5
    """The same where a major fault reads more than `excess_window_ratio` slices and `excess_window_bytes`."""
    costly_other_resident_ratio: float = 0.9
    squeezed_ratio: float = 0.10
    """Cache lost, as a share of the model; what remains is re-read."""
    squeezing_ratio: float = 0.02
    """The same while it still shrinks by `squeezing_ratio_per_second` (of the model), unless it streamed before."""
    squeezing_ratio_per_second: float = 0.002
    squeezing_token_ratio: float = 0.08
    """and a token costs this share of its active experts to read. Measured under a slow squeeze: at 0.03 to 0.06 it is as fast as
    before, from 0.1 on it has lost a third."""
    slow_ratio: float = 0.25
    """Tokens/s against this backend's own warm best; counts only where a token costs more to read than it did then,"""
    dearer_ratio: float = 3.0
    """at least this many times as much,"""
    less_resident_ratio: float = 0.1
    """and this much less of the experts is resident."""
    starved_cores: float = 0.9
    """As slow as that, able to run and yet with less than one core, it waits for the processor,"""
    starved_disk_wait_ratio: float = 0.1
    """unless something waits for a disk or memory for this share of the time."""
    excess_window_ratio: float = 2.5
    excess_window_bytes: int = 2 << 20
    swap_in_bytes_per_second: float = 4 * MEGABYTE
    """The backend's own memory that comes back from swap: a thousand pages a second;"""
    swap_out_ratio: float = 0.25
    """at least this share of that goes out again meanwhile;"""
    swap_returns_ratio: float = 0.5
    """where that is not known, what is in swap falls by no more than this share of it;"""
    swap_stall_ratio: float = 0.05
    """and where its cgroup's PSI is known, it stalls for memory at least so much of the time."""
    release_factor: float = 0.8
    """A thrash ends only below this share of the limit that began it (or above 1/0.8 of a lower limit)."""

    thrash_hold_seconds: float = 3.0
    weak_hold_seconds: float = 5.0
    """Measured: no stream shows a weak sign for more than three seconds."""
    blind_hold_seconds: float = 20.0
    starved_hold_seconds: float = 3.0
    thrash_release_seconds: float = 3.0
    lull_release_seconds: float = 8.0
    """Instead of that where it hardly reads and nobody sees it work as it can: a gap between requests ends no thrash."""
    streaming_hold_seconds: float = 8.0
    steady_hold_seconds: float = 2.0
    idle_release_seconds: float = 15.0

    evicted_ratio: float = 0.25
    """Share of the model that left the page cache while the backend was idle."""
    evicted_hold_seconds: float = 1.0
    steady_resident_ratio: float = 0.95

    hung_hold_seconds: float = 60.0
    """A backend with a request at which nothing moves, no token, no read, no processor time, no wait for a disk, hangs after this.

    Nothing local stands still so long: llama.cpp spins or reads while it works. What it may wait for is another machine (RPC).
    """
