from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.parse.alert_url import shown_url


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://hooks.example.org/services/T0/B0/secret", "https://hooks.example.org/…"),
        ("http://127.0.0.1:9093", "http://127.0.0.1:9093"),
        ("http://127.0.0.1:9093/", "http://127.0.0.1:9093"),
        ("http://[::1]:9093?token=a", "http://[::1]:9093/…"),
        ("https://user:password@example.org/", "https://example.org"),
        ("not a url", "?"),
        ("", "?"),
    ],
)
def test_what_may_be_a_secret_is_left_out(url: str, shown: str) -> None:
    assert shown_url(url) == shown


@given(st.text(max_size=60))
def test_no_path_is_ever_shown(path: str) -> None:
    assert shown_url(f"https://example.org/{path}") in ("https://example.org", "https://example.org/…")
