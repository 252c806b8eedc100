"""Relief of a real llama.cpp server: most scenarios once, or all RUNS times. `make relief-matrix` prints the table."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import relief_real
from relief_checks import row, table, violations
from relief_place import NoPlace, place

from moetuned.demo.backend_choice import ChoiceError, choose

pytestmark = [pytest.mark.backend, pytest.mark.kernel, pytest.mark.timeout(900)]
RUNS = int(os.environ.get("RUNS", "1"))
SHOWN_ONLY = ("hog_fast_past_limit",)
"""What no restart can be in time for: of use in the table, not as a test."""
WITH_RUNS = ("two_backends", "hog_fast", "prompt_cache", "hog_outside")
"""A quarter to half a minute each. With two backends a request that ends as the server does may be counted among those cut off."""
NAMES = [
    name for name in relief_real.SCENARIOS if name not in SHOWN_ONLY and ("RUNS" in os.environ or name not in WITH_RUNS)
]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> relief_real.Lab:
    try:
        with place():
            pass
        if not choose("auto", 1, 1).real:
            pytest.skip("neither a llama-server nor the wheel xllamacpp is here")
    except (NoPlace, ChoiceError) as error:
        pytest.skip(str(error))
    directory = tmp_path_factory.mktemp("relief")
    return relief_real.Lab(directory, relief_real.make(directory / "model.gguf"))


@pytest.mark.parametrize("number", range(RUNS))
@pytest.mark.parametrize("name", NAMES)
def test_scenario(lab: relief_real.Lab, name: str, number: int) -> None:
    run = relief_real.SCENARIOS[name](lab)
    assert violations(run) == [], f"{table([row(run)])}\n{_logs(lab.directory)}"


def _logs(directory: Path) -> str:
    logs = sorted(directory.glob("*/daemon.log"), key=lambda path: path.stat().st_mtime)
    return logs[-1].read_text(errors="replace") if logs else ""
