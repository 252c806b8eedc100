from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from moetuned.simulator.anonymous_memory import AnonymousMemory, PromptCache

MIB = 1 << 20


def anonymous_bytes():
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) << 10
    raise AssertionError("no RssAnon")


def test_memory_is_really_held_and_given_back():
    before = anonymous_bytes()
    memory = AnonymousMemory(64 * MIB)
    assert anonymous_bytes() - before >= 60 * MIB
    memory.close()
    assert anonymous_bytes() - before <= 8 * MIB


def test_touch_counts_pages_and_stays_inside():
    memory = AnonymousMemory(40960)
    assert memory.touch(0, 1) == 1
    assert memory.touch(4095, 2) == 2
    assert memory.touch(0, 1 << 40) == 10
    assert memory.touch(1 << 40, 10) == 0
    assert AnonymousMemory(0).touch(0, 4096) == 0


@settings(max_examples=30)
@given(st.lists(st.integers(1, 60_000), max_size=30))
def test_the_prompt_cache_never_passes_its_limit(sizes):
    cache = PromptCache(100_000)
    for size in sizes:
        assert cache.save(size)
        assert size <= cache.used_bytes <= 100_000


def test_the_oldest_goes_first_and_a_state_larger_than_the_cache_is_not_kept():
    cache = PromptCache(100)
    assert cache.save(60)
    assert cache.save(40)
    assert cache.save(50)
    assert cache.used_bytes == 90
    assert not cache.save(101)
    assert cache.used_bytes == 90


def test_off_keeps_nothing_and_no_limit_keeps_all():
    off, unlimited = PromptCache(0), PromptCache(None)
    assert not off.save(1)
    for _ in range(3):
        assert unlimited.save(1000)
    assert (off.used_bytes, unlimited.used_bytes) == (0, 3000)
