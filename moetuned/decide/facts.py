"""What signals and the detector need to know of a backend besides samples; it changes only when the backend does."""

from __future__ import annotations

import msgspec

from moetuned.schema.model import ModelLayout


class BackendFacts(msgspec.Struct, frozen=True):
    """One backend and its model, bytes. None is unknown; a signal that needs it is unknown then.

    `disks` are the names under /sys/block of the devices under the model; `page_bytes` and `clock_ticks` (a second)
    are the machine's. `earlier_cache_bytes`: page cache of the backend's cgroup while it ran well before the first sample;
    `address_known`: it can be asked over HTTP. `batch_tokens` (-b) of a prompt are processed between two looks at its slots,
    `micro_batch_tokens` (-ub) in one pass over the experts. `kv_cache_bytes`: of the KV cache it allocated at start;
    `prompt_cache_bytes`: the most that its prompt cache may take, None also where that has no limit.
    """

    model_bytes: int | None = None
    layout: ModelLayout | None = None
    disks: tuple[str, ...] = ()
    page_bytes: int = 4096
    clock_ticks: int = 100
    earlier_cache_bytes: int | None = None
    address_known: bool = False
    batch_tokens: int | None = None
    micro_batch_tokens: int | None = None
    kv_cache_bytes: int | None = None
    prompt_cache_bytes: int | None = None
