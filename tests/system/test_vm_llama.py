"""A real llama.cpp as the package's unit: found, judged, and restarted with a shorter context."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from conftest import FULL, Start, Step
from machine import Image
from package import fetch
from serving import bring_backend, context, press, until_idle, view

pytestmark = [
    pytest.mark.vm,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not FULL, reason="an emulated processor takes minutes for it: FULL=1"),
]
CPU = "max,-cx16"
"""The wheel needs AVX2."""
WHEELS = "/opt/llama"
SERVER = f"""#!/bin/sh
exec env LD_LIBRARY_PATH={WHEELS} PYTHONPATH=/usr/lib/moetuned/python:{WHEELS}/site python3 -m moetuned.xllamacpp_server "$@"
"""
GOMP = "libgomp.so.1"


def _gomp() -> Path:
    """The wheel's OpenMP is the distribution's (libgomp1), which the guest's image has no use for: that of this machine."""
    said = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    found = re.search(rf"^\s*{re.escape(GOMP)} .*x86-64.* => (\S+)$", said, re.MULTILINE)
    if found is None:
        pytest.skip("apt install libgomp1")
    return Path(found[1]).resolve()


def test_a_real_llama_cpp(image: Image, start: Start, installed: Path, models: Path, step: Step) -> None:
    machine = start(installed, models, cpu=CPU)
    machine.put({WHEELS: fetch(image.release, ["xllamacpp>=2026.1"], []), f"{WHEELS}/{GOMP}": _gomp()})
    # A wheel is a zip archive.
    machine.run(
        f"cd {WHEELS} && for wheel in *.whl; do python3 -m zipfile -e $wheel site; done && chmod -R a+rX .", 300
    )
    with step("found by its command line, without a word in the config, and judged"):
        bring_backend(machine, SERVER)
        machine.write("/etc/moetuned/moetuned.yaml", "tuning: {profile: moe-offload}")
        machine.run("systemctl enable --now moetuned", 180)
        until_idle(machine)
        status = machine.run("moetunectl backend list --json")
        print("   " + machine.run("moetunectl status | head -1"))
        assert "moetuned-backend@glm" in status
        assert machine.run("moetunectl check").startswith("MOETUNED OK")
    press(machine, step, kind="xllamacpp")
    with step("green again with the shorter context"):
        assert view(machine)["context"]["now"] == context(machine)
        machine.until("moetunectl check")
