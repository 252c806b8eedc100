"""Single values of a moment, as signals and the detector read them; None is unknown."""

from __future__ import annotations

from collections.abc import Sequence

from moetuned.decide.window import Moment


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
    total = 0
    for disk in disks:
        counters = moment.machine.disks.get(disk)
        if counters is None or counters.read_bytes is None:
            return None
        total += counters.read_bytes
    return total if disks else None


def own_refault_pages(moment: Moment) -> int | None:
    """Refaulted pages of files in the backend's own cgroup."""
    cgroup = moment.backend.cgroup
    return None if cgroup is None else cgroup.refault_file_pages


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
    cgroup = moment.backend.cgroup
    if cgroup is not None:
        return None if cgroup.file_bytes is None else max(0, cgroup.file_bytes - (cgroup.shared_bytes or 0))
    meminfo = moment.machine.meminfo
    if meminfo is None or meminfo.cached_bytes is None:
        return None
    return max(0, meminfo.cached_bytes - (meminfo.shared_bytes or 0))


def resident_bytes(moment: Moment) -> int | None:
    """Bytes of the model in page cache at this moment's scan."""
    residency = moment.backend.residency
    return None if residency is None else residency.resident_bytes


def busy_slots(moment: Moment) -> int | None:
    """Slots that work on a request, from /slots, else from /metrics."""
    http = moment.backend.http
    if http is None:
        return None
    if http.slots is not None:
        # Asked for every moment of the window at every tick: plain loops cost half of what generators do.
        busy = 0
        for slot in http.slots:
            if slot.processing is None:
                break
            busy += slot.processing
        else:
            return busy
    return None if http.requests_processing is None else round(http.requests_processing)


def prompt_tokens_processed(moment: Moment) -> float | None:
    """Prompt tokens processed since the backend started, from /metrics."""
    http = moment.backend.http
    return None if http is None else http.prompt_tokens_total


def decode_calls(moment: Moment) -> float | None:
    """Calls of llama_decode() since the backend started: one a token and slot group, one a batch of a prompt."""
    http = moment.backend.http
    return None if http is None else http.decode_calls_total
