from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moetuned.parse.pressure import parse_pressure
from moetuned.schema.sample import Pressure

TEXT = (
    "some avg10=11.58 avg60=5.63 avg300=7.52 total=106350036\nfull avg10=8.29 avg60=3.24 avg300=4.41 total=65063436\n"
)


def test_totals_in_microseconds() -> None:
    assert parse_pressure(TEXT) == Pressure(106350036, 65063436)


def test_cpu_pressure_of_old_kernels_has_no_full() -> None:
    assert parse_pressure(TEXT.splitlines(keepends=True)[0]) == Pressure(106350036, None)


def test_no_psi_is_unknown() -> None:
    assert parse_pressure(None) is None
    assert parse_pressure("") is None
    assert parse_pressure("some avg10=0.00\n") is None


@given(st.one_of(st.text(), st.integers(0, len(TEXT)).map(lambda length: TEXT[:length])))
def test_cut_or_hostile_text_is_no_exception_and_no_half_number(text: str) -> None:
    pressure = parse_pressure(text)
    if TEXT.startswith(text) and pressure is not None:
        assert pressure.some_total_us == 106350036
        assert pressure.full_total_us in (None, 65063436)
