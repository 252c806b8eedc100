from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moetuned.parse.disk_stat import parse_disk_stat
from moetuned.schema.sample import DiskCounters

TEXT = " 1674776  2251243 955622138  3854836   137143   110007 65232864   500767       18   420252  4378270    62663       45\n"


def test_counters_in_bytes_and_milliseconds() -> None:
    assert parse_disk_stat(TEXT) == DiskCounters(
        read_ios=1674776,
        read_bytes=955622138 * 512,
        busy_ms=420252,
        read_ms=3854836,
        write_bytes=65232864 * 512,
        in_flight=18,
        queue_ms=4378270,
    )


def test_a_number_that_may_be_cut_is_unknown() -> None:
    eleven = " ".join(TEXT.split()[:11])
    cut, whole = parse_disk_stat(eleven), parse_disk_stat(eleven + "\n")
    assert cut is not None
    assert whole is not None
    assert (cut.queue_ms, whole.queue_ms) == (None, 4378270)


def test_too_few_fields_are_unknown() -> None:
    assert parse_disk_stat(None) is None
    assert parse_disk_stat("1 2 3\n") is None


@given(st.text())
def test_hostile_text_is_no_exception(text: str) -> None:
    parsed = parse_disk_stat(text)
    assert parsed is None or isinstance(parsed, DiskCounters)
