"""A command of the config with its placeholders replaced. Nothing else in it is interpreted, and no value is looked at again."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from moetuned.decide.supervision import LaunchPlan


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
