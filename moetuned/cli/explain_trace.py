"""The explanation of one recorded second: the same replay, stopped there."""

from __future__ import annotations

import msgspec

from moetuned.cli.replay import replay
from moetuned.decide.detector_settings import DetectorSettings
from moetuned.decide.explain import explain
from moetuned.decide.signal_sources import Sight
from moetuned.schema.explanation import Explanations
from moetuned.schema.sample import BackendSample, Residency
from moetuned.state.trace import TraceError, read_trace

RESIDENCY_FRESH_SECONDS = 30.0
"""A scan counts for the samples after it for so long, as it does for the signals."""


def explain_trace(
    path: str, at_seconds: float | None, settings: DetectorSettings | None = None
) -> tuple[Explanations, TraceError | None]:
    """The verdict at the last sample that is at most `at_seconds` after the first one; None: at the last one that can be read.

    `settings` None: the defaults. With it the fault that ends a damaged trace there: a recorder that was killed leaves one. Raises what `read_trace` raises;
    TraceError too for a second after the end, and for a trace that is damaged before it.
    """
    trace = read_trace(path)
    settings, name = settings or DetectorSettings(), trace.identity.name
    start, last = None, None
    scan: tuple[float, Residency] | None = None
    ended, fault = True, None
    steps = replay(trace, settings)
    while True:
        try:
            followed = next(steps, None)
        except TraceError as error:
            if at_seconds is not None or last is None:
                raise
            followed, fault = None, error
        if followed is None:
            break
        now = followed.signals.at_seconds
        start = now if start is None else start
        if at_seconds is not None and now - start > at_seconds:
            ended = False
            break
        last = followed
        own = _own(followed.following.window[-1].backends, name)
        scan = scan if own.residency is None else (now, own.residency)
    if last is None or start is None:
        raise TraceError(f"{path}: the trace has no sample")
    if at_seconds is not None and ended and at_seconds - (last.signals.at_seconds - start) > 1.0:
        raise TraceError(f"{path}: the trace ends {last.signals.at_seconds - start:.0f} s after its start")
    own = _own(last.following.window[-1].backends, name)
    residency = scan[1] if scan is not None and last.signals.at_seconds - scan[0] <= RESIDENCY_FRESH_SECONDS else None
    seen = msgspec.structs.replace(own, residency=residency)
    sight = Sight(seen, trace.facts, last.signals.dt_seconds)
    found = Explanations((explain(last.step.state, last.step.verdict, last.signals, sight, settings),))
    return found, fault


def _own(backends: tuple[BackendSample, ...], name: str) -> BackendSample:
    return next(one for one in backends if one.name == name)
