"""The header of a GGUF file: metadata and where each tensor lies. Pure over bytes, and only over the header's bytes.

A header with a vocabulary of 152,000 tokens is some megabytes long; the daemon needs none of the tokens, on a machine
with no memory to spare. So the parser is a generator that asks for windows of the file, keeps scalars and short number
arrays, jumps over long number arrays and only counts strings. What a file claims is checked before it is believed:
time and memory are bounded whatever the bytes are.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md and `ggml/src/gguf.cpp` of llama.cpp b11434.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Generator
from typing import Any, TypeVar

import msgspec

from moetuned.gguf.tensor_types import TENSOR_TYPES, tensor_bytes, type_name

CHUNK_BYTES = 256 << 10
"""A good size for the windows that `header_steps` asks for."""

MAX_HEADER_BYTES = 256 << 20
MAX_KEPT_ELEMENTS = 1024
"""Number arrays up to this length are kept (llama.cpp allows 512 layers); longer ones are only counted."""

_MAX_KEYS = 16_384
_MAX_TENSORS = 65_536
_MAX_STRINGS = 2 << 20
_MAX_KEY_BYTES = 65_535
_MAX_TENSOR_NAME_BYTES = 256
_MAX_STRING_BYTES = 1 << 20
_MAX_KEPT_BYTES = 8 << 20
_MAX_DIMENSIONS = 4
_DEFAULT_ALIGNMENT = 32
_INT64_MAX = (1 << 63) - 1

_STRING, _ARRAY = 8, 9
_SCALARS: dict[int, str] = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}

Scalar = int | float | bool | str
Value = Scalar | tuple[int | float | bool, ...]


class GgufError(Exception):
    """The bytes are no GGUF model that can be understood; the message is one sentence without the file's name."""


class NeedMore(msgspec.Struct, frozen=True, gc=False):
    """More of the file is needed: at least `at_least` bytes from `offset`. More than that is welcome (`CHUNK_BYTES`)."""

    offset: int
    at_least: int


class SkippedArray(msgspec.Struct, frozen=True, gc=False):
    """An array that was counted and not kept. `type_code` is GGUF's value type (8: strings)."""

    type_code: int
    count: int


class Tensor(msgspec.Struct, frozen=True, gc=False):
    """One tensor. `shape` is innermost dimension first, `offset` is from the start of the file.

    `size_bytes` is None when the type is not known (`tensor_types.type_name` names it).
    """

    name: str
    type_code: int
    shape: tuple[int, ...]
    offset: int
    size_bytes: int | None


class Header(msgspec.Struct, frozen=True):
    """What the header of one GGUF file says. Offsets and sizes are bytes from the start of the file.

    `metadata` holds scalars, strings and short number arrays; `skipped` the arrays that were only counted.
    """

    version: int
    big_endian: bool
    metadata: dict[str, Value]
    skipped: dict[str, SkippedArray]
    tensors: tuple[Tensor, ...]
    alignment: int
    header_bytes: int
    data_offset: int

    @property
    def architecture(self) -> str | None:
        """`general.architecture`, e.g. "qwen3moe"; None when absent (later parts of a split model)."""
        value = self.metadata.get("general.architecture")
        return value if isinstance(value, str) else None

    @property
    def promised_bytes(self) -> int:
        """How large the file must at least be for all its tensors to lie inside."""
        ends = (tensor.offset + (tensor.size_bytes or 0) for tensor in self.tensors)
        return max(ends, default=self.header_bytes)


T = TypeVar("T")
Steps = Generator[NeedMore, bytes, Header]


def parse_header(buffer: bytes, file_bytes: int | None = None) -> Header | NeedMore:
    """Parse a header from the first bytes of a file; `NeedMore` when `buffer` ends before the header does.

    `file_bytes`: size of the whole file, when known. Raises GgufError.
    """
    steps = header_steps(file_bytes)
    need = next(steps)
    try:
        while need.offset + need.at_least <= len(buffer):
            need = steps.send(buffer[need.offset : need.offset + max(need.at_least, CHUNK_BYTES)])
    except StopIteration as done:
        header: Header = done.value
        return header
    return NeedMore(0, need.offset + need.at_least)


def header_steps(file_bytes: int | None) -> Steps:
    """Parse a header step by step: yields what is needed, is sent bytes from that offset, returns the Header.

    Whoever drives it sends at least `at_least` bytes or stops. `file_bytes` None: the size of the file is unknown.
    Raises GgufError.
    """
    window = _Window(file_bytes)
    _check_magic((yield from window.retrying(lambda window: window.take(4))))
    version, big_endian, tensor_count, key_count = yield from window.retrying(_read_counts)
    metadata: dict[str, Value] = {}
    skipped: dict[str, SkippedArray] = {}
    kept_bytes = strings = 0
    for _ in range(key_count):
        key, value, array = yield from window.retrying(_read_key)
        if key in metadata or key in skipped:
            raise GgufError(
                f"its metadata has the key {key!r} twice; the file is damaged, download or convert it again"
            )
        if array is None:
            metadata[key] = value
            kept_bytes += len(key) + _kept_bytes(value)
            if kept_bytes > _MAX_KEPT_BYTES:
                raise GgufError(f"its metadata text is larger than {_MAX_KEPT_BYTES} bytes; that is no model's header")
        else:
            skipped[key] = array
            strings += array.count if array.type_code == _STRING else 0
            if strings > _MAX_STRINGS:
                raise GgufError(f"its metadata claims {strings} strings up to {key!r}, more than {_MAX_STRINGS}")
            yield from _skip_array(window, array)
    alignment = _alignment(metadata)
    infos: list[tuple[str, int, tuple[int, ...], int]] = []
    for _ in range(tensor_count):
        infos.append((yield from window.retrying(_read_tensor)))  # noqa: PERF401 a generator cannot yield in one
    header_bytes = window.offset
    data_offset = -(-header_bytes // alignment) * alignment
    tensors = _place_tensors(infos, data_offset, alignment)
    return Header(version, big_endian, metadata, skipped, tensors, alignment, header_bytes, data_offset)


class _ShortError(Exception):
    """The window ends before the item does; `args[0]` bytes from the item's start would do for the next field."""


class _Window:
    """A stretch of the file and a position in it. Items are parsed whole; a short window is refilled and tried again."""

    __slots__ = ("_base", "_data", "_file_bytes", "_pos", "order")

    def __init__(self, file_bytes: int | None) -> None:
        self._file_bytes = file_bytes
        self._base = 0
        self._data = b""
        self._pos = 0
        self.order = "<"

    @property
    def offset(self) -> int:
        """Where parsing stands, from the start of the file."""
        return self._base + self._pos

    def fill(self, at_least: int) -> Generator[NeedMore, bytes, None]:
        """Ask for the file from the present position on."""
        end = self.offset + at_least
        if end > MAX_HEADER_BYTES:
            raise GgufError(f"its header would be longer than {MAX_HEADER_BYTES >> 20} MiB; the file is damaged")
        if self._file_bytes is not None and end > self._file_bytes:
            raise GgufError(
                f"it ends after {self._file_bytes} bytes, inside its own header: "
                "it is still downloading or was cut off; finish or repeat the download"
            )
        self._base = self.offset
        self._pos = 0
        self._data = yield NeedMore(self._base, at_least)

    def retrying(self, read: Callable[[_Window], T]) -> Generator[NeedMore, bytes, T]:
        """One item, with a longer window for as long as the item does not fit."""
        while True:
            start = self._pos
            try:
                return read(self)
            except _ShortError as short:
                self._pos = start
                yield from self.fill(short.args[0] - start)

    def take(self, size: int) -> bytes:
        """The next `size` bytes."""
        end = self._pos + size
        if end > len(self._data):
            raise _ShortError(end)
        piece = self._data[self._pos : end]
        self._pos = end
        return piece

    def number(self, code: str) -> Any:
        """The next scalar of struct code `code`."""
        layout = struct.Struct(self.order + code)
        return layout.unpack(self.take(layout.size))[0]

    def text(self, what: str, limit: int) -> str:
        """The next string, which is `what` and at most `limit` bytes long."""
        length = self.number("Q")
        if length > limit:
            raise GgufError(f"{what} at byte {self.offset} is {length} bytes long; at most {limit} are allowed")
        raw = self.take(length)
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            raise GgufError(f"{what} at byte {self.offset - length} is not UTF-8; the file is damaged") from None

    def jump(self, size: int) -> Generator[NeedMore, bytes, None]:
        """Go on `size` bytes further; what lies between is never asked for."""
        self._pos += size
        if self._pos > len(self._data):
            yield from self.fill(0)

    def skip_strings(self, count: int) -> int:
        """Jump over up to `count` strings, as far as the window holds their lengths; returns how many are left."""
        data, pos, last = self._data, self._pos, len(self._data) - 8
        length_at = struct.Struct(self.order + "Q").unpack_from
        while count and pos <= last:
            pos += 8 + length_at(data, pos)[0]
            count -= 1
        self._pos = pos
        return count


def _read_counts(window: _Window) -> tuple[int, bool, int, int]:
    raw = window.take(4)
    version, swapped = int.from_bytes(raw, "little"), int.from_bytes(raw, "big")
    # The version is small, so the byte order in which it is small is the file's.
    big_endian = swapped < version
    if big_endian:
        window.order, version = ">", swapped
    if version not in (2, 3):
        raise GgufError(f"it is GGUF version {version}; versions 2 and 3 are known: convert or download it again")
    tensor_count, key_count = window.number("Q"), window.number("Q")
    if key_count > _MAX_KEYS:
        raise GgufError(f"it claims {key_count} metadata keys, more than {_MAX_KEYS}; the file is damaged")
    if tensor_count > _MAX_TENSORS:
        raise GgufError(f"it claims {tensor_count} tensors, more than {_MAX_TENSORS}; the file is damaged")
    return version, big_endian, tensor_count, key_count


def _check_magic(magic: bytes) -> None:
    if magic != b"GGUF":
        raise GgufError(_not_gguf(magic))


def _not_gguf(magic: bytes) -> str:
    if magic == b"\0\0\0\0":
        return "it begins with zeros: the download reserved the file and has not written its start yet; finish it"
    if magic == b"vers":
        return "it is no GGUF file but perhaps a Git LFS pointer; fetch the file itself with 'git lfs pull'"
    if magic[:1] == b"<":
        return "it is no GGUF file but perhaps a web page; download the file itself"
    if magic in (b"lmgg", b"fmgg", b"tjgg", b"algg"):
        return "it is a GGML file from before GGUF, which llama.cpp no longer loads; convert or download it again"
    return f"it begins with {magic!r} instead of b'GGUF': it is no GGUF file"


def _read_key(window: _Window) -> tuple[str, Value, SkippedArray | None]:
    key = window.text("a metadata key", _MAX_KEY_BYTES)
    code = window.number("I")
    if code == _STRING:
        return key, window.text(f"the value of {key!r}", _MAX_STRING_BYTES), None
    if code in _SCALARS:
        return key, window.number(_SCALARS[code]), None
    if code != _ARRAY:
        raise GgufError(f"the metadata key {key!r} has the unknown value type {code}; the file is damaged")
    element, count = window.number("I"), window.number("Q")
    if element == _ARRAY:
        raise GgufError(f"the metadata key {key!r} is an array of arrays, which llama.cpp does not load")
    if element != _STRING and element not in _SCALARS:
        raise GgufError(f"the metadata key {key!r} is an array of the unknown value type {element}")
    if element == _STRING or count > MAX_KEPT_ELEMENTS:
        return key, 0, SkippedArray(element, count)
    layout = struct.Struct(f"{window.order}{count}{_SCALARS[element]}")
    return key, layout.unpack(window.take(layout.size)), None


def _kept_bytes(value: Value) -> int:
    return len(value) * (1 if isinstance(value, str) else 8) if isinstance(value, str | tuple) else 8


def _skip_array(window: _Window, array: SkippedArray) -> Generator[NeedMore, bytes, None]:
    if array.type_code != _STRING:
        yield from window.jump(array.count * struct.calcsize("=" + _SCALARS[array.type_code]))
        return
    left = window.skip_strings(array.count)
    while left:
        yield from window.fill(8)
        left = window.skip_strings(left)


def _alignment(metadata: dict[str, Value]) -> int:
    value = metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0 or value & (value - 1) or value > 1 << 30:
        raise GgufError(f"general.alignment is {value!r}; a power of two is needed")
    return value


def _read_tensor(window: _Window) -> tuple[str, int, tuple[int, ...], int]:
    name = window.text("a tensor's name", _MAX_TENSOR_NAME_BYTES)
    dimensions = window.number("I")
    if dimensions > _MAX_DIMENSIONS:
        raise GgufError(f"the tensor {name!r} has {dimensions} dimensions; at most {_MAX_DIMENSIONS} are possible")
    shape = tuple(window.number("Q") for _ in range(dimensions))
    return name, window.number("I"), shape, window.number("Q")


def _place_tensors(
    infos: list[tuple[str, int, tuple[int, ...], int]], data_offset: int, alignment: int
) -> tuple[Tensor, ...]:
    tensors = tuple(
        Tensor(name, code, shape, data_offset + offset, _size(name, code, shape, offset, alignment))
        for name, code, shape, offset in infos
    )
    if len({tensor.name for tensor in tensors}) < len(tensors):
        counts = Counter(tensor.name for tensor in tensors)
        twice = next(name for name, count in counts.items() if count > 1)
        raise GgufError(f"it has the tensor {twice!r} twice; the file is damaged, download or convert it again")
    before: Tensor | None = None
    for tensor in sorted(tensors, key=lambda tensor: tensor.offset):
        if not tensor.size_bytes:
            continue
        if before is not None and before.offset + (before.size_bytes or 0) > tensor.offset:
            raise GgufError(f"its tensors {before.name!r} and {tensor.name!r} overlap; the file is damaged")
        before = tensor
    return tensors


def _size(name: str, code: int, shape: tuple[int, ...], offset: int, alignment: int) -> int | None:
    elements = 1
    for length in shape:
        elements *= length
    if elements > _INT64_MAX or any(length > _INT64_MAX for length in shape):
        raise GgufError(f"the tensor {name!r} has the impossible shape {list(shape)}; the file is damaged")
    if offset > _INT64_MAX:
        raise GgufError(f"the tensor {name!r} begins at the impossible offset {offset}; the file is damaged")
    if offset % alignment:
        raise GgufError(f"the tensor {name!r} begins at {offset}, which is no multiple of the alignment {alignment}")
    size = tensor_bytes(code, shape)
    if size is None and code in TENSOR_TYPES:
        block = TENSOR_TYPES[code].block_elements
        raise GgufError(f"the tensor {name!r} of type {type_name(code)} has rows of {shape[:1]}, not blocks of {block}")
    return size
