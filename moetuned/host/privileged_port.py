"""Ports on which only those with CAP_NET_BIND_SERVICE may listen (ip(7)), which moetuned's own unit does not have."""

from __future__ import annotations

import subprocess

from moetuned.host.bounded_program import SYSTEM_PATH, run_bounded
from moetuned.host.program_search import find_program
from moetuned.host.systemd_booted import is_booted
from moetuned.parse.kernel_numbers import single_number

SETTING = "/proc/sys/net/ipv4/ip_unprivileged_port_start"
"""Holds for IPv6, too."""
CURE = "allow it in a drop-in of moetuned.service (CapabilityBoundingSet=CAP_NET_BIND_SERVICE)"
_USUAL = 1024
_SHOW = ("--no-ask-password", "show", "--value", "--property=CapabilityBoundingSet", "moetuned.service")
_SHOW_SECONDS = 5.0


def first_open_port(path: str = SETTING) -> int:
    """The lowest port for everybody; as usual where it cannot be read."""
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            found = single_number(file.read(100))
    except OSError:
        return _USUAL
    return _USUAL if found is None else found


def unit_cannot_take(port: int) -> str | None:
    """Why moetuned.service may not listen on this port, one sentence; None: it may, or there is no such unit. Blocks for at most 10 s."""
    first = first_open_port()
    if not 0 < port < first or not is_booted():
        return None
    systemctl = find_program("systemctl")
    if systemctl is None:
        return None
    try:
        ended = run_bounded((systemctl, *_SHOW), {"PATH": SYSTEM_PATH, "LC_ALL": "C"}, _SHOW_SECONDS, errors_apart=True)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    allowed = ended.output.decode("ascii", "replace").split()
    if ended.exit_code != 0 or not allowed or "cap_net_bind_service" in allowed:
        return None
    return f"moetuned.service may not listen on a port below {first}; choose another, or {CURE}"
