"""Raw counters of one moment. Every group and field is optional: None is unknown, never zero.

Counters are cumulative as the kernel gives them; rates are made in `decide.signals` from two samples.
"""

from __future__ import annotations

import msgspec

from moetuned.schema.backend_abilities import Dialect


class RawResidency(msgspec.Struct, frozen=True, omit_defaults=True):
    """Pages of the model in page cache, as cachestat(2) counts them; experts/other pages where a layout is known."""

    cached: int
    evicted: int | None = None
    recently_evicted: int | None = None
    expert_cached: int | None = None
    other_cached: int | None = None


class RawBackend(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was read for one backend besides files: `http` maps a path to its body, or to "!reason"."""

    http: dict[str, str] = {}
    residency: RawResidency | None = None


class RawSample(msgspec.Struct, frozen=True, omit_defaults=True):
    """One moment as text, before parsing; a trace line is one of these for one backend.

    `t` is CLOCK_MONOTONIC seconds, `wall` Unix seconds, `files` maps an absolute path to its raw text or None
    (could not be read), `backends` maps a backend's name to the rest.
    """

    t: float
    wall: float
    files: dict[str, str | None]
    backends: dict[str, RawBackend] = {}


class MemInfo(msgspec.Struct, frozen=True, gc=False):
    """/proc/meminfo, bytes."""

    total_bytes: int | None = None
    free_bytes: int | None = None
    available_bytes: int | None = None
    cached_bytes: int | None = None
    anonymous_bytes: int | None = None
    shared_bytes: int | None = None
    mlocked_bytes: int | None = None
    unevictable_bytes: int | None = None
    slab_unreclaimable_bytes: int | None = None
    swap_total_bytes: int | None = None
    swap_free_bytes: int | None = None
    hugepages_bytes: int | None = None
    buffers_bytes: int | None = None
    reclaimable_file_bytes: int | None = None
    """Page cache on the LRU lists (Active(file) + Inactive(file)): neither shared memory nor locked."""


class VmStat(msgspec.Struct, frozen=True, gc=False):
    """/proc/vmstat, machine-wide counters, pages."""

    refault_file_pages: int | None = None
    refault_anon_pages: int | None = None
    swap_in_pages: int | None = None
    swap_out_pages: int | None = None
    scan_direct_pages: int | None = None
    major_faults: int | None = None


class Pressure(msgspec.Struct, frozen=True, gc=False):
    """One PSI file: cumulative stall time in microseconds."""

    some_total_us: int | None = None
    full_total_us: int | None = None


class DiskCounters(msgspec.Struct, frozen=True, gc=False):
    """/sys/block/<dev>/stat. `*_ms` of reads and `queue_ms` are summed over requests, `busy_ms` is time in which there was one."""

    read_ios: int | None = None
    read_bytes: int | None = None
    busy_ms: int | None = None
    read_ms: int | None = None
    write_bytes: int | None = None
    in_flight: int | None = None
    queue_ms: int | None = None


class ProcessCounters(msgspec.Struct, frozen=True, gc=False):
    """/proc/<pid>/stat, status and io of a whole process (all threads)."""

    pid: int
    start_ticks: int | None = None
    state: str | None = None
    major_faults: int | None = None
    cpu_ticks: int | None = None
    rss_anon_bytes: int | None = None
    rss_file_bytes: int | None = None
    rss_shmem_bytes: int | None = None
    swap_bytes: int | None = None
    locked_bytes: int | None = None
    read_bytes: int | None = None


class CgroupMemory(msgspec.Struct, frozen=True, gc=False):
    """A memory cgroup (v1 or v2) in v2's words, bytes and pages. `limit_bytes` None: unknown or unlimited."""

    version: int
    current_bytes: int | None = None
    limit_bytes: int | None = None
    high_bytes: int | None = None
    anonymous_bytes: int | None = None
    file_bytes: int | None = None
    shared_bytes: int | None = None
    unevictable_bytes: int | None = None
    kernel_bytes: int | None = None
    swap_bytes: int | None = None
    swap_limit_bytes: int | None = None
    refault_file_pages: int | None = None
    refault_anon_pages: int | None = None
    oom_kills: int | None = None
    pressure: Pressure | None = None
    reclaimable_file_bytes: int | None = None
    """Page cache on the LRU lists (active_file + inactive_file): neither shared memory nor locked."""
    reclaimable_slab_bytes: int | None = None
    swap_in_pages: int | None = None
    """Pages read from swap for it, where the kernel counts that by cgroup (`pswpin` of memory.stat); so `swap_out_pages`."""
    swap_out_pages: int | None = None
    high_passed: int | None = None
    """How often it went over `memory.high` and was made to reclaim (v2)."""


class CgroupAbove(msgspec.Struct, frozen=True, gc=False):
    """A memory cgroup above the backend's that has a limit, which is shared with everything else below it."""

    directory: str
    memory: CgroupMemory


class KeptCgroup(msgspec.Struct, frozen=True, gc=False):
    """A memory cgroup that the kernel takes no memory of while it uses no more than `keeps_bytes` (memory.min), as far as those above it allow.

    `on_machine`: each of those above it keeps something, so that this holds when memory is taken for the machine, too. `shares`: what it
    may keep is its own, or is shared out among those in it, also as far as they keep nothing themselves.
    """

    directory: str
    keeps_bytes: int
    on_machine: bool = True
    shares: bool = True


class KeptMemory(KeptCgroup, frozen=True, gc=False, kw_only=True):
    """The same at one moment, with its memory then."""

    memory: CgroupMemory


class Slot(msgspec.Struct, frozen=True, gc=False):
    """One slot of the backend as /slots shows it."""

    slot_id: int
    processing: bool | None = None
    task_id: int | None = None
    context_length: int | None = None
    prompt_tokens: int | None = None
    prompt_tokens_processed: int | None = None
    decoded_tokens: int | None = None
    prompt_tokens_cached: int | None = None
    """Tokens of the prompt that were in its cache already; they are not processed again."""


class BackendHttp(msgspec.Struct, frozen=True):
    """What the backend's HTTP said. `health`: ok | loading | unreachable | busy | error | None (not asked).

    `wants_key`: it answers questions of how it is only to who has its API key. `requests_deferred`: how many wait because all slots are busy. `slots_asked` False: /slots was not asked, because the backend does
    nothing and the question would keep it from sleeping. `tells_slots` False: its kind says nothing of single slots. `counts_live`:
    `tokens_predicted_total` grows with every token and not only at the end of a request. `context_length`: of all slots together.
    """

    health: str | None = None
    slots: tuple[Slot, ...] | None = None
    sleeping: bool | None = None
    tokens_predicted_total: float | None = None
    prompt_tokens_total: float | None = None
    decode_calls_total: float | None = None
    requests_processing: float | None = None
    requests_deferred: float | None = None
    slots_asked: bool = True
    wants_key: bool = False
    tells_slots: bool = True
    counts_live: bool = False
    context_length: int | None = None


class HttpNumbers(msgspec.Struct, frozen=True):
    """Where a backend of no known kind is asked, and the expressions that find its numbers there (`parse.numbers_http`)."""

    health: str
    metrics: str | None = None
    tokens: str | None = None
    prompt_tokens: str | None = None
    requests: str | None = None


class Residency(msgspec.Struct, frozen=True, gc=False):
    """Bytes of the model in page cache; experts/other None when the layout is unknown."""

    resident_bytes: int
    expert_bytes: int | None = None
    other_bytes: int | None = None


class MachineSample(msgspec.Struct, frozen=True):
    """What belongs to everybody on the machine; never blamed on a backend."""

    meminfo: MemInfo | None = None
    vmstat: VmStat | None = None
    pressure_memory: Pressure | None = None
    pressure_io: Pressure | None = None
    disks: dict[str, DiskCounters] = {}
    kept: tuple[KeptMemory, ...] = ()
    """Where it is known to be, each cgroup once."""


class BackendSample(msgspec.Struct, frozen=True):
    """What belongs to one backend: its process, its cgroup, its HTTP, its model's residency.

    `process` None with `process_gone` True: the process ended. `cgroup` None: none, or only the root cgroup. `cgroup_directory`: the one
    that `cgroup` was read of; a process that moves to another one has other counters from then on.
    """

    name: str
    process: ProcessCounters | None = None
    process_gone: bool = False
    cgroup: CgroupMemory | None = None
    http: BackendHttp | None = None
    residency: Residency | None = None
    cgroup_directory: str | None = None
    above: tuple[CgroupAbove, ...] = ()
    """Cgroups with a limit above its own, the nearest first."""


class Sample(msgspec.Struct, frozen=True):
    """One tick. `at_seconds` is CLOCK_MONOTONIC, `wall_seconds` the Unix time."""

    at_seconds: float
    wall_seconds: float
    machine: MachineSample
    backends: tuple[BackendSample, ...] = ()


class BackendIdentity(msgspec.Struct, frozen=True):
    """Which paths and numbers belong to a backend, so that raw text can be assembled into a `BackendSample`.

    `cgroup_directory`: absolute directory of its memory cgroup, None when it is in the root cgroup.
    `limited_above`: directories above that one which have a limit, the nearest first. `disks`: names under /sys/block of the
    devices under its model. `start_ticks`: field 22 of /proc/<pid>/stat; None: the process that has the pid when it is first
    looked at. `dialect`: how it answers over HTTP; `numbers` are of the dialect "generic". `kept`: cgroups of the machine, the
    backend's own or not, whose memory the kernel does not take.
    """

    name: str
    pid: int | None = None
    url: str | None = None
    cgroup_directory: str | None = None
    cgroup_version: int | None = None
    disks: tuple[str, ...] = ()
    page_bytes: int = 4096
    clock_ticks: int = 100
    start_ticks: int | None = None
    limited_above: tuple[str, ...] = ()
    dialect: Dialect = Dialect.LLAMA
    numbers: HttpNumbers | None = None
    kept: tuple[KeptCgroup, ...] = ()
