"""Models on disk: all parts of a model found from any one of them, headers read, the whole checked.

Only headers are read, in small windows, so the cost does not grow with the model.
"""

from __future__ import annotations

import os
import stat

import msgspec

from moetuned.gguf.experts import ExpertMap, expert_map, layout
from moetuned.gguf.header import CHUNK_BYTES, GgufError, Header, header_steps
from moetuned.gguf.kv_cache import kv_bytes_per_token
from moetuned.gguf.split_files import Part, missing_part, part_names, wrong_part
from moetuned.schema.model import ModelIdentity
from moetuned.schema.unicode_text import unicode_text


class ModelFileError(Exception):
    """A model cannot be used. `path` is the file that was asked for, `sentence` says what is wrong and what to do."""

    def __init__(self, path: str, sentence: str) -> None:
        # A file beside it may be called anything, and the sentence goes into the status.
        self.sentence = unicode_text(sentence)
        super().__init__(f"{unicode_text(path)}: {self.sentence}")
        self.path = path

    @property
    def refused(self) -> bool:
        """Whether it is this user that may not read it."""
        cause = self.__cause__
        return cause.refused if isinstance(cause, ModelFileError) else isinstance(cause, PermissionError)


class ModelFile(msgspec.Struct, frozen=True):
    """A model that was read. `headers` and `part_bytes` are in the order of `identity.paths`.

    `experts` is None when the layout is unknown; `identity.unknown` says why.
    """

    identity: ModelIdentity
    headers: tuple[Header, ...]
    part_bytes: tuple[int, ...]
    experts: ExpertMap | None


def read_model(path: str) -> ModelFile:
    """Read the model of which `path` is any part.

    Raises ModelFileError when a part is missing, unreadable, damaged, incomplete or of another model.
    """
    path = os.path.abspath(path)
    directory, name = os.path.split(path)
    names = part_names(name)
    if len(names) > 1:
        _check_present(path, directory, names)
    parts = [_read_part(path, os.path.join(directory, one)) for one in names]
    wrong = wrong_part(parts)
    if wrong is not None:
        raise ModelFileError(path, wrong)
    return _describe(tuple(os.path.join(directory, one) for one in names), parts)


def read_header(path: str) -> tuple[Header, int]:
    """Header and size in bytes of one GGUF file, whether or not its tensors are there yet. Raises ModelFileError."""
    part = _read_part(path, path)
    return part.header, part.size_bytes


def _check_present(path: str, directory: str, names: tuple[str, ...]) -> None:
    try:
        siblings = os.listdir(directory)
    except OSError:
        return  # a directory may be searchable without being readable; opening the parts says what is wrong
    missing = missing_part(names, siblings)
    if missing is not None:
        raise ModelFileError(path, missing)


def _read_part(asked: str, path: str) -> Part:
    name = os.path.basename(path)
    about = "" if asked == path else f"part {name}: "
    try:
        # O_NONBLOCK: opening a FIFO must not wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError as error:
        raise ModelFileError(asked, f"{about}cannot be opened: {error.strerror}") from error
    except ValueError as error:
        raise ModelFileError(asked, f"{about}is no path: {error}") from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ModelFileError(asked, f"{about}is no regular file; name the GGUF file itself")
        return Part(name, status.st_size, _read_header(descriptor, status.st_size))
    except OSError as error:
        raise ModelFileError(asked, f"{about}cannot be read: {error.strerror}") from error
    except GgufError as error:
        raise ModelFileError(asked, f"{about}{error}") from error
    finally:
        os.close(descriptor)


def _read_header(descriptor: int, size_bytes: int) -> Header:
    steps = header_steps(size_bytes)
    need = next(steps)
    while True:
        data = os.pread(descriptor, max(need.at_least, CHUNK_BYTES), need.offset)
        if len(data) < need.at_least:
            raise GgufError("it became shorter while it was read; wait until whatever writes it is done")
        try:
            need = steps.send(data)
        except StopIteration as done:
            header: Header = done.value
            return header


def _describe(paths: tuple[str, ...], parts: list[Part]) -> ModelFile:
    headers = tuple(part.header for part in parts)
    part_bytes = tuple(part.size_bytes for part in parts)
    experts: ExpertMap | None = None
    bytes_per_token: int | None = None
    reasons: list[str] = []
    try:
        experts = expert_map(headers, part_bytes)
    except GgufError as error:
        reasons.append(str(error))
    try:
        bytes_per_token = kv_bytes_per_token(headers[0].metadata)
    except GgufError as error:
        reasons.append(str(error))
    identity = ModelIdentity(
        paths=paths,
        size_bytes=sum(part_bytes),
        layout=None if experts is None else layout(experts),
        kv_bytes_per_token=bytes_per_token,
        unknown="; ".join(reasons) or None,
    )
    return ModelFile(identity, headers, part_bytes, experts)
