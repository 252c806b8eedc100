"""Sizes, durations and rates: to numbers and back."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.schema.units import (
    format_bytes,
    format_duration,
    format_rate,
    format_ratio,
    parse_bytes,
    parse_duration,
)

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (0, 0),
        (12345, 12345),
        ("12345", 12345),
        ("16GiB", 16 * GIB),
        ("16GB", 16 * GIB),
        ("16G", 16 * GIB),
        ("16g", 16 * GIB),
        (" 512 MiB ", 512 * MIB),
        ("1.5k", 1536),
        ("0.5B", 0),
        ("2T", 2 << 40),
        ("1P", 1 << 50),
        (1 << 60, 1 << 60),
        ((1 << 53) + 1, (1 << 53) + 1),
        (f"{(1 << 53) + 1}", (1 << 53) + 1),
    ],
)
def test_sizes(text: str | int, wanted: int) -> None:
    assert parse_bytes(text) == wanted


@pytest.mark.parametrize(
    "text",
    ["", "G", "16 X", "1,5G", "-1", "+1", "1e9", "0x10", "16GiBs", "nan", "inf", "9" * 5000, "16G\n16G", "1_000"],
)
def test_what_is_no_size_says_what_is(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no size; write a number of bytes or e\.g\. 512MiB, 16GiB"):
        parse_bytes(text)


@pytest.mark.parametrize("text", [-1, (1 << 60) + 1, 10**400, "1025P", "9" * 30])
def test_sizes_out_of_range(text: str | int) -> None:
    with pytest.raises(ValueError, match="between 0 and 2\\^60 bytes"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (0, 0.0),
        (1.5, 1.5),
        ("2", 2.0),
        ("500ms", 0.5),
        ("1s", 1.0),
        ("5m", 300.0),
        ("5 min", 300.0),
        ("1.5h", 5400.0),
        ("1D", 86400.0),
    ],
)
def test_durations(text: str | float, wanted: float) -> None:
    seconds = parse_duration(text)
    assert (seconds, type(seconds)) == (wanted, float)


@pytest.mark.parametrize("text", ["", "s", "1 week", "-1s", "1s 2s", "1e3", "nan"])
def test_what_is_no_duration_says_what_is(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no duration; write e\.g\. 500ms, 1s, 5m, 2h"):
        parse_duration(text)


@pytest.mark.parametrize("text", [-0.001, float("nan"), float("inf"), 10**400, "3651d", "9" * 400])
def test_durations_out_of_range(text: str | float) -> None:
    with pytest.raises(ValueError, match="between 0 and ten years"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("count", "wanted"),
    [
        (None, "unknown"),
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (MIB - 1, "1.0 MiB"),
        (1.7 * GIB, "1.7 GiB"),
        (200 * GIB, "200 GiB"),
        (GIB - 1, "1.0 GiB"),
        (1 << 50, "1024.0 TiB"),
        (-3 * MIB, "-3.0 MiB"),
    ],
)
def test_sizes_for_people(count: float | None, wanted: str) -> None:
    assert format_bytes(count) == wanted


@pytest.mark.parametrize(
    ("rate", "wanted"),
    [
        (None, "unknown"),
        (0, "0 B/s"),
        (999, "999 B/s"),
        (1500, "1.5 kB/s"),
        (455e6, "455 MB/s"),
        (999_600, "1.0 MB/s"),
        (3.25e9, "3.2 GB/s"),
        (-2e6, "-2.0 MB/s"),
    ],
)
def test_rates_for_people(rate: float | None, wanted: str) -> None:
    assert format_rate(rate) == wanted


@pytest.mark.parametrize(
    ("seconds", "wanted"),
    [
        (None, "unknown"),
        (0, "0 s"),
        (0.25, "0.2 s"),
        (9.9, "9.9 s"),
        (45, "45 s"),
        (59.6, "1 min"),
        (200, "3 min 20 s"),
        (7500, "2 h 5 min"),
        (7200, "2 h"),
        (3 * 86400 + 4 * 3600 + 59, "3 d 4 h"),
    ],
)
def test_durations_for_people(seconds: float | None, wanted: str) -> None:
    assert format_duration(seconds) == wanted


@pytest.mark.parametrize(("ratio", "wanted"), [(None, "unknown"), (0.0, "0 %"), (0.384, "38 %"), (1.0, "100 %")])
def test_ratios_for_people(ratio: float | None, wanted: str) -> None:
    assert format_ratio(ratio) == wanted


@given(st.integers(0, 1 << 60))
def test_every_number_of_bytes_is_a_size_and_stays_exact(count: int) -> None:
    assert parse_bytes(count) == parse_bytes(str(count)) == parse_bytes(f"{count}B") == count


@given(st.integers(0, 1 << 20), st.sampled_from(["K", "M", "G", "T"]), st.sampled_from(["", "B", "i", "iB"]))
def test_units_are_powers_of_1024(count: int, unit: str, ending: str) -> None:
    wanted = count << 10 * ("KMGT".index(unit) + 1)
    assert parse_bytes(f"{count}{unit}{ending}") == parse_bytes(f"{count} {unit.lower()}{ending}".strip()) == wanted


@given(st.integers(0, 1 << 50))
def test_a_size_for_people_reads_back_as_near_as_its_digits(count: int) -> None:
    shown = format_bytes(count)
    number, unit = shown.split()
    half_a_digit = parse_bytes(f"1{unit}") * (0.05 if "." in number else 0.5)
    assert abs(parse_bytes(shown) - count) <= half_a_digit + 1
    assert float(number) < 1024 or unit == "TiB"


@given(st.floats(0, 1e13))
def test_a_rate_for_people_has_at_most_three_digits_before_the_point(rate: float) -> None:
    number, unit = format_rate(rate).split()
    scale = {"B/s": 1.0, "kB/s": 1e3, "MB/s": 1e6, "GB/s": 1e9}[unit]
    assert float(number) < 1000 or unit == "GB/s"
    assert abs(float(number) * scale - rate) <= scale * (0.051 if "." in number else 0.51)


@given(st.floats(0, 10 * 365 * 86400.0))
def test_a_duration_for_people_reads_back_as_near_as_its_last_unit(seconds: float) -> None:
    shown = format_duration(seconds)
    parts = re.findall(r"([\d.]+) (s|min|h|d)", shown)
    assert " ".join(f"{number} {unit}" for number, unit in parts) == shown
    read = sum(parse_duration(f"{number} {unit}") for number, unit in parts)
    coarseness = 0.051 if "." in shown else {"s": 0.51, "min": 60, "h": 3600, "d": 3600}[parts[-1][1]]
    if parts[-1][1] == "min" and seconds < 3599.5:
        coarseness = 0.51
    if parts[-1][1] == "h" and seconds < 86399.5:
        coarseness = 60.5
    assert abs(read - seconds) <= coarseness


@given(st.text(max_size=20))
def test_any_text_is_a_size_or_a_sentence(text: str) -> None:
    for parse in (parse_bytes, parse_duration):
        try:
            said = str(parse(text))
        except ValueError as error:
            said = str(error)
        assert re.search(r"^[0-9]|is no (size|duration); write|is out of range; a", said)
