"""Write a random-weight GGUF that llama.cpp really loads and runs, in one streamed pass with little memory.

The text such a model makes is noise; its paging is real. Three things keep the routing alive, because with careless random
weights every token soon takes the same few experts: each token's embedding is its topic's centre plus its own part, so the
router sees different vectors; Q4_0 nibbles are drawn without the value 0 (-8), which has no positive partner and would
push every vector in one common direction; and the block scales are small enough that a layer adds to the residual stream
without drowning the embedding. The router's rows get a Zipf-like factor, so that some experts are hot and most are cold.
"""

from __future__ import annotations

import os
import random
import struct
from array import array
from collections.abc import Callable, Iterator

from moetuned.simulator.model_shape import (
    ALIGNMENT,
    BLOCK_BYTES,
    VOCABULARY,
    ModelShape,
    Tensor,
    check_shape,
    data_bytes,
    padded,
    tensors,
)
from moetuned.simulator.topics import TOPICS, topic_of_byte

_UINT32, _FLOAT32, _BOOL, _STRING, _ARRAY, _INT32 = 4, 6, 7, 8, 9, 5
_TYPE_F32, _TYPE_Q4_0 = 0, 2
_FILE_TYPE_MOSTLY_Q4_0 = 2
_TOKEN_NORMAL, _TOKEN_CONTROL = 1, 3
_CHUNK_BLOCKS = 1 << 16
_WITHOUT_MINUS_EIGHT = bytes((value & 0x0F or 8) | (value & 0xF0 or 0x80) for value in range(256))

# Measured with llama.cpp, 600 MiB of 11 layers, 42 experts, 4 used: at temperature 1 the answers stay in the prompt's topic;
# a topic touches 36 % of the file's pages, two 56 %, all eight 95 %; one token 12 %, 16 tokens 33 %.
_BLOCK_SCALE = 0.02 / 24
_TOPIC_SHARE = 0.75  # of an embedding's variance; the rest is the token's own
_OUTPUT_SCALE = 0.02
_ROUTER_SCALE = 0.2
_ROUTER_SKEW = 0.35


class WriteError(Exception):
    """The file could not be written; the message names it and says why."""


def write_model(path: str, shape: ModelShape, seed: int, progress: Callable[[int, int], None]) -> int:
    """Write the model to `path` (through a temporary name beside it) and return its size in bytes.

    `progress(done, total)` is called with bytes as they are written. Raises ShapeError for a shape llama.cpp would not
    load and WriteError when the disk has no room or cannot be written; nothing is left behind then.
    """
    check_shape(shape)
    header = _header(shape)
    total = len(header) + data_bytes(shape)
    temporary = f"{path}.{os.getpid()}.part"
    try:
        _require_room(path, total)
        with open(temporary, "xb", buffering=0) as file:
            done = 0
            for piece in _pieces(shape, header, seed):
                _write_all(file.fileno(), piece)
                done += len(piece)
                progress(done, total)
            os.fsync(file.fileno())
            # Its pages would stay charged to whoever made the model, not to the backend that uses them.
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        os.replace(temporary, path)
    except OSError as error:
        raise WriteError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        if os.path.exists(temporary):
            os.unlink(temporary)
    return total


def _require_room(path: str, total: int) -> None:
    directory = os.path.dirname(os.path.abspath(path))
    room = os.statvfs(directory)
    free = room.f_bavail * room.f_frsize
    if free < total:
        raise WriteError(f"cannot write {path}: it needs {total} bytes and {directory} has {free} bytes free")


def _write_all(descriptor: int, data: bytes | bytearray) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _header(shape: ModelShape) -> bytes:
    infos, offset, count = bytearray(), 0, 0
    for tensor in tensors(shape):
        infos += _string(tensor.name) + struct.pack("<I", len(tensor.dimensions))
        infos += struct.pack(f"<{len(tensor.dimensions)}Q", *tensor.dimensions)
        infos += struct.pack("<IQ", _TYPE_Q4_0 if tensor.quantized else _TYPE_F32, offset)
        offset += padded(tensor.size_bytes)
        count += 1
    pairs = list(_metadata(shape))
    head = b"GGUF" + struct.pack("<IQQ", 3, count, len(pairs)) + b"".join(pairs) + bytes(infos)
    return head.ljust(-(-len(head) // ALIGNMENT) * ALIGNMENT, b"\0")


def _metadata(shape: ModelShape) -> Iterator[bytes]:
    yield _pair("general.architecture", _STRING, _string("qwen3moe"))
    yield _pair("general.name", _STRING, _string("moetuned random Mixture-of-Experts model"))
    yield _pair("general.alignment", _UINT32, struct.pack("<I", ALIGNMENT))
    yield _pair("general.file_type", _UINT32, struct.pack("<I", _FILE_TYPE_MOSTLY_Q4_0))
    numbers = {
        "block_count": shape.layers,
        "context_length": shape.context_length,
        "embedding_length": shape.embedding,
        "feed_forward_length": shape.feed_forward,
        "expert_feed_forward_length": shape.feed_forward,
        "expert_count": shape.experts,
        "expert_used_count": shape.experts_used,
        "attention.head_count": shape.heads,
        "attention.head_count_kv": shape.heads_kv,
        "attention.key_length": shape.key_length,
        "attention.value_length": shape.key_length,
    }
    for key, number in numbers.items():
        yield _pair(f"qwen3moe.{key}", _UINT32, struct.pack("<I", number))
    yield _pair("qwen3moe.rope.freq_base", _FLOAT32, struct.pack("<f", 1e6))
    yield _pair("qwen3moe.attention.layer_norm_rms_epsilon", _FLOAT32, struct.pack("<f", 1e-6))
    words = _vocabulary()
    yield _pair("tokenizer.ggml.model", _STRING, _string("gpt2"))
    yield _pair("tokenizer.ggml.pre", _STRING, _string("qwen2"))
    yield _pair(
        "tokenizer.ggml.tokens", _ARRAY, struct.pack("<IQ", _STRING, len(words)) + b"".join(map(_string, words))
    )
    kinds = [_TOKEN_NORMAL] * 256 + [_TOKEN_CONTROL] * (len(words) - 256)
    yield _pair("tokenizer.ggml.token_type", _ARRAY, struct.pack(f"<IQ{len(kinds)}i", _INT32, len(kinds), *kinds))
    yield _pair("tokenizer.ggml.merges", _ARRAY, struct.pack("<IQ", _STRING, 1) + _string("a b"))
    for number, key in enumerate(("eos", "bos", "padding"), 256):
        yield _pair(f"tokenizer.ggml.{key}_token_id", _UINT32, struct.pack("<I", number))
    yield _pair("tokenizer.ggml.add_bos_token", _BOOL, b"\0")


def _pair(key: str, kind: int, value: bytes) -> bytes:
    return _string(key) + struct.pack("<I", kind) + value


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _vocabulary() -> list[str]:
    """One token a byte in the byte-to-character coding of GPT-2, then control tokens."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [value for value in range(256) if value not in plain]
    words = [chr(value) if value in plain else chr(256 + others.index(value)) for value in range(256)]
    return words + [f"<|control_{number}|>" for number in range(256, VOCABULARY)]


def _pieces(shape: ModelShape, header: bytes, seed: int) -> Iterator[bytes | bytearray]:
    yield header
    chooser = random.Random(seed)
    centres = [_uniform(chooser, shape.embedding, _TOPIC_SHARE**0.5) for _ in range(TOPICS)]
    for tensor in tensors(shape):
        if tensor.quantized:
            yield from _quantized(chooser, tensor)
        else:
            yield _floats(chooser, tensor, shape, centres)
        yield bytes(padded(tensor.size_bytes) - tensor.size_bytes)


def _quantized(chooser: random.Random, tensor: Tensor) -> Iterator[bytearray]:
    """Q4_0 blocks: a half-precision scale and 16 bytes of random nibbles."""
    low, high = struct.pack("<e", _BLOCK_SCALE)
    left = tensor.size_bytes // BLOCK_BYTES
    while left:
        blocks = min(left, _CHUNK_BLOCKS)
        data = bytearray(chooser.randbytes(blocks * BLOCK_BYTES).translate(_WITHOUT_MINUS_EIGHT))
        data[0::BLOCK_BYTES] = bytes([low]) * blocks
        data[1::BLOCK_BYTES] = bytes([high]) * blocks
        yield data
        left -= blocks


def _floats(chooser: random.Random, tensor: Tensor, shape: ModelShape, centres: list[array[float]]) -> bytes:
    kind = tensor.name.removesuffix(".weight").rsplit(".", 1)[-1]
    if kind.endswith("_norm"):
        return array("f", [1.0] * tensor.dimensions[0]).tobytes()
    if kind == "ffn_gate_inp":
        ranks = chooser.sample(range(1, shape.experts + 1), shape.experts)
        scales = [_ROUTER_SCALE * rank**-_ROUTER_SKEW for rank in ranks]
        return b"".join(_uniform(chooser, shape.embedding, scale).tobytes() for scale in scales)
    own, scale = (1.0 - _TOPIC_SHARE) ** 0.5, 1.0 if kind == "token_embd" else _OUTPUT_SCALE
    rows = []
    for token in range(VOCABULARY):
        centre = centres[topic_of_byte(token % 256)]
        noise = _uniform(chooser, shape.embedding, own)
        rows.append(array("f", [scale * (a + b) for a, b in zip(centre, noise, strict=True)]).tobytes())
    return b"".join(rows)


def _uniform(chooser: random.Random, count: int, deviation: float) -> array[float]:
    """`count` numbers of mean 0 and the given standard deviation; a uniform distribution does, and is quick."""
    raw = array("h", chooser.randbytes(2 * count))
    scale = deviation * 3**0.5 / 32768
    return array("f", [value * scale for value in raw])
