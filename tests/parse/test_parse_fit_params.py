from __future__ import annotations

from moetuned.parse.fit_params import FitParams, parse_fit_params


def test_one_device_after_log_lines():
    text = "0.00.002.338 I llama_fit_params: printing estimated memory in MiB to stdout ...\nHost 2 16 32 \n"
    assert parse_fit_params(text) == FitParams(2, 16, 32)


def test_devices_are_added_up():
    assert parse_fit_params("CUDA0 1000 200 30\nHost 5 6 7\n") == FitParams(1005, 206, 37)


def test_no_figures():
    assert parse_fit_params("error: failed to load model 'x'\n") is None
    assert parse_fit_params("") is None
