"""Addresses of servers as a client on this machine uses them: on loopback, or none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.host.backend_http import loopback_address
from moetuned.parse.client_url import client_url, whole


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("", "http://127.0.0.1:80"),
        ("0.0.0.0", "http://127.0.0.1:80"),
        ("127.0.0.2", "http://127.0.0.2:80"),
        ("localhost", "http://localhost:80"),
        ("::", "http://[::1]:80"),
        ("[::1]", "http://[::1]:80"),
    ],
)
def test_on_loopback(host: str, expected: str) -> None:
    assert client_url(host, "80") == (expected, None)


@pytest.mark.parametrize(
    ("host", "port", "why"),
    [
        ("192.168.1.5", "80", "loopback only"),
        ("127.0.0.1.example.org", "80", "loopback only"),
        ("127.0.0.300", "80", "loopback only"),
        ("/run/x.sock", "80", "Unix socket"),
        ("", "0", "is no port"),
        ("", "65536", "is no port"),
        ("", "http", "is no port"),
    ],
)
def test_none(host: str, port: str, why: str) -> None:
    url, unknown = client_url(host, port)
    assert url is None
    assert why in (unknown or "")


def test_the_ports_own_name_is_said() -> None:
    assert client_url("", "x", port_word="PORT") == (None, "PORT 'x' is no port")


@given(st.text(max_size=30), st.text("0123456789", max_size=6))
def test_whatever_is_listened_on_only_loopback_is_asked(host: str, port: str) -> None:
    url, unknown = client_url(host, port)
    assert (url is None) != (unknown is None)
    if url is not None:
        loopback_address(url)


@pytest.mark.parametrize(
    ("text", "expected"), [("7", 7), ("-1", None), ("", None), (None, None), ("٣", None), ("1" * 11, None)]
)
def test_numbers_of_settings(text: str | None, expected: int | None) -> None:
    assert whole(text) == expected
    assert whole("-1", minimum=-1) == -1
