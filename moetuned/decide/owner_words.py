"""What the owner of a backend can change by himself, in the words of that backend: for one that moetuned may not restart."""

from __future__ import annotations

from collections.abc import Mapping

from moetuned.schema.action import RestartBackend
from moetuned.schema.backend_abilities import SettingNames

Names = Mapping[str, tuple[SettingNames, ...]]
"""How each of `host.service.VALUES` is given to a backend."""


def owner_words(restart: RestartBackend, names: Names, slots: int | None) -> str:
    """The end of "restart it …": its own flags or variables with their values. `slots`: that it has now; None: unknown, one.

    What cannot be given to it is left out; without anything it is said in general.
    """
    values = {
        "context": restart.context_length,
        "slots": restart.slots,
        "cache_type": restart.cache_type,
        "checkpoints": restart.checkpoints,
        "prompt_cache_mib": restart.prompt_cache_mib,
    }
    parts = []
    for value, setting in values.items():
        if setting is None or (value == "context" and "shorter_context" not in restart.steps):
            continue
        for one in names.get(value, ()):
            amount = setting // (restart.slots or slots or 1) if one.each_slot and isinstance(setting, int) else setting
            if one.flags:
                parts.append(f"{one.flags[0]} {amount}")
            elif one.variable is not None:
                parts.append(f"{one.variable}={amount}")
    return f"with {' '.join(parts)}" if parts else "with a shorter context, by its own means"
