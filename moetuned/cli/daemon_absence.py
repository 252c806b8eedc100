"""Why no daemon answers and how to start it, where systemd or the lack of it tells more than the missing socket."""

from __future__ import annotations

from moetuned.api.errors import DaemonUnreachable
from moetuned.api.socket_path import DEFAULT_SOCKET

UNIT = "moetuned.service"
_SECONDS = 2.0
_LIMIT_BYTES = 4096
_PROPERTIES = "LoadState,ActiveState,SubState,Result,UnitFileState"


def explained(error: DaemonUnreachable) -> str:
    """The error's sentence with what to do here. Asks systemd only where it would be its daemon, for two seconds at most."""
    if error.absent is None:
        return str(error)
    if error.absent != DEFAULT_SOCKET:
        return f"moetuned is not running (nobody answers at {error.absent}). Start it: moetuned run"
    from moetuned.host.systemd_booted import is_booted

    if not is_booted():
        return "moetuned is not running, and systemd, which could start it, does not run here. Start it by hand: sudo moetuned run"
    return said_of(_unit())


def said_of(unit: dict[str, str]) -> str:
    """What is wrong with its service; `unit`: its properties (org.freedesktop.systemd1(5)), empty: systemd told nothing."""
    load, active, enabled = (unit.get(name, "") for name in ("LoadState", "ActiveState", "UnitFileState"))
    now = "sudo systemctl enable --now moetuned"
    if load == "masked":
        return f"moetuned is not running: its service is masked, so nothing may start it. Allow it and start it: sudo systemctl unmask moetuned && {now}"
    if load == "not-found":
        return "moetuned is not running, and is not installed as a service. Start it by hand: sudo moetuned run"
    if active == "failed":
        why = {"oom-kill": "the kernel ended it because memory was full", "timeout": "it did not start in time"}
        result = why.get(unit.get("Result", ""), "it ended with an error")
        return f"moetuned is not running: its service failed ({result}). See why: journalctl -u moetuned -e; start it again: sudo systemctl restart moetuned"
    if active in ("activating", "reloading"):
        return "moetuned is being started right now, and does not answer yet. Try again in a moment; if that lasts: journalctl -u moetuned -e"
    if active == "active":
        return "moetuned is running, but its socket is not there. See its log: journalctl -u moetuned -e; start it anew: sudo systemctl restart moetuned"
    if enabled == "disabled":
        return f"moetuned is not running: its service is not enabled, so it does not start by itself. Start it, now and at every boot: {now}"
    return "moetuned is not running. Start it: sudo systemctl start moetuned"


def _unit() -> dict[str, str]:
    from moetuned.host.system_program import ProgramError, ask_program

    try:
        said = ask_program("systemctl", ("show", f"--property={_PROPERTIES}", UNIT), "systemd", _SECONDS, _LIMIT_BYTES)
    except (ProgramError, OSError):
        return {}
    pairs = (line.partition("=") for line in said.split("\n"))
    return {name: value for name, equals, value in pairs if equals}
