"""What all ways of supervising have in common; the rest is tested with each of them."""

from __future__ import annotations

from moetuned.daemon.supervisor import preferred_plan
from moetuned.decide.supervision import LaunchPlan
from moetuned.schema.config import Backend, Context


def test_the_config_says_what_it_is_started_with() -> None:
    config = Backend(
        name="glm", context=Context(preferred=8192, minimum=1024), prompt_cache_mib=64, slots=2, cache_type="q8_0"
    )
    assert preferred_plan(config) == LaunchPlan(8192, 64, 2, None, "q8_0")
