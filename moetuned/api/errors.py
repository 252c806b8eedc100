"""Errors of the interface, each one sentence for a person. Light on purpose: every moetunectl start imports it."""

from __future__ import annotations


class ListenError(Exception):
    """The daemon cannot listen where the configuration says; the text names the key and what to do.

    `lasting`: as long as nobody changes the configuration or the machine; to try it again is of no use.
    """

    def __init__(self, sentence: str, *, lasting: bool = False) -> None:
        super().__init__(sentence)
        self.lasting = lasting


class DaemonError(Exception):
    """The daemon answered, but not with what was asked for. `exit_code` is what moetunectl ends with."""

    exit_code = 1


class DaemonRefused(DaemonError):  # noqa: N818
    """The daemon (or the socket's permissions) refused."""

    exit_code = 4


class DaemonUnreachable(DaemonError):  # noqa: N818
    """Nobody answers at the socket. `absent`: the path of a socket that is not there or has nobody behind it, None: it may run."""

    exit_code = 3

    def __init__(self, sentence: str, absent: str | None = None) -> None:
        super().__init__(sentence)
        self.absent = absent
