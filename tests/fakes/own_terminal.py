"""A program on a real pseudo terminal that is its controlling one, and the picture of what it drew there."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from fakes.terminal_picture import TerminalPicture

LIMIT_SECONDS = 30.0


def _as_a_shell_would() -> None:
    """The terminal is the program's own, and Ctrl-C is not ignored, even where whoever started the tests ignores it (nohup, `&`)."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class OwnTerminal:
    """`until` reads what the program writes until something is true; `meanwhile` is called while it waits (a server's turn)."""

    def __init__(
        self,
        command: Sequence[str],
        size: tuple[int, int],
        environ: Mapping[str, str],
        meanwhile: Callable[[], object] = lambda: None,
    ) -> None:
        self.picture = TerminalPicture(*size)
        self.written = b""
        self._meanwhile = meanwhile
        self.master, inside = pty.openpty()
        self._set_size(*size)
        self.modes = termios.tcgetattr(self.master)
        self.process = subprocess.Popen(
            command,
            stdin=inside,
            stdout=inside,
            stderr=inside,
            env=dict(environ),
            start_new_session=True,
            preexec_fn=_as_a_shell_would,  # noqa: PLW1509  nothing else runs in the child
        )
        os.close(inside)

    def _set_size(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def resize(self, columns: int, rows: int) -> None:
        self.picture.resize(columns, rows)
        self._set_size(columns, rows)

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def interrupt(self) -> None:
        """Ctrl-C at a prompt, as a person types it: once the program waits there. Between writing a prompt and waiting, Python takes it in silence."""
        stat = Path(f"/proc/{self.process.pid}/stat")
        self.until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "S", "waits")
        self.type("\x03")

    def read(self, wait_seconds: float = 0.0) -> bool:
        """Take what is there; False at the end."""
        ready, _, _ = select.select([self.master], [], [], wait_seconds)
        if not ready:
            return True
        try:
            data = os.read(self.master, 1 << 16)
        except OSError:  # nobody has it open any more
            return False
        self.written += data
        self.picture.feed(data)
        return bool(data)

    def until(self, condition: Callable[[], bool], what: str) -> None:
        limit = time.monotonic() + LIMIT_SECONDS
        while not condition():
            assert time.monotonic() < limit, f"it never came to this: {what}\n{self.picture.text}"
            self._meanwhile()
            self.read(0.02)

    def shows(self, text: str) -> None:
        self.until(lambda: text in self.picture.text, f"shows {text!r}")

    def ends(self) -> int:
        """Until the program has ended; its code."""
        self.until(lambda: self.process.poll() is not None, "ends")
        while self.read(0.05) and select.select([self.master], [], [], 0)[0]:
            pass
        return self.process.returncode

    @property
    def is_as_before(self) -> bool:
        """Whether modes are those from before, the cursor is seen, lines wrap, and the first screen is shown."""
        return termios.tcgetattr(self.master) == self.modes and self.picture.modes == {7, 25}

    def hang_up(self) -> None:
        os.close(self.master)
        self.master = -1


@contextlib.contextmanager
def own_terminal(
    command: Sequence[str],
    size: tuple[int, int] = (80, 24),
    environ: Mapping[str, str] | None = None,
    meanwhile: Callable[[], object] = lambda: None,
) -> Iterator[OwnTerminal]:
    """Started; ended whatever happens."""
    env = {**os.environ, "TERM": "xterm", "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", "PYTHONUTF8": "0"}
    for name in ("NO_COLOR", "COLUMNS", "LINES", "PYTHONIOENCODING"):
        env.pop(name, None)
    terminal = OwnTerminal(command, size, {**env, **(environ or {})}, meanwhile)
    try:
        yield terminal
    finally:
        if terminal.process.poll() is None:
            terminal.process.send_signal(signal.SIGKILL)
            terminal.process.wait()
        if terminal.master >= 0:
            os.close(terminal.master)
