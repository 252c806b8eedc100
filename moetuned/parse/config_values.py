"""Values of the config that are more than a word or a number: headroom limits, rates, addresses, what is wished for beside a profile."""

from __future__ import annotations

import re

import msgspec

from moetuned.schema.config import Profile, Tuning
from moetuned.schema.swap import Swap
from moetuned.schema.units import format_duration, parse_bytes, parse_duration

_PERCENT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*%\s*")
_AT_MOST = re.compile(r"(\d{1,3})/(h|d)")
_QUIET_HOURS = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)")
_LISTEN = re.compile(r"(localhost|127(?:\.\d{1,3}){3}|\[::1\]):(\d{1,5})")
_PERIOD_SECONDS = {"h": 3600.0, "d": 86400.0}
_NO_OVERLAY = ("profile", "sysctl", "swap")
_SOCKET_PATH_BYTES = 107  # sun_path of sockaddr_un is 108 bytes with the final NUL, unix(7)


class HeadroomLimit(msgspec.Struct, frozen=True):
    """A headroom, either as bytes or as a ratio of the memory limit (0..1); exactly one of the two is set."""

    size_bytes: int | None = None
    ratio: float | None = None

    def of(self, limit_bytes: int) -> int:
        """The headroom in bytes for a memory limit of `limit_bytes`."""
        if self.size_bytes is not None:
            return self.size_bytes
        return int((self.ratio or 0.0) * limit_bytes)


def headroom_limit(text: str | int) -> HeadroomLimit:
    """`limits.near` and `limits.critical`: "8%" or a size. Raises ValueError with what is allowed."""
    match = _PERCENT.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        try:
            size = parse_bytes(text)
        except ValueError as error:
            raise ValueError(f"{error}, or a percentage, e.g. 8%") from None
        if size == 0:
            raise ValueError("must be more than 0")
        return HeadroomLimit(size_bytes=size)
    percent = float(match[1])
    if not 0 < percent < 100:
        raise ValueError(f"{text!r} must be more than 0% and less than 100%")
    return HeadroomLimit(ratio=percent / 100)


def at_most(text: str) -> tuple[int, float]:
    """`relief.at_most`: (count, seconds) of e.g. "3/h" or "10/d". Raises ValueError."""
    match = _AT_MOST.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no rate; write e.g. 3/h or 10/d")
    return int(match[1]), _PERIOD_SECONDS[match[2]]


def quiet_hours(text: str) -> tuple[int, int]:
    """`alerts[].quiet_hours`: from and to, in minutes of the day, of e.g. "22:00-07:00". Raises ValueError."""
    match = _QUIET_HOURS.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} are no two times of day; write e.g. 22:00-07:00")
    begin, end = int(match[1]) * 60 + int(match[2]), int(match[3]) * 60 + int(match[4])
    if begin == end:
        raise ValueError(f"{text!r} begin and end at the same time; take the alert out where nothing is to be told")
    return begin, end


def listen_address(text: str) -> tuple[str, int]:
    """`api.listen`: (host, port) of a loopback address, e.g. 127.0.0.1:9843, localhost:9843 or [::1]:9843.

    The host of an IPv6 address comes without brackets. Port 0 lets the kernel choose. Raises ValueError.
    """
    match = _LISTEN.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no loopback address with a port; write e.g. 127.0.0.1:9843, [::1]:9843 or false")
    host, port = match[1].strip("[]"), int(match[2])
    if host.startswith("127.") and any(int(part) > 255 for part in host.split(".")):
        raise ValueError(f"{text!r} is no IPv4 address")
    if port > 65535:
        raise ValueError(f"{text!r} has no valid port; it is at most 65535")
    return host, port


def url_port(url: str) -> int:
    """The port of a backend's URL, e.g. 8080 of http://127.0.0.1:8080; 80 when it names none."""
    match = re.search(r":(\d+)/?$", url)
    return int(match[1]) if match else 80


def socket_path_problem(path: str) -> str | None:
    """Why `path` cannot be a Unix socket, as a sentence; None when it can."""
    if not path.startswith("/"):
        return "must be an absolute path"
    if len(path.encode()) > _SOCKET_PATH_BYTES:
        return f"must be at most {_SOCKET_PATH_BYTES} bytes long, the kernel allows no longer socket path"
    return None


def overlay_of(tuning: Tuning) -> tuple[tuple[str, int | str], ...]:
    """Each value that the configuration chooses beside the profile, by its key: `tuning.thp`, `tuning.sysctl.vm.dirty_ratio`."""
    single = [(field, getattr(tuning, field)) for field in tuning.__struct_fields__ if field not in _NO_OVERLAY]
    return (
        *((f"tuning.sysctl.{key}", value) for key, value in tuning.sysctl.items()),
        *((f"tuning.{field}", value) for field, value in single if value is not None),
    )


def wished_swap(tuning: Tuning) -> Swap | None:
    """The swap that is wished for: the config's own word, else zram in moe-offload-zram, else nothing.

    The profile observe changes nothing, whatever the config wishes.
    """
    if tuning.profile is Profile.OBSERVE:
        return None
    if tuning.swap is None and tuning.profile is Profile.MOE_OFFLOAD_ZRAM:
        return Swap(zram="auto")
    return tuning.swap


def duration_problem(value: str | float, allowed_seconds: tuple[float, float]) -> tuple[str | float | None, str] | None:
    """What is wrong with a duration, and the value where that does not say it; None: nothing is."""
    try:
        seconds = parse_duration(value)
    except ValueError as error:
        return None, str(error)
    if allowed_seconds[0] <= seconds <= allowed_seconds[1]:
        return None
    low, high = (f"{bound * 1000:.0f} ms" if bound < 1 else format_duration(bound) for bound in allowed_seconds)
    return value, f"must be between {low} and {high}"
