"""What a backend's command line and environment say about it."""

from __future__ import annotations

import msgspec

from moetuned.schema.backend_abilities import Dialect


class BackendDescription(msgspec.Struct, frozen=True):
    """Settings of a running backend; None is "not said" or "not understood", never a guessed default.

    `context_length` None also for `-c 0` (the model's own), `slots` and `threads` None also for -1 (the server chooses).
    `prompt_cache_mib` -1 is no limit. `sleeps_after_seconds` None: it never unloads its model by itself. `url` None:
    `url_unknown` says why in one sentence. `dialect`: how it answers there. `kv_unified`: whether all slots share one KV
    cache, else each has its part of the context. `front_url`: where clients ask, when another process
    than its own takes their requests. `slot_save_path`: directory for slots that are saved to files.
    """

    model_path: str | None = None
    context_length: int | None = None
    slots: int | None = None
    cache_type_k: str | None = None
    cache_type_v: str | None = None
    prompt_cache_mib: int | None = None
    threads: int | None = None
    url: str | None = None
    url_unknown: str | None = None
    metrics: bool = False
    sleeps_after_seconds: int | None = None
    batch_tokens: int | None = None
    micro_batch_tokens: int | None = None
    dialect: Dialect = Dialect.LLAMA
    front_url: str | None = None
    slot_save_path: str | None = None
    kv_unified: bool | None = None
