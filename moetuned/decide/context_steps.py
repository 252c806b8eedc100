"""What another context length or cache type would change: the longest that costs nothing, and what shorter ones free."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from moetuned.decide.ledger import held
from moetuned.schema.estimate import ContextStep, LaunchPlan, Ledger, LongestContext

STEP_TOKENS = 256
SHORTEST_TOKENS = 2048
UNKNOWN_LONGEST_TOKENS = 1 << 20
NOTICEABLE_RATIO = 0.01
_FEWEST_BYTES = 16 << 20
_SMALLER_TYPE = "q8_0"

Build = Callable[[LaunchPlan], Ledger]


def longest_context(build: Build, plan: LaunchPlan, trained_tokens: int | None) -> LongestContext:
    """The longest context whose ratio is within a percentage point of the planned one's, in steps of 256 tokens.

    Not longer than the model was trained for. `build` makes the ledger of a plan.
    """
    asked = build(plan).ratio_low
    end = max(trained_tokens or UNKNOWN_LONGEST_TOKENS, plan.context_length)

    def good(tokens: int) -> bool:
        ledger = build(msgspec.structs.replace(plan, context_length=tokens))
        return ledger.shortage is None and ledger.ratio_low > asked - NOTICEABLE_RATIO

    if good(end):
        reason = "the model was trained for no more" if trained_tokens else "not searched further"
        return LongestContext(end, reason)
    low, high = plan.context_length // STEP_TOKENS, -(-end // STEP_TOKENS)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if good(middle * STEP_TOKENS) else (low, middle)
    return LongestContext(max(plan.context_length, low * STEP_TOKENS), "more takes memory from the experts")


def shorter_steps(build: Build, plan: LaunchPlan) -> tuple[ContextStep, ...]:
    """Half the context and half of that, down to 2048 tokens, and a smaller cache type; only those that free something."""
    plans = []
    if plan.cache_type_k == plan.cache_type_v == "f16":
        plans.append(msgspec.structs.replace(plan, cache_type_k=_SMALLER_TYPE, cache_type_v=_SMALLER_TYPE))
    tokens = plan.context_length // 2
    while tokens >= SHORTEST_TOKENS and len(plans) < 5:
        plans.append(msgspec.structs.replace(plan, context_length=tokens))
        tokens //= 2
    now = _most_held(build(plan))
    steps = []
    for other in plans:
        ledger = build(other)
        frees = now - _most_held(ledger)
        if frees >= _FEWEST_BYTES:
            steps.append(
                ContextStep(other.context_length, other.cache_type_k, other.cache_type_v, frees, ledger.ratio_low)
            )
    return tuple(steps)


def _most_held(ledger: Ledger) -> int:
    return held(ledger).high_bytes + held(ledger, "vram").high_bytes
