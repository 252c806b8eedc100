"""The counters of TCP as kernels write them, and whatever else there is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.parse.net_snmp import passive_opens

NAMES = "Tcp: RtoAlgorithm RtoMin RtoMax MaxConn ActiveOpens PassiveOpens AttemptFails"
TEXT = f"Ip: Forwarding\nIp: 2\n{NAMES}\nTcp: 1 200 120000 -1 986417 634045 349741\nUdp: InDatagrams\nUdp: 7\n"


def test_the_number_below_its_name() -> None:
    assert passive_opens(TEXT) == 634045


@pytest.mark.parametrize(
    "text",
    ["", "Tcp: PassiveOpens", f"{NAMES}\nTcp: 1 200 120000 -1 986417\n", f"{NAMES}\nTcp: 1 2 3 4 5 -6\n", TEXT + NAMES,
     TEXT.replace("PassiveOpens", "Other"), TEXT.replace("634045", "9" * 21), TEXT.replace("634045", "٣")],
)  # fmt: skip
def test_what_is_cut_or_strange_is_unknown(text: str) -> None:
    assert passive_opens(text) is None


@given(st.text(alphabet="Tcp: PassiveOpens\n0123456789-"))
def test_whatever_comes_gives_a_number_or_nothing(text: str) -> None:
    found = passive_opens(text)
    assert found is None or found >= 0
