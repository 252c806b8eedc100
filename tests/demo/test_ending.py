"""Signals end the demo once; while it takes everything back they only say so."""

from __future__ import annotations

import signal

import pytest

from moetuned.demo import ending


@pytest.mark.parametrize("number", ending.ENDING)
def test_each_is_an_interruption_once(number: signal.Signals, capfd: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(number)
    with ending.ending_signals():
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
        signal.raise_signal(number)
    assert "one moment, everything is being taken back" in capfd.readouterr().err
    assert signal.getsignal(number) == before


def test_deaf_before_any_came(capfd: pytest.CaptureFixture[str]) -> None:
    with ending.ending_signals():
        ending.deaf()
        signal.raise_signal(signal.SIGTERM)
    assert "one moment" in capfd.readouterr().err
