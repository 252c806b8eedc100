"""One backend's samples one after the other through signals and detector, for who is not the daemon: `replay` and `record`.

The daemon does the same for all its backends at once, and knows more than samples say: see docs/record.md.
"""

from __future__ import annotations

import msgspec

from moetuned.decide.detector import DetectorSettings, DetectorState, Step, initial, step
from moetuned.decide.facts import BackendFacts
from moetuned.decide.signals import derive
from moetuned.decide.window import WINDOW_SECONDS
from moetuned.schema.sample import Sample
from moetuned.schema.signals import Signals


class Following(msgspec.Struct, frozen=True):
    """What is remembered between samples: the last minute of them, oldest first, and the detector's state."""

    detector: DetectorState
    window: tuple[Sample, ...] = ()


class Followed(msgspec.Struct, frozen=True):
    """What a sample gave. `following` is what to go on with."""

    following: Following
    signals: Signals
    step: Step


def begin(backend: str) -> Following:
    """Before the first sample of the backend called `backend`."""
    return Following(initial(backend))


def follow(following: Following, sample: Sample, facts: BackendFacts, settings: DetectorSettings) -> Followed:
    """Signals and verdict at `sample`. Raises LookupError when it does not hold the backend."""
    name = following.detector.backend
    own = next((one for one in sample.backends if one.name == name), None)
    if own is None:
        raise LookupError(f"the sample does not hold {name}")
    start = sample.at_seconds - WINDOW_SECONDS
    window = (*(kept for kept in following.window if start <= kept.at_seconds < sample.at_seconds), sample)
    signals = derive(window, name, facts)
    stepped = step(following.detector, signals, own, facts, settings)
    return Followed(Following(stepped.state, window), signals, stepped)
