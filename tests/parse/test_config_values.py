import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.parse.config_values import (
    HeadroomLimit,
    at_most,
    headroom_limit,
    listen_address,
    quiet_hours,
    socket_path_problem,
    url_port,
    wished_swap,
)
from moetuned.schema.config import Profile, Tuning
from moetuned.schema.swap import Swap


@pytest.mark.parametrize(
    ("text", "size", "ratio"),
    [
        ("8%", None, 0.08),
        (" 2.5 % ", None, 0.025),
        ("2GiB", 2 << 30, None),
        (512, 512, None),
        ("512MiB", 512 << 20, None),
    ],
)
def test_headroom_is_a_size_or_a_percentage(text, size, ratio):
    assert headroom_limit(text) == HeadroomLimit(size, ratio)


@pytest.mark.parametrize("text", ["0%", "100%", "-1%", "8 percent", "", "%", 0, -1, "1e3%"])
def test_what_is_no_headroom_is_refused(text):
    with pytest.raises(ValueError, match=r"must be|is no size|out of range"):
        headroom_limit(text)


@given(st.integers(1, 99), st.integers(0, 1 << 50))
def test_a_percentage_is_that_part_of_the_limit(percent, limit):
    assert abs(headroom_limit(f"{percent}%").of(limit) - limit * percent / 100) <= 1 + limit * 1e-12
    assert headroom_limit(4096).of(limit) == 4096


def test_at_most():
    assert at_most("3/h") == (3, 3600.0)
    assert at_most("10/d") == (10, 86400.0)
    for text in ("3", "3/m", "3/hour", "1000/h", "-1/h", "3 / h"):
        with pytest.raises(ValueError, match="is no rate"):
            at_most(text)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:9843", "127.0.0.1", 9843),
        ("localhost:1", "localhost", 1),
        ("[::1]:65535", "::1", 65535),
        ("127.9.9.9:0", "127.9.9.9", 0),
    ],
)
def test_listen_addresses(text, host, port):
    assert listen_address(text) == (host, port)


@pytest.mark.parametrize(
    "text",
    ["0.0.0.0:9843", "192.168.1.1:80", "127.0.0.1", "::1:80", "localhost:65536", "127.0.0.256:1", "localhost.evil:1",
     "127.0.0.1:80\n", "[::]:80", ""],
)  # fmt: skip
def test_addresses_that_others_can_reach_or_that_are_none_are_refused(text):
    with pytest.raises(ValueError, match=r"loopback|no valid port|IPv4"):
        listen_address(text)


def test_url_port():
    assert [url_port(u) for u in ("http://localhost:8080/", "http://[::1]:81", "http://[::1]", "http://127.0.0.1")] == [
        8080, 81, 80, 80,
    ]  # fmt: skip


def test_socket_paths():
    assert socket_path_problem("/run/moetuned/api.sock") is None
    assert "absolute" in (socket_path_problem("run/x") or "")
    assert socket_path_problem("/" + "a" * 106) is None
    assert "107" in (socket_path_problem("/" + "a" * 107) or "")


@pytest.mark.parametrize(
    ("profile", "wish", "wanted"),
    [
        (Profile.MOE_OFFLOAD, None, None),
        (Profile.MOE_OFFLOAD, Swap(file="/swapfile"), Swap(file="/swapfile")),
        (Profile.MOE_OFFLOAD_ZRAM, None, Swap(zram="auto")),
        (Profile.MOE_OFFLOAD_ZRAM, Swap(file="/swapfile"), Swap(file="/swapfile")),
        (Profile.OBSERVE, Swap(file="/swapfile"), None),
        (Profile.OBSERVE, None, None),
    ],
)
def test_what_a_profile_wishes_for(profile: Profile, wish: Swap | None, wanted: Swap | None) -> None:
    assert wished_swap(Tuning(profile=profile, swap=wish)) == wanted


def test_quiet_hours_are_minutes_of_the_day():
    assert quiet_hours("22:00-07:30") == (1320, 450)
    for text in ("22:00", "24:00-01:00", "1:00-2:00", "08:00-08:00"):
        with pytest.raises(ValueError, match=r"times? of day|same time"):
            quiet_hours(text)
