"""A real shell on a terminal of its own, into which a line is typed and TAB pressed; and programs for its PATH."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SCRIPTS = ROOT / "moetuned" / "data" / "completion"
_ESCAPES = re.compile(r"\x1b(\[[0-9;?]*[A-Za-z]|[=>]|\(B)|[\x07\x0e\x0f]")
_DEADLINE_SECONDS = 60.0
START = {
    "bash": ["bash", "--norc", "--noprofile", "-i"],
    "zsh": ["zsh", "-f", "-i"],
}
SETUP = {
    "bash": "bind 'set completion-query-items 0'; bind 'set page-completions off'; bind 'set enable-bracketed-paste off'; "
    "bind 'set show-all-if-ambiguous on'; source {script}",
    "zsh": "autoload -U compinit; compinit -u -D; LISTMAX=9999; unset zle_bracketed_paste; unsetopt prompt_sp; source {script}",
}
SCRIPT = {"bash": "bash/moetunectl", "zsh": "zsh/_moetunectl", "fish": "fish/moetunectl.fish"}


def make_programs(directory: Path) -> None:
    """moetunectl of this checkout; every start is noted in `started`, what it writes to standard error in `said`."""
    for name, module in (("moetunectl", "moetuned.cli.main"), ("moetuned", "moetuned.daemon.main")):
        file = directory / name
        file.write_text(
            f"#!/bin/sh\necho {name} >>{directory}/started\nexec {sys.executable} -c "
            f'\'import sys; sys.path.insert(0, "{ROOT}"); sys.argv[0] = "{name}"; from {module} import main; main()\' "$@" 2>>{directory}/said\n'
        )
        file.chmod(0o755)
    (directory / "said").touch()


class Shell:
    """An interactive bash or zsh with its completion script; close it with `end`."""

    def __init__(self, name: str, directory: Path, environment: dict[str, str], script: Path | None = None) -> None:
        self._buffer = ""
        self._completed = directory / "completed"
        self._pid, self._terminal = pty.fork()
        if self._pid == 0:
            os.chdir(directory)
            os.execvpe(START[name][0], START[name], {**environment, "TERM": "xterm"})
        subprocess.run(["stty", "cols", "200", "rows", "200"], stdin=self._terminal, check=True)
        self._run("PS1='> '; " + SETUP[name].format(script=script or SCRIPTS / SCRIPT[name]))

    def complete(self, line: str) -> tuple[str, str]:
        """The line as TAB makes it, without being run; and all that the terminal shows meanwhile."""
        self._write(f"{line}\t\x01printf %s '\x05' >{self._completed}\n")
        shown = self._run("")
        return self._completed.read_text(), shown

    def end(self) -> None:
        """Close the terminal, which ends the shell."""
        os.kill(self._pid, signal.SIGKILL)
        os.close(self._terminal)
        os.waitpid(self._pid, 0)

    def _run(self, line: str) -> str:
        """What the terminal shows until a line has been run."""
        self._write(f"{line}\necho en''d\n")
        return self._until("end\n")

    def _write(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def _until(self, mark: str) -> str:
        until = time.monotonic() + _DEADLINE_SECONDS
        while mark not in self._buffer:
            ready, _, _ = select.select([self._terminal], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                raise TimeoutError(f"no {mark!r} in {self._buffer!r}")
            text = os.read(self._terminal, 1 << 16).decode(errors="replace")
            self._buffer = _ESCAPES.sub("", self._buffer + text).replace("\r\n", "\n")
        found, _, self._buffer = self._buffer.partition(mark)
        return found + mark
