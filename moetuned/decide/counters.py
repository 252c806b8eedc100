"""Single values of a moment, as signals and the detector read them; None is unknown."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from moetuned.decide.window import Moment
from moetuned.schema.sample import DiskCounters


def process_read_bytes(moment: Moment) -> int | None:
    """Bytes the process made the disks read since it started."""
    process = moment.backend.process
    return None if process is None else process.read_bytes


def major_faults(moment: Moment) -> int | None:
    """Major faults of the process since it started."""
    process = moment.backend.process
    return None if process is None else process.major_faults


def device_read_bytes(moment: Moment, disks: Sequence[str]) -> int | None:
    """Bytes all of `disks` read since boot; None when there are none or one is unknown."""
    return disk_total(moment, disks, read_bytes)


def own_refault_pages(moment: Moment) -> int | None:
    """Refaulted pages of files in the backend's own cgroup."""
    cgroup = moment.backend.cgroup
    return None if cgroup is None else cgroup.refault_file_pages


def own_swap_in_pages(moment: Moment) -> int | None:
    """Pages read from swap for the backend's own cgroup; where the kernel does not count them, its refaulted anonymous pages."""
    cgroup = moment.backend.cgroup
    if cgroup is None:
        return None
    return cgroup.refault_anon_pages if cgroup.swap_in_pages is None else cgroup.swap_in_pages


def machine_refault_pages(moment: Moment) -> int | None:
    """Refaulted pages of files of everybody on the machine."""
    vmstat = moment.machine.vmstat
    return None if vmstat is None else vmstat.refault_file_pages


def anonymous_bytes(moment: Moment) -> int | None:
    """Anonymous memory of the process, in RAM and in swap."""
    process = moment.backend.process
    if process is None or process.rss_anon_bytes is None:
        return None
    return process.rss_anon_bytes + (process.swap_bytes or 0)


def cache_bytes(moment: Moment) -> int | None:
    """Page cache the backend lives in, without shared memory: its cgroup's, without one the machine's."""
    return moment.cache_bytes


def resident_bytes(moment: Moment) -> int | None:
    """Bytes of the model in page cache at this moment's scan."""
    return moment.resident_bytes


def busy_slots(moment: Moment) -> int | None:
    """Slots that work on a request, from /slots, else from /metrics."""
    return moment.busy_slots


def prompt_tokens_processed(moment: Moment) -> float | None:
    """Prompt tokens processed since the backend started, from /metrics."""
    http = moment.backend.http
    return None if http is None else http.prompt_tokens_total


def tokens_generated(moment: Moment) -> float | None:
    """Tokens generated since the backend started, where that number grows with every one of them."""
    http = moment.backend.http
    return None if http is None or not http.counts_live else http.tokens_predicted_total


def decode_calls(moment: Moment) -> float | None:
    """Calls of llama_decode() since the backend started: one a token and slot group, one a batch of a prompt."""
    http = moment.backend.http
    return None if http is None else http.decode_calls_total


def read_ios(counters: DiskCounters) -> int | None:
    """Read requests a disk has done since boot."""
    return counters.read_ios


def read_bytes(counters: DiskCounters) -> int | None:
    """Bytes a disk has read since boot."""
    return counters.read_bytes


def write_bytes(counters: DiskCounters) -> int | None:
    """Bytes a disk has written since boot."""
    return counters.write_bytes


def read_ms(counters: DiskCounters) -> int | None:
    """Milliseconds all read requests of a disk together took since boot."""
    return counters.read_ms


def queue_ms(counters: DiskCounters) -> int | None:
    """Milliseconds all requests of a disk together were in it since boot."""
    return counters.queue_ms


def disk_total(moment: Moment, disks: Sequence[str], read: Callable[[DiskCounters], int | None]) -> int | None:
    """A counter over all of `disks` (those at the bottom, so nothing is counted twice); None when there are none or one is unknown."""
    total = 0
    for disk in disks:
        counters = moment.machine.disks.get(disk)
        value = None if counters is None else read(counters)
        if value is None:
            return None
        total += value
    return total if disks else None
