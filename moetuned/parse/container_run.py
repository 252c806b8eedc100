"""Checks the words after `docker run --detach --name CONTAINER` of a config: options, image, and the arguments of what runs in it.

Where the image stands follows from which options take a value: those of docker 20.10 to 28 and podman 3 to 5 that take none are listed,
all others take one. What comes after the image is the server's and is not looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

_BARE_LONG = frozenset(
    [
        "--detach",
        "--disable-content-trust",
        "--env-host",
        "--help",
        "--http-proxy",
        "--init",
        "--interactive",
        "--no-healthcheck",
        "--no-hostname",
        "--no-hosts",
        "--oom-kill-disable",
        "--passwd",
        "--privileged",
        "--publish-all",
        "--quiet",
        "--read-only",
        "--read-only-tmpfs",
        "--replace",
        "--rm",
        "--rmi",
        "--rootfs",
        "--sig-proxy",
        "--tls-verify",
        "--tty",
        "--unsetenv-all",
        "--use-api-socket",
    ]
)
_BARE_SHORT = "diPqt"
_CONTAINER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{1,99}")
_TERMINAL = "gives it a terminal or an input, which nobody uses in a container that moetuned starts; leave it out"
_FORBIDDEN = {
    "-d": "is not needed: moetuned starts the container without waiting for it",
    "--name": "is moetuned's: write the name as supervise.container",
    "--rm": "removes the container when it ends, so that nobody could say why it ended or bring it back; leave it out",
    "-i": _TERMINAL,
    "-t": _TERMINAL,
    "-a": "attaches to the container, which moetuned does not; leave it out",
    "--cidfile": "names a file that may not exist, so the container could be made only once; leave it out",
    "--pull": "is moetuned's: it never waits for a registry; pull the image by hand",
    "--replace": "removes a container of that name unasked; leave it out",
    "--rmi": "removes the image when the container ends; leave it out",
    "--sig-proxy": "is of no use to a container in the background; leave it out",
    "--detach-keys": "is of no use to a container in the background; leave it out",
    "--preserve-fds": "hands on files of the daemon; leave it out",
    "--env-host": "would hand on the daemon's environment, which is empty here; write --env NAME=VALUE",
    "--help": "only prints help; leave it out",
}
_SAME = {
    "--detach": "-d", "--interactive": "-i", "--tty": "-t", "--attach": "-a", "-h": "--hostname", "-e": "--env", "-l": "--label",
}  # fmt: skip


def container_name_problem(name: str) -> str | None:
    """What is wrong with the name of a container, the end of a sentence; None: nothing (docker's own rule, shorter)."""
    if _CONTAINER.fullmatch(name):
        return None
    return "must be 2 to 100 letters, digits, points, hyphens and underscores, and begin with a letter or digit, e.g. llama"


def run_problems(run: Sequence[str]) -> tuple[str, ...]:
    """What is wrong with the words, a sentence each that begins with the word; () when nothing is."""
    if not run:
        return ("is empty: write the options, the image and the arguments that come after docker run",)
    if run[0].rpartition("/")[2] in ("docker", "podman", "run"):
        return (f"{run[0]} is too much: write only what comes after docker run",)
    return tuple(_problems(run))


def _problems(run: Sequence[str]) -> Iterator[str]:
    image = False
    for option, value in _options(run):
        if option is None:
            image = True
            if not value or value != value.strip() or re.search(r"\s", value):
                yield f"{value!r} is no name of an image"
            continue
        if re.search(r"\s", option):
            yield f"{option} is one word with a blank in it; write option and value as two items"
            continue
        one = _SAME.get(option, option)
        if one in _FORBIDDEN:
            yield f"{option} {_FORBIDDEN[one]}"
        elif one == "--env" and value is not None and "=" not in value:
            yield f"{option} {value} takes its value from the daemon's environment, where it is not; write {value}=VALUE"
        elif one == "--label" and value is not None and value.startswith("moetuned."):
            yield f"{option} {value} is one of moetuned's own labels; leave it out"
        elif one == "--cgroups" and value in ("disabled", "no-conmon"):
            yield f"{option}={value} takes the container out of its cgroup, by which its process is known; leave it out"
        elif value is None and option not in _BARE_LONG and not _is_bare_short(option):
            yield f"{option} has no value"
    if not image:
        yield "names no image"


def _is_bare_short(option: str) -> bool:
    return len(option) == 2 and option[1] in _BARE_SHORT


def _options(run: Sequence[str]) -> Iterator[tuple[str | None, str | None]]:
    """Each option with its value (None: it has none), at last (None, the image)."""
    words = iter(run)
    for word in words:
        if word == "--":
            image = next(words, None)
            if image is not None:
                yield None, image
            return
        if word.startswith("--"):
            option, equals, value = word.partition("=")
            if equals:
                # A value that says no is as if the option were not there.
                if not (option in _BARE_LONG and value.lower() in ("false", "0", "f")):
                    yield option, value
            else:
                yield option, None if option in _BARE_LONG or re.search(r"\s", word) else next(words, None)
        elif word.startswith("-") and len(word) > 1:
            yield from _short(word, words)
        else:
            yield None, word
            return


def _short(word: str, words: Iterator[str]) -> Iterator[tuple[str, str | None]]:
    """The options of a word such as -it, -v/a:/b or -p."""
    if re.match(r"-\w\s", word):
        yield word, None
        return
    for index, letter in enumerate(word[1:], 1):
        if letter in _BARE_SHORT:
            yield f"-{letter}", None
            continue
        rest = word[index + 1 :].removeprefix("=")
        yield f"-{letter}", rest or next(words, None)
        return
