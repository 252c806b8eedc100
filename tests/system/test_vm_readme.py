"""The README's own commands, typed by somebody who has a clone and nothing else, end in a service with a green status.

It is to take less than three minutes. How long it took is said and not asserted: a busy machine is no fault of the README's.
"""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from conftest import Start, Step
from package import CLONE, ROOT, bring_clone

pytestmark = [pytest.mark.vm, pytest.mark.timeout(900)]


def commands_of_install() -> list[str]:
    """Lines of the first code block of the section Install."""
    section = re.search(r"^## Install\n(.*?)(?=^## )", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    assert section is not None, "the README has no section Install"
    blocks = re.findall(r"^```sh\n(.*?)^```", section[1], re.DOTALL | re.MULTILINE)
    assert blocks, "its section Install has no code block"
    return [line for line in blocks[0].splitlines() if line.strip()]


def test_from_a_clone_to_a_green_status(start: Start, bare: Path, step: Step) -> None:
    machine = start(bare)
    bring_clone(machine)
    commands = commands_of_install()
    assert any("systemctl enable" in line for line in commands), commands
    began = time.monotonic()
    for line in commands:
        with step(line.partition("#")[0].strip()):
            # Who is told to be in the group would log in again.
            groups = "newcomer" if "moetunectl" not in line or "sudo" in line else "root"
            machine.write("/run/typed", f"cd {CLONE}\n{line}\n")
            machine.run(f"runuser -u {groups} -- bash -e /run/typed", 300)
    took = time.monotonic() - began
    with step(f"active, enabled and tuned after {took:.0f} s (to be less than 180)"):
        machine.run("systemctl is-active moetuned && systemctl is-enabled moetuned && moetunectl tune verify")
        assert "moetuned runs" in machine.run("moetunectl status")
