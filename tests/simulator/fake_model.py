"""An engine over a model map that only notes what would be touched."""

from moetuned.simulator.anonymous_memory import AnonymousMemory, PromptCache
from moetuned.simulator.engine import Engine, Plan, Task
from moetuned.simulator.router import TopicRouter

EXPERTS, USED = 16, 2


class FakeMap:
    def __init__(self):
        self.other = 0
        self.experts = []

    def touch_other(self):
        self.other += 1
        return 1

    def touch_experts(self, layer, experts):
        self.experts.append((layer, tuple(experts)))
        return len(self.experts)


def make_engine(**changes):
    plan = Plan(
        **{"layers": 3, "slots": 1, "slot_context": 256, "batch": 64, "ubatch": 16, "kv_bytes_per_token": 64} | changes
    )
    model, cache = FakeMap(), PromptCache(None)
    kv = AnonymousMemory(plan.slots * plan.slot_context * plan.kv_bytes_per_token)
    return Engine(plan, model, TopicRouter(EXPERTS, [USED] * plan.layers), kv, cache), model, cache


def make_task(**changes):
    return Task(**{"prompt_tokens": 5, "topic": 1, "limit": 4, "ignore_eos": True, "seed": 1} | changes)
