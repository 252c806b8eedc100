"""Asks a real llama.cpp (the library inside the xllamacpp wheel) what the cache of a made-up model costs.

Run as a process of its own, since llama.cpp aborts where a model makes no sense: reads one JSON object a line,
{"metadata": …, "settings": …}, and answers each with one line: {"kv": MiB, "state": MiB} or {"error": text}. Lines
with "partial" come as caches are allocated: all there is when the compute graph of so small a model makes it abort.
The model is never on disk: `llama_model_init_from_user` makes one of any architecture from metadata alone.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import pathlib
import re
import sys
from typing import Any

GGUF_U32, GGUF_F32, GGUF_BOOL = 4, 6, 7
CACHE_TYPES = {"f16": 1, "q8_0": 8, "q4_0": 2}
# struct llama_context_params of b11549: byte offsets of the fields that are set here.
N_CTX, N_UBATCH, N_SEQ_MAX, FLASH_ATTENTION, TYPE_K, TYPE_V, FLAGS, SWA_FULL, KV_UNIFIED = (
    0,
    8,
    12,
    52,
    104,
    108,
    136,
    140,
    141,
)
SIZES = re.compile(r"(KV|RS) buffer size = +([\d.]+) MiB")


class Params(ctypes.Structure):
    """Parameters by value, as bytes and larger than any build's struct: the callee reads only its own part."""

    _fields_ = [("raw", ctypes.c_uint8 * 512)]


LOG = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
SET_DATA = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)


def load() -> ctypes.CDLL:
    """The library, with the signatures used here."""
    spec = importlib.util.find_spec("xllamacpp")
    if spec is None or spec.origin is None:
        sys.exit("xllamacpp is not installed")
    library = ctypes.CDLL(str(next(pathlib.Path(spec.origin).parent.glob("xllamacpp*.so"))))
    for name, result, arguments in (
        ("gguf_init_empty", ctypes.c_void_p, []),
        ("gguf_set_val_str", None, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p]),
        ("gguf_set_val_u32", None, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint32]),
        ("gguf_set_val_f32", None, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_float]),
        ("gguf_set_val_bool", None, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_bool]),
        ("gguf_set_arr_data", None, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t]),
        (
            "gguf_set_arr_str",
            None,
            [ctypes.c_void_p, ctypes.c_char_p, ctypes.POINTER(ctypes.c_char_p), ctypes.c_size_t],
        ),
        ("llama_model_default_params", Params, []),
        ("llama_context_default_params", Params, []),
        ("llama_model_init_from_user", ctypes.c_void_p, [ctypes.c_void_p, SET_DATA, ctypes.c_void_p, Params]),
        ("llama_init_from_model", ctypes.c_void_p, [ctypes.c_void_p, Params]),
        ("llama_free", None, [ctypes.c_void_p]),
        ("llama_model_free", None, [ctypes.c_void_p]),
        ("llama_log_set", None, [LOG, ctypes.c_void_p]),
        ("ggml_backend_load_all", None, []),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def set_metadata(library: ctypes.CDLL, context: int, metadata: dict[str, Any]) -> None:
    """Write `metadata` into a gguf context."""
    for key, value in metadata.items():
        name = key.encode()
        if isinstance(value, bool):
            library.gguf_set_val_bool(context, name, value)
        elif isinstance(value, int):
            library.gguf_set_val_u32(context, name, value)
        elif isinstance(value, float):
            library.gguf_set_val_f32(context, name, value)
        elif isinstance(value, str):
            library.gguf_set_val_str(context, name, value.encode())
        elif isinstance(value[0], str):
            texts = (ctypes.c_char_p * len(value))(*(one.encode() for one in value))
            library.gguf_set_arr_str(context, name, texts, len(value))
        else:
            kind, code = {bool: (ctypes.c_bool, GGUF_BOOL), float: (ctypes.c_float, GGUF_F32)}.get(
                type(value[0]), (ctypes.c_uint32, GGUF_U32)
            )
            library.gguf_set_arr_data(context, name, code, (kind * len(value))(*value), len(value))


def number(params: Params, offset: int, value: int | None = None) -> int:
    """Read (and write) an int32 of a parameter struct."""
    field = ctypes.c_int32.from_buffer(params, offset)
    if value is not None:
        field.value = value
    return field.value


def context_params(library: ctypes.CDLL, settings: dict[str, Any]) -> Params:
    """Parameters of a context; exits when this build's struct is laid out differently."""
    params: Params = library.llama_context_default_params()
    known = [number(params, offset) for offset in (N_CTX, N_UBATCH, N_SEQ_MAX, FLASH_ATTENTION, TYPE_K, TYPE_V)]
    known += params.raw[FLAGS : KV_UNIFIED + 1]
    if known != [512, 512, 1, -1, 1, 1, 0, 1, 1, 1, 1, 0]:
        sys.exit(f"llama_context_params of this build is laid out differently: {known}")
    number(params, N_CTX, settings["context_length"])
    number(params, N_UBATCH, settings["ubatch_tokens"])
    number(params, N_SEQ_MAX, settings["slots"])
    number(params, FLASH_ATTENTION, 1 if settings["flash_attention"] else 0)
    number(params, TYPE_K, CACHE_TYPES[settings["type_k"]])
    number(params, TYPE_V, CACHE_TYPES[settings["type_v"]])
    params.raw[SWA_FULL] = settings["full_window"]
    params.raw[KV_UNIFIED] = settings["unified"]
    return params


def main() -> None:
    """Answer every line of standard input."""
    lines: list[str] = []
    answer: dict[str, Any] = {}

    def log(_level: int, raw: bytes, _user: int) -> None:
        text = raw.decode("utf-8", "replace")
        lines.append(text)
        for kind, size in SIZES.findall(text):
            answer["kv" if kind == "KV" else "state"] += float(size)
            print(json.dumps(answer | {"partial": True}), flush=True)

    keep_log = LOG(log)
    keep_data = SET_DATA(lambda _tensor, _user: None)
    library = load()
    library.llama_log_set(keep_log, None)
    library.ggml_backend_load_all()
    for line in sys.stdin:
        case = json.loads(line)
        lines.clear()
        answer.update(kv=0.0, state=0.0)
        gguf = library.gguf_init_empty()
        set_metadata(library, gguf, case["metadata"])
        model = library.llama_model_init_from_user(gguf, keep_data, None, library.llama_model_default_params())
        context = library.llama_init_from_model(model, context_params(library, case["settings"])) if model else None
        print(json.dumps(answer if context else {"error": "".join(lines)[-1500:]}), flush=True)
        if context:
            library.llama_free(context)
        if model:
            library.llama_model_free(model)


if __name__ == "__main__":
    main()
