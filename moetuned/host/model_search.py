"""Looks for models on this machine where people and their programs keep them: bounded in depth, number and time, and it says where it looked.

Links to directories are not followed. A place that does not answer (a network file system whose server is gone) is left after its time.
"""

from __future__ import annotations

import os
import pwd
import threading
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from moetuned.gguf.split_files import split_name
from moetuned.schema.setup import Looked

MOST_DEPTH = 5
MOST_NAMES = 20_000
MOST_MODELS = 100
PLACE_SECONDS = 3.0
_LEAST_BYTES = 16 << 10
_MAGIC = b"GGUF"
_BLOB = "sha256-"
_MOST_LINKS = 40
"""Of one name, as the kernel follows them."""
_IN_HOME = (
    "models", "Models", ".cache/llama.cpp", ".cache/huggingface/hub", ".cache/lm-studio/models", ".lmstudio/models", ".ollama/models/blobs",
)  # fmt: skip
_OF_ALL = (
    "/models",
    "/srv",
    "/opt/models",
    "/var/lib/models",
    "/usr/share/ollama/.ollama/models/blobs",
    "/var/lib/ollama/models/blobs",
)
_VARIABLES = (("LLAMA_CACHE", ""), ("HF_HUB_CACHE", ""), ("HF_HOME", "hub"), ("OLLAMA_MODELS", "blobs"))


class ModelOnDisk(msgspec.Struct, frozen=True):
    """The first part of a model. `size_bytes`: of all its parts that are there."""

    path: str
    size_bytes: int


class Search(msgspec.Struct, frozen=True):
    """What was found, the largest first, and where it was looked."""

    models: tuple[ModelOnDisk, ...]
    looked: tuple[Looked, ...]


def usual_places(environ: Mapping[str, str], homes: Sequence[str]) -> tuple[str, ...]:
    """Directories in which models are looked for, those that are there or not."""
    named = [os.path.join(environ[name], below) for name, below in _VARIABLES if environ.get(name, "").startswith("/")]
    in_homes = [os.path.join(home, below) for home in homes for below in _IN_HOME]
    return tuple(dict.fromkeys(os.path.normpath(each) for each in (*named, *in_homes, *_OF_ALL)))


def homes_to_look_in(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Homes of who asks: the user's own; for root also that of whoever called sudo, and those below /home."""
    found = [os.path.expanduser("~")]
    if os.geteuid() == 0:
        if name := environ.get("SUDO_USER"):
            try:
                found.append(pwd.getpwnam(name).pw_dir)
            except KeyError:
                pass
        try:
            found += sorted(entry.path for entry in os.scandir("/home") if entry.is_dir(follow_symlinks=False))[:32]
        except OSError:
            pass
    return tuple(dict.fromkeys(found))


def search(places: Sequence[str], seconds: float = PLACE_SECONDS) -> Search:
    """Models in these directories; each at most `seconds`. A model that two names lead to is found once."""
    found: dict[str, ModelOnDisk] = {}
    looked = []
    for place in places:
        models, one = _patiently(place, seconds)
        if one is None:
            continue
        for model in models:
            found.setdefault(os.path.realpath(model.path), model)
        looked.append(one)
    models = sorted(found.values(), key=lambda each: (-each.size_bytes, each.path))
    return Search(tuple(models[:MOST_MODELS]), tuple(looked))


def _patiently(place: str, seconds: float) -> tuple[list[ModelOnDisk], Looked | None]:
    answer: list[tuple[list[ModelOnDisk], Looked | None]] = []
    stop = threading.Event()
    thread = threading.Thread(target=lambda: answer.append(_look(place, stop)), daemon=True)
    thread.start()
    thread.join(seconds)
    stop.set()
    thread.join(0.2)  # one that looks ends at once; one that hangs in the kernel is left
    return answer[0] if answer else ([], Looked(place, note=f"did not answer within {seconds:.0f} s"))


def _look(place: str, stop: threading.Event) -> tuple[list[ModelOnDisk], Looked | None]:
    """None where there is no such directory."""
    if not os.path.isdir(place):
        return [], None
    found: list[ModelOnDisk] = []
    note = None
    names = 0
    left = [(place, 0)]
    while left:
        directory, depth = left.pop()
        try:
            entries = sorted(os.scandir(directory), key=lambda each: each.name)
        except OSError as error:
            note = note or f"{directory}: {error.strerror}"
            continue
        for entry in entries:
            names += 1
            if stop.is_set() or names > MOST_NAMES or len(found) >= MOST_MODELS:
                why = (
                    "it takes too long"
                    if stop.is_set()
                    else f"there are more than {MOST_NAMES} names or {MOST_MODELS} models"
                )
                return found, Looked(place, len(found), f"not looked at all of it: {why}")
            try:
                if entry.is_dir(follow_symlinks=False):
                    if depth < MOST_DEPTH and not entry.name.startswith(".git"):
                        left.append((entry.path, depth + 1))
                elif (model := _model(entry.path, entry.name)) is not None:
                    found.append(model)
            except OSError:
                continue
    return found, Looked(place, len(found), note)


def _model(path: str, name: str) -> ModelOnDisk | None:
    """The model whose first part this file is; None for what is none."""
    if not path.isprintable() or not (name.endswith(".gguf") or name.startswith(_BLOB)) or "mmproj" in name.lower():
        return None
    split = split_name(name)
    if split is not None and split.number != 1:
        return None
    size_bytes = os.stat(path).st_size
    if size_bytes < _LEAST_BYTES or not _is_gguf(path):
        return None
    if split is not None:
        size_bytes = sum(_size(each) for each in _parts(path))
    return ModelOnDisk(path, size_bytes)


def _parts(path: str) -> list[str]:
    from moetuned.gguf.split_files import part_names

    directory, name = os.path.split(path)
    return [os.path.join(directory, each) for each in part_names(name)]


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _is_gguf(path: str) -> bool:
    # Non-blocking: a FIFO of that name must not make anybody wait.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        return os.read(descriptor, len(_MAGIC)) == _MAGIC
    finally:
        os.close(descriptor)


def unreadable_for_others(path: str) -> str | None:
    """What keeps a user of its own (as a unit with DynamicUser= has) from reading `path`: the file or a directory on the way; None: nothing.

    The way is that of the name, of each link that it leads over, and of the file itself.
    """
    real = os.path.realpath(path)
    try:
        if not os.stat(real).st_mode & 0o004:
            return real
        for name in (real, *_hops(os.path.abspath(path))):
            while (name := os.path.dirname(name)) != "/":
                if not os.stat(name).st_mode & 0o001:
                    return name
    except OSError:
        return real
    return None


def _hops(name: str) -> Iterator[str]:
    """The name, and what it leads to from link to link. Raises OSError."""
    for _ in range(_MOST_LINKS):
        yield name
        if not os.path.islink(name):
            return
        name = os.path.normpath(os.path.join(os.path.realpath(os.path.dirname(name)), os.readlink(name)))


def in_private_tmp(path: str) -> bool:
    """Whether a unit with PrivateTmp= sees something else under this name."""
    return any(each.startswith(("/tmp/", "/var/tmp/")) for each in (os.path.abspath(path), os.path.realpath(path)))  # noqa: S108
