"""The address at which a client on this machine reaches a server, from the host and port that it listens on."""

from __future__ import annotations

_MAX_DIGITS = 10
_EVERYWHERE = ("0.0.0.0", "127.0.0.1", "")  # noqa: S104  recognised, not bound


def whole(text: str | None, minimum: int = 1) -> int | None:
    """The number that a setting's text is, at least `minimum`; None for anything else."""
    if text is None or len(text) > _MAX_DIGITS or not text.isascii() or not text.removeprefix("-").isdigit():
        return None
    value = int(text)
    return value if value >= minimum else None


def client_url(host: str, port: str, *, port_word: str = "--port") -> tuple[str | None, str | None]:
    """The address, or one sentence why there is none. A host without a name ("") is every address of the machine."""
    number = whole(port)
    if number is None or number > 65535:
        return None, f"{port_word} {port!r} is no port"
    host = host.strip("[]")
    if host.endswith(".sock"):
        return None, f"it listens on the Unix socket {host}"
    if host in _EVERYWHERE:
        host = "127.0.0.1"
    elif host in ("::", "::1"):
        host = "[::1]"
    elif host != "localhost" and not _is_loopback(host):
        return None, f"it listens on {host} only, and moetuned asks backends on loopback only"
    return f"http://{host}:{number}", None


def _is_loopback(host: str) -> bool:
    parts = host.split(".")
    return (
        len(parts) == 4
        and parts[0] == "127"
        and all((number := whole(part, 0)) is not None and number < 256 for part in parts)
    )
