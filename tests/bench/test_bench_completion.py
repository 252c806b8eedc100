"""CPU of one TAB behind moetunectl, beside an interpreter that imports click and nothing else."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from measuring import Figure, middle

pytestmark = [pytest.mark.bench, pytest.mark.timeout(600)]
LINES = ("moetunectl ", "moetunectl status --", "moetunectl tune explain vm.", "moetunectl backend restart ")


def cpu_seconds_of(program: str, directory: Path, line: str) -> float:
    """Of a process and its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "_MOETUNECTL_LINE": line, "MOETUNED_RUNTIME_DIR": str(directory)}
    subprocess.run([sys.executable, "-c", program], env=environment, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_a_tab(tmp_path: Path, figure: Figure) -> None:
    """Where no daemon runs."""
    tab, bare = "from moetuned.cli.main import main; main()", "import click"
    runs = [(cpu_seconds_of(tab, tmp_path, line), cpu_seconds_of(bare, tmp_path, line)) for line in LINES * 5]
    ours, theirs = middle(run[0] for run in runs), middle(run[1] for run in runs)
    figure("a TAB behind moetunectl, CPU", ours * 1000, "ms")
    figure("a TAB behind moetunectl takes", ours / theirs, "times the CPU of python with click imported")
    assert ours < 3 * theirs
