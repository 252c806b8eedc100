"""The configuration: the only schema there is. Validation, the sample file and the reference page come from it.

Docs of a key are its `msgspec.Meta(description=…)`. Sizes and durations are text ("16GiB", "5m") or numbers and are
turned into numbers with `schema.units` where they are used; `parse.config_text` checks them all at once. A key with a
pattern says in words what it allows, with an example: `Meta(extra={"allowed": …})`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from moetuned.schema.alert import Alert
from moetuned.schema.config_types import Duration, Size
from moetuned.schema.relief import DEFAULT_STEPS, BeforeStart, GrowBack, StepName
from moetuned.schema.supervise import Supervise, SuperviseNone
from moetuned.schema.swap import Swap

Count = Annotated[int, Meta(ge=0)]


KEEP = "keep"
"""What the configuration says of a setting that the profile shall leave alone."""


class Profile(StrEnum):
    """Sets of tunables."""

    MOE_OFFLOAD = "moe-offload"
    MOE_OFFLOAD_ZRAM = "moe-offload-zram"
    OBSERVE = "observe"


class Mode(StrEnum):
    """Whether relief acts or only says what it would do."""

    OBSERVE = "observe"
    ACT = "act"


class Protect(StrEnum):
    """Whether what every token needs of a model is locked in memory."""

    OFF = "off"
    AUTO = "auto"
    ON = "on"


class Tuning(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Kernel settings to apply at start and to roll back at stop."""

    profile: Annotated[
        Profile,
        Meta(
            description="Set of tunables: moe-offload, moe-offload-zram (with swap in compressed memory), or observe "
            "(changes nothing)."
        ),
    ] = Profile.OBSERVE
    sysctl: Annotated[
        dict[str, int | str],
        Meta(
            description="Sysctls that overlay the profile, e.g. vm.vfs_cache_pressure: 50. Only tunables moetuned knows. "
            "at-least 50 and at-most 50 set it only where it is not so already; keep leaves it alone."
        ),
    ] = {}
    thp: Annotated[
        Literal["always", "madvise", "never", "keep"] | None,
        Meta(description="Transparent huge pages; unset: what the profile says; keep: left alone."),
    ] = None
    thp_defrag: Annotated[
        Literal["always", "defer", "defer+madvise", "madvise", "never", "keep"] | None,
        Meta(description="What a fault does to get a transparent huge page; unset: left alone."),
    ] = None
    khugepaged_defrag: Annotated[
        Annotated[int, Meta(ge=0, le=1)] | None,
        Meta(
            description="Whether khugepaged may reclaim and compact memory for huge pages (0 or 1); unset: left alone."
        ),
    ] = None
    lru_gen_min_ttl_ms: Annotated[
        Annotated[int, Meta(ge=0, le=3600000)] | None,
        Meta(
            description="Multi-gen LRU: memory used within this time (ms) is not reclaimed, the kernel kills instead; "
            "unset: left alone."
        ),
    ] = None
    read_ahead: Annotated[
        Annotated[int, Meta(ge=4, le=65536)] | Literal["keep"] | None,
        Meta(
            description="Read-ahead (KiB) of the file systems that the backends' models are on; unset: computed from the model's "
            "experts; keep: left alone. A backend takes it when it opens its model."
        ),
    ] = None
    scheduler: Annotated[
        Literal["none", "mq-deadline", "kyber", "bfq", "keep"] | None,
        Meta(description="I/O scheduler of the disks under the backends' models; unset: left alone."),
    ] = None
    nr_requests: Annotated[
        Annotated[int, Meta(ge=4, le=65536)] | None,
        Meta(description="Requests that may wait at each of those disks; unset: left alone."),
    ] = None
    swap: Annotated[
        Swap | None,
        Meta(description="Swap to make at start and to take away at stop; unset: none, but zram in moe-offload-zram."),
    ] = None


class Context(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long a context the backend gets."""

    preferred: Annotated[int, Meta(ge=256, le=1 << 24, description="Context length (tokens) at start.")] = 16384
    minimum: Annotated[int, Meta(ge=256, le=1 << 24, description="Relief never goes below this.")] = 2048


_HttpPath = Annotated[
    str,
    Meta(
        pattern=r"^/[A-Za-z0-9_./~-]{0,200}$",
        extra={"allowed": "must be a path of letters, digits and -_./~ that begins with /, e.g. /health"},
    ),
]


class Generic(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A server of no kind that moetuned knows: how to recognise it, and where it tells what over HTTP."""

    process: Annotated[
        str,
        Meta(
            description="Regular expression for its program and arguments, joined by blanks, from their beginning; at most two repeats, "
            "none of a group."
        ),
    ]
    health: Annotated[
        _HttpPath, Meta(description="Path that answers with status 200 when it is ready, and with 503 while it loads.")
    ] = "/health"
    metrics: Annotated[
        _HttpPath | None, Meta(description="Path of its metrics, a number a line; null: it has none.")
    ] = "/metrics"
    tokens: Annotated[
        str | None,
        Meta(
            description="Expression for the line with all tokens generated so far, e.g. tokens_total (\\S+); unset: they stay unknown."
        ),
    ] = None
    prompt_tokens: Annotated[
        str | None,
        Meta(description="Expression for the line with all prompt tokens processed so far; unset: they stay unknown."),
    ] = None
    requests: Annotated[
        str | None,
        Meta(
            description="Expression for the line with the requests it works on now; unset: what it does stays unknown."
        ),
    ] = None


class Backend(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One inference server."""

    name: Annotated[
        str,
        Meta(
            pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$",
            description="Name in status, metrics and alerts.",
            extra={
                "allowed": "must be at most 63 letters, digits, points, hyphens and underscores, and begin with a letter or "
                "digit, e.g. glm-4.5"
            },
        ),
    ]
    kind: Annotated[
        str | None,
        Meta(
            description="llama-server, ik-llama, llama-cpp-python, ollama, koboldcpp, xllamacpp, simulator or generic; unset: recognised "
            "from its command line."
        ),
    ] = None
    model: Annotated[
        str | None, Meta(description="GGUF file (first part of a split model); unset: from its command line.")
    ] = None
    supervise: Annotated[Supervise, Meta(description="Who starts it.")] = SuperviseNone()
    url: Annotated[
        Annotated[
            str,
            Meta(
                pattern=r"^http://(127\.0\.0\.1|localhost|\[::1\])(:\d+)?/?$",
                extra={
                    "allowed": "must be http:// with 127.0.0.1, localhost or [::1], a port and no path, "
                    "e.g. http://127.0.0.1:8080"
                },
            ),
        ]
        | None,
        Meta(description="Its HTTP address on this machine, e.g. http://127.0.0.1:8080; unset: from its command line."),
    ] = None
    context: Annotated[Context, Meta(description="Context length.")] = Context()
    prompt_cache_mib: Annotated[
        Annotated[int, Meta(ge=0, le=1 << 20)] | None,
        Meta(
            description="Value of {prompt_cache_mib} at start (llama-server --cache-ram); a restart under memory pressure shrinks it."
        ),
    ] = None
    slots: Annotated[
        Annotated[int, Meta(ge=1, le=256)] | None,
        Meta(description="Value of {slots} at start (llama-server --parallel); relief may take it to 1."),
    ] = None
    checkpoints: Annotated[
        Annotated[int, Meta(ge=0, le=256)] | None,
        Meta(description="Value of {checkpoints} at start (llama-server --ctx-checkpoints); relief may take it to 2."),
    ] = None
    cache_type: Annotated[
        Literal["f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1"] | None,
        Meta(
            description="Value of {cache_type} at start (llama-server --cache-type-k and --cache-type-v); relief may take it to q8_0 "
            "where relief.steps has quantise_kv_cache."
        ),
    ] = None
    memory_low: Annotated[
        Size | None,
        Meta(
            description="Memory of its cgroup that the kernel takes last (memory.low, cgroup v2 only; with the multi-gen LRU only below a limit "
            "that both share); unset: left alone."
        ),
    ] = None
    memory_min: Annotated[
        Size | None,
        Meta(
            description="Memory of its cgroup that the kernel never takes; it kills programs instead (memory.min, cgroup v2 only). Refused where "
            "all backends together would leave the machine less than a quarter of RAM, or 2 GiB (half of RAM below 4 GiB). Unset: left alone."
        ),
    ] = None
    io_weight: Annotated[
        Annotated[int, Meta(ge=1, le=10000)] | None,
        Meta(
            description="Its cgroup's share of the disk beside others' 100 (io.weight, cgroup v2 only); unset: left alone."
        ),
    ] = None
    generic: Annotated[Generic | None, Meta(description="For kind generic: what it is and where it tells what.")] = None


class Watch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the daemon looks."""

    interval: Annotated[Duration, Meta(description="Time between ticks, 200ms to 4s.")] = "1s"
    idle_interval: Annotated[
        Duration,
        Meta(
            description="Longest time between ticks while no backend does anything and memory is ok, 200ms to 4s; what is not longer than "
            "interval changes nothing."
        ),
    ] = "4s"
    discover: Annotated[bool, Meta(description="Also watch running backends that the config does not name.")] = True
    residency_every: Annotated[Duration, Meta(description="Time between residency scans of a model, 1s or more.")] = (
        "10s"
    )


class Warm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Warming the model after the backend is ready."""

    enabled: Annotated[bool, Meta(description="Warm the model of supervised backends after they are ready.")] = True
    budget: Annotated[
        Size | Literal["auto"], Meta(description="Most bytes to have resident; auto: what the memory limit leaves.")
    ] = "auto"
    rate: Annotated[
        Size | None,
        Meta(description="Most bytes a second to read, what is in memory not counted; unset: as fast as the disk."),
    ] = None
    protect: Annotated[
        Protect,
        Meta(
            description="Lock what every token needs (never experts) in memory while much of it is left: off; auto: only where that is "
            "at most a quarter of what is left; on: as much as fits. Supervised backends only."
        ),
    ] = Protect.OFF
    prompts: Annotated[
        str,
        Meta(
            pattern=r"^(off|default|/.*)$",
            description="Prompts to send to a supervised backend after it is ready, until somebody else asks it something, so that the "
            "experts for them are in memory: off, default (the set that comes with moetuned), or a YAML file with a list of texts.",
            extra={"allowed": "must be off, default or an absolute path, e.g. /etc/moetuned/prompts.yaml"},
        ),
    ] = "off"
    prompts_seconds: Annotated[
        int, Meta(ge=5, le=600, description="All prompts together take at most this long (seconds).")
    ] = 60


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where memory is near its limit: headroom left, as a size or a percentage of the limit."""

    near: Annotated[str | int, Meta(description='near_limit below this headroom, e.g. "8%" or 2GiB.')] = "8%"
    critical: Annotated[str | int, Meta(description='critical below this headroom, e.g. "3%" or 512MiB.')] = "3%"


class Relief(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What moetuned may do when memory nears its limit."""

    mode: Annotated[Mode, Meta(description="act, or observe: only say what it would do.")] = Mode.OBSERVE
    steps: Annotated[
        list[StepName],
        Meta(
            description="Steps it may take; they are taken smallest first, whatever their order here. quantise_kv_cache changes what the "
            "model answers a little, and is taken only where it is named."
        ),
    ] = msgspec.field(default_factory=lambda: list(DEFAULT_STEPS))
    minimum_context: Annotated[
        Annotated[int, Meta(ge=256, le=1 << 24)] | None,
        Meta(
            description="No backend gets a shorter context than this (tokens), whatever its own context.minimum; unset: that alone."
        ),
    ] = None
    at_most: Annotated[
        str,
        Meta(
            pattern=r"^\d{1,3}/(h|d)$",
            description="Most restarts in a time, e.g. 3/h.",
            extra={"allowed": "must be a number of restarts up to 999 an hour or a day, e.g. 3/h or 10/d"},
        ),
    ] = "3/h"
    cool_down: Annotated[Duration, Meta(description="No second restart of a backend within this time.")] = "2m"
    settle: Annotated[
        Duration,
        Meta(
            description="So long after a step, or after the backend is ready again, its effect is judged; a step that did not move the "
            "numbers is not taken again before memory is well."
        ),
    ] = "5s"
    drain: Annotated[
        Duration,
        Meta(
            description="A restart waits at most so long for the requests that are worked on, less where memory would run out meanwhile, not at "
            "all when it is critical; memory that is well again before calls it off. 0: at once."
        ),
    ] = "30s"
    pause: Annotated[
        bool,
        Meta(
            description="Stop the backend's process (SIGSTOP) for a second look, at most three seconds, where its own memory grows so fast that "
            "the limit would come before one."
        ),
    ] = True
    restart_hung: Annotated[
        Duration,
        Meta(
            description="With mode: act, a backend that moetuned may restart and at which nothing has moved for so long, no token, no read, no "
            "processor time, is restarted; at least 1m; off: never."
        ),
    ] = "2m"
    before_start: Annotated[
        BeforeStart,
        Meta(
            description="A backend that is about to be started with a context, prompt cache, repacked or locked weights that cannot fit: "
            "fit starts it with what fits, refuse does not start it, off starts it as it is."
        ),
    ] = BeforeStart.FIT
    grow_back: Annotated[
        GrowBack,
        Meta(
            description="With mode act: once memory has been ample for 10 minutes and the backend idle for 5, a restart gives back what "
            "relief took, as much as surely fits, at most once an hour, and not again after memory neared its limit within an hour of it; "
            "off: never."
        ),
    ] = GrowBack.WHEN_IDLE


class Api(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the daemon answers."""

    socket: Annotated[str, Meta(description="Unix socket.")] = "/run/moetuned/api.sock"
    listen: Annotated[
        str | Literal[False],
        Meta(description="Loopback address for GET requests and /metrics, or false."),
    ] = "127.0.0.1:9843"
    group: Annotated[str, Meta(description="Group that may act through the socket besides root.")] = "moetuned"


class Metrics(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Metrics for those who do not scrape `api.listen`."""

    textfile: Annotated[
        str | None,
        Meta(
            description="File for the textfile collector of node_exporter, e.g. /var/lib/prometheus/node-exporter/moetuned.prom, removed at stop; "
            "unset: none."
        ),
    ] = None
    every: Annotated[Duration, Meta(description="Time between its writes, 5s or more.")] = "15s"


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything. An empty file is valid: moetuned watches what runs and changes nothing."""

    tuning: Annotated[Tuning, Meta(description="Kernel settings.")] = Tuning()
    backends: Annotated[list[Backend], Meta(max_length=16, description="Inference servers to start or watch.")] = []
    watch: Annotated[Watch, Meta(description="How to look.")] = Watch()
    warm: Annotated[Warm, Meta(description="Warming the model.")] = Warm()
    limits: Annotated[Limits, Meta(description="When memory is near its limit.")] = Limits()
    relief: Annotated[Relief, Meta(description="What to do then.")] = Relief()
    alerts: Annotated[list[Alert], Meta(max_length=32, description="Who is told.")] = []
    api: Annotated[Api, Meta(description="The daemon's own interface.")] = Api()
    metrics: Annotated[Metrics, Meta(description="Metrics as a file; /metrics is there without it.")] = Metrics()
