"""Warming by the daemon that watches a backend with the model: it is asked, and followed until it is done."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from moetuned.cli.model_residency import Look, PartResidency
from moetuned.cli.warm_report import Outcome
from moetuned.schema.snapshot import BackendView, Snapshot
from moetuned.schema.verdict import MemoryState

ASK_SECONDS = 0.5
_LOOK_SECONDS = 5.0


class Daemon(Protocol):
    """What is needed of `api.client.Client`; both raise DaemonError."""

    def status(self) -> Snapshot:
        """The last Snapshot."""
        ...

    def post(self, path: str, payload: object = None) -> object:
        """Ask for an action."""
        ...


Draw = Callable[[int, int, str], None]
"""Called with bytes done, bytes to do (0: not known yet) and what it waits for."""


def backend_with(snapshot: Snapshot, paths: Sequence[str]) -> BackendView | None:
    """The running backend whose model is one of these files; None when the daemon watches none."""
    return next((one for one in snapshot.backends if one.pid is not None and _is_one_of(one.model_path, paths)), None)


def _is_one_of(path: str | None, paths: Sequence[str]) -> bool:
    if path is None:
        return False
    for one in paths:
        with contextlib.suppress(OSError):  # A path inside somebody else's container cannot always be looked at.
            if os.path.samefile(path, one):
                return True
    return False


def look_of(view: BackendView) -> Look:
    """Residency as the daemon sees it; for who may not ask the kernel."""
    seen, size, layout = view.residency, view.model_bytes, view.layout
    if seen.resident_bytes is None or size is None:
        return Look(unknown=seen.unknown or "the daemon does not know it")
    experts = None if layout is None else layout.expert_bytes
    cached = None if experts is None or seen.expert_bytes is None else min(seen.expert_bytes, experts)
    part = PartResidency(view.model_path or "", size, min(seen.resident_bytes, size), experts, cached)
    return Look((part,))


def warm_by_daemon(daemon: Daemon, name: str, draw: Draw, pause: Callable[[float], None] = time.sleep) -> Outcome:
    """Ask for warming the model of the backend `name`, and wait until it is done.

    Ctrl-C only ends the waiting. Raises DaemonError.
    """
    began = time.monotonic()
    done = goal = 0
    daemon.post("/v1/warm", {"backend": name})
    # What was published before the request says nothing of it.
    asked_at = daemon.status().daemon.ticks
    try:
        while True:
            snapshot = daemon.status()
            view = next((one for one in snapshot.backends if one.name == name), None)
            if view is None or view.pid is None:
                return Outcome("failed", f"the backend {name} has ended", done, goal)
            if snapshot.daemon.ticks > asked_at:
                done, goal = view.warm.done_bytes, view.warm.goal_bytes
                found = _outcome(view)
                if found is not None:
                    state, detail = found
                    return Outcome(state, detail, done, goal, time.monotonic() - began)
                draw(done, goal, "" if view.warm.state == "running" else view.warm.detail)
            pause(ASK_SECONDS)
    except KeyboardInterrupt:
        detail = "the daemon goes on; `moetunectl status` shows how far it is"
        return Outcome("interrupted", detail, done, goal, time.monotonic() - began)


def _outcome(view: BackendView) -> tuple[str, str] | None:
    """State and detail of the outcome; None while it goes on."""
    warm = view.warm
    if warm.state == "done":
        if warm.goal_bytes:
            return "done", warm.detail
        resident, size = view.residency.resident_bytes, view.model_bytes
        whole = resident is not None and size is not None and resident >= size
        return ("nothing" if whole else "failed"), warm.detail
    if warm.state in ("failed", "off"):
        return "failed", warm.detail or "the daemon warms no more"
    if warm.state == "paused" and view.verdict.memory in (MemoryState.NEAR_LIMIT, MemoryState.CRITICAL):
        reason = next((one.text for one in view.verdict.reasons if one.axis == "memory"), "memory is near its limit")
        return "refused", f"the daemon waits until memory is no longer near its limit: {reason}"
    if waits_in_vain(view):
        return "failed", warm.detail
    return None


def waits_in_vain(view: BackendView) -> bool:
    """Whether warming waits for a residency that cannot be known, for instance because the model's file was replaced."""
    unknown = view.residency.unknown
    return view.warm.state == "waiting" and unknown is not None and unknown in view.warm.detail


def look_after(daemon: Daemon, name: str, pause: Callable[[float], None] = time.sleep) -> Look:
    """Residency by the daemon from after this call, waiting for it a few seconds. Raises DaemonError."""
    began = time.monotonic()
    while True:
        view = next((one for one in daemon.status().backends if one.name == name), None)
        if view is None:
            return Look(unknown=f"the backend {name} has ended")
        age, waited = view.residency.age_seconds, time.monotonic() - began
        if age is not None and age <= waited:
            return look_of(view)
        if waited > _LOOK_SECONDS:
            return Look(unknown="the daemon has not looked since")
        pause(ASK_SECONDS)
