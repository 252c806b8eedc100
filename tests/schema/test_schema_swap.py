from __future__ import annotations

import msgspec
import pytest

from moetuned.schema.swap import HIGHEST_PRIORITY, Swap, SwapPlace


def test_nothing_is_wished_for_unless_it_is_written() -> None:
    assert msgspec.convert({}, Swap) == Swap(file=None, size="auto", zram=None, priority=None)


def test_a_whole_wish() -> None:
    text = b'{"file": "/var/lib/moetuned/swapfile", "size": "8GiB", "zram": "auto", "priority": 5}'
    wish = msgspec.json.decode(text, type=Swap)
    assert (wish.file, wish.size, wish.zram, wish.priority) == ("/var/lib/moetuned/swapfile", "8GiB", "auto", 5)


@pytest.mark.parametrize("wrong", [{"priority": -1}, {"priority": HIGHEST_PRIORITY + 1}, {"path": "/x"}, {"zram": 1.5}])
def test_what_the_types_refuse(wrong: dict[str, object]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(wrong, Swap)


def test_every_key_is_described() -> None:
    schema = msgspec.json.schema(Swap)["$defs"]["Swap"]["properties"]
    assert set(schema) == {"file", "size", "zram", "priority"}
    assert all(len(each["description"]) > 40 for each in schema.values())


def test_the_words_for_where_swap_lives() -> None:
    assert [place.value for place in SwapPlace] == ["none", "zram only", "ssd", "rotational", "mixed", "unknown"]
