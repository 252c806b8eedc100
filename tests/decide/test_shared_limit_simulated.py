"""One restart is enough where others fill a limit that the backend shares, whoever is said to grow: see `shared_limit_simulation`."""

from __future__ import annotations

from statistics import median

from shared_limit_simulation import MINIMUM, NEAR, PREFERRED, decided

SEEDS = range(60)


def test_one_restart_is_enough_for_a_program_beside_a_prompt_cache() -> None:
    for seed in SEEDS:
        found = decided(seed)
        assert found is not None
        assert found.headroom_bytes >= NEAR, (seed, found)
        assert found.context >= MINIMUM


def test_one_restart_is_enough_for_a_program_alone_and_keeps_what_it_can() -> None:
    contexts = []
    for seed in SEEDS:
        found = decided(seed, cache_mib=0)
        assert found is not None
        assert found.headroom_bytes >= NEAR, (seed, found)
        contexts.append(found.context)
    assert median(contexts) >= 1.25 * MINIMUM


def test_a_prompt_cache_alone_ends_with_its_process_and_costs_little_context() -> None:
    contexts = []
    for seed in SEEDS:
        found = decided(seed, takes=False, cache_mib=4096)
        assert found is not None
        assert found.kind == "prompt_cache"
        contexts.append(found.context)
    assert median(contexts) >= 0.8 * PREFERRED
