"""A command of the config with its placeholders replaced. Nothing else in it is interpreted, and no value is looked at again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from moetuned.decide.supervision import LaunchPlan
from moetuned.schema.config import Backend


def command_for(command: Sequence[str], model: str | None, plan: LaunchPlan) -> list[str]:
    """The arguments with the placeholders replaced by the plan's values."""
    values = {
        "model": model or "",
        "context": str(plan.context_length),
        "prompt_cache_mib": str(plan.prompt_cache_mib if plan.prompt_cache_mib is not None else 0),
        "slots": str(plan.slots if plan.slots is not None else 1),
        "checkpoints": str(plan.checkpoints if plan.checkpoints is not None else 0),
        "cache_type": plan.cache_type or "f16",
    }
    return fill(command, values)


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
