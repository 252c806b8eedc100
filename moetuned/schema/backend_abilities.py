"""What a kind of backend can do, as data: how it is set, what it answers over HTTP, and what that tells."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec


class Way(StrEnum):
    """How a setting is given to a backend: on its command line, in its environment, or by a request to it."""

    FLAG = "flag"
    VARIABLE = "variable"
    API = "API"


class Dialect(StrEnum):
    """How a backend answers over HTTP; `parse.backend_http` has the paths and the parser of each."""

    LLAMA = "llama"
    LLAMA_PYTHON = "llama-python"
    OLLAMA = "ollama"
    OLLAMA_RUNNER = "ollama-runner"
    KOBOLD = "kobold"
    GENERIC = "generic"


class HttpPaths(msgspec.Struct, frozen=True):
    """What is asked, in this order; nothing more when `health` gives no good answer. None: there is no such path.

    `props` is asked before the others of a server that may have unloaded its model, because they would wake it.
    """

    health: str
    props: str | None = None
    slots: str | None = None
    metrics: str | None = None


class Abilities(msgspec.Struct, frozen=True):
    """Of one kind. An empty tuple: it cannot be set.

    `tokens`: which number tells the tokens that are being generated; None: none does. `saves_slots`: it writes a slot's KV cache to a
    file and reads it again. `child_holds_model`: a child of the same kind may hold the model; the parent then only stands before it.
    """

    dialect: Dialect
    context: tuple[Way, ...] = ()
    slots: tuple[Way, ...] = ()
    cache_types: tuple[Way, ...] = ()
    prompt_cache: tuple[Way, ...] = ()
    saves_slots: bool = False
    tokens: str | None = None
    child_holds_model: bool = False

    def ways(self, value: str) -> tuple[Way, ...]:
        """How it is given this one of `host.service.VALUES`; (): no way is known."""
        found = {
            "context": self.context,
            "prompt_cache_mib": self.prompt_cache,
            "slots": self.slots,
            "cache_type": self.cache_types,
        }
        return found.get(value, ())


_BOTH = (Way.FLAG, Way.VARIABLE)
LLAMA_SERVER = Abilities(
    dialect=Dialect.LLAMA,
    context=_BOTH,
    slots=_BOTH,
    cache_types=_BOTH,
    prompt_cache=_BOTH,
    saves_slots=True,
    tokens="`next_token.n_decoded` of /slots; `llamacpp:n_decode_total` of /metrics",
)
"""What llama.cpp's server can, and what takes its flags."""


class SettingNames(msgspec.Struct, frozen=True):
    """How one number or word is given to a backend: a flag's spellings and a variable; a flag goes before the variable.

    `each_slot`: the variable is of one slot, not of all.
    """

    flags: tuple[str, ...] = ()
    variable: str | None = None
    each_slot: bool = False


LLAMA_SETTINGS: Mapping[str, tuple[SettingNames, ...]] = {
    "context": (SettingNames(("-c", "--ctx-size"), "LLAMA_ARG_CTX_SIZE"),),
    "prompt_cache_mib": (SettingNames(("-cram", "--cache-ram"), "LLAMA_ARG_CACHE_RAM"),),
    "slots": (SettingNames(("-np", "--parallel"), "LLAMA_ARG_N_PARALLEL"),),
    "checkpoints": (SettingNames(("-ctxcp", "--ctx-checkpoints", "--swa-checkpoints"), "LLAMA_ARG_CTX_CHECKPOINTS"),),
    "cache_type": (
        SettingNames(("-ctk", "--cache-type-k"), "LLAMA_ARG_CACHE_TYPE_K"),
        SettingNames(("-ctv", "--cache-type-v"), "LLAMA_ARG_CACHE_TYPE_V"),
    ),
}
"""llama.cpp's names for what a restart may change (`host.service.VALUES`), as of b11434. A variable that an older build does not know
changes nothing there. Two names: both get the value.
"""
