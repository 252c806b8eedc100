"""A command of the config with its placeholders replaced. Nothing else in it is interpreted, and no value is looked at again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from moetuned.decide.supervision import LaunchPlan
from moetuned.schema.config import Backend

_NOT_GIVEN = {"prompt_cache_mib": "0", "slots": "1", "checkpoints": "0", "cache_type": "f16"}
"""What a placeholder is replaced by where the plan leaves it open."""


def command_for(command: Sequence[str], model: str | None, plan: LaunchPlan) -> list[str]:
    """The arguments with the placeholders replaced by the plan's values."""
    return fill(command, {"model": model or "", **_NOT_GIVEN, **values_of(plan)})


def values_of(plan: LaunchPlan) -> dict[str, str]:
    """The plan as `host.service.VALUES`; what it leaves open is not in it."""
    values = {
        "context": plan.context_length,
        "prompt_cache_mib": plan.prompt_cache_mib,
        "slots": plan.slots,
        "checkpoints": plan.checkpoints,
        "cache_type": plan.cache_type,
    }
    return {name: str(value) for name, value in values.items() if value is not None}


def fill(command: Sequence[str], values: Mapping[str, str]) -> list[str]:
    """The arguments with each {name} of `values` replaced."""
    placeholders = {f"{{{name}}}": value for name, value in values.items()}
    return [_filled(argument, placeholders) for argument in command]


def used_names(command: Sequence[str], names: Collection[str]) -> frozenset[str]:
    """Which of `names` occur as a placeholder."""
    return frozenset(name for name in names if any(f"{{{name}}}" in argument for argument in command))


def _filled(argument: str, values: Mapping[str, str]) -> str:
    for placeholder, value in values.items():
        before, found, after = argument.partition(placeholder)
        if found:
            return _filled(before, values) + value + _filled(after, values)
    return argument


def preferred_plan(config: Backend) -> LaunchPlan:
    """What the config wants the backend to be started with."""
    return LaunchPlan(
        config.context.preferred, config.prompt_cache_mib, config.slots, config.checkpoints, config.cache_type
    )


def words_of(plan: LaunchPlan, sets: Callable[[str], bool]) -> str:
    """What of the plan its command takes, the end of a sentence; "" where it takes nothing. `sets`: see `daemon.supervisor`."""
    words = {
        "context": f"a context of {plan.context_length} tokens",
        "prompt_cache_mib": f"a prompt cache of {plan.prompt_cache_mib} MiB",
        "slots": f"{plan.slots} {'slot' if plan.slots == 1 else 'slots'}",
        "checkpoints": f"{plan.checkpoints} checkpoints a slot",
        "cache_type": f"a KV cache of {plan.cache_type}",
    }
    parts = [text for name, text in words.items() if sets(name)]
    return " with " + " and ".join(parts) if parts else ""
