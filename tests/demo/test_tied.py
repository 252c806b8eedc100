"""A command that is tied to a process ends with it, also when that is killed."""

from __future__ import annotations

import signal
import subprocess
import sys

from moetuned.demo import tied

PARENT = """
import subprocess, sys
from moetuned.demo.tied import tied
child = subprocess.Popen(tied([sys.executable, "-c", "print('up', flush=True); import time; time.sleep(60)"], 15))
child.wait()
"""


def test_it_runs_the_command_and_ends_as_that_does() -> None:
    command = tied.tied([sys.executable, "-c", "import sys; sys.exit(7)"], signal.SIGTERM)
    assert subprocess.run(command, check=False).returncode == 7


def test_it_ends_with_its_parent() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "up\n"
        parent.kill()
        # The child holds the pipe as well: it ends, rather than after a minute, because its parent did.
        assert parent.communicate(timeout=20)[0] == ""


def test_a_parent_that_is_gone_already() -> None:
    assert tied.main(["1", "15", "false"]) == 1
