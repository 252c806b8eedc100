"""Coverage-guided fuzzing of everything that reads a model's header. Run by `make fuzz`; needs atheris.

An input is either the bytes of a file, or a recipe from which a well-formed file with hostile contents is built (so that
counts, types, offsets and names are reached without a mutator having to find the format first). Allowed are a
result and GgufError, within the limits that the command line sets (-timeout, -rss_limit_mb).

    python tests/fuzz/fuzz_gguf_header.py CORPUS -max_total_time=600 -timeout=5 -rss_limit_mb=512
"""

from __future__ import annotations

import os
import struct
import sys
from contextlib import suppress

import atheris

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

with atheris.instrument_imports(include=["moetuned"]):
    from moetuned.gguf.experts import expert_map, expert_ranges, expert_slices, layout, other_ranges
    from moetuned.gguf.header import GgufError, Header, NeedMore, header_steps, parse_header
    from moetuned.gguf.kv_cache import KvSettings, kv_bytes_per_token, kv_cache
    from moetuned.gguf.split_files import Part, part_names, wrong_part

from fakes.gguf_bytes import TensorSpec, Typed, gguf_bytes, moe_metadata, moe_tensors
from fakes.model_metadata import MODELS

HOSTILE = (0, 1, 31, 2**31 - 1, 2**32 - 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1)
ARCHITECTURES = sorted({str(model["general.architecture"]) for model in MODELS.values()})
KEYS = sorted(
    {key for model in MODELS.values() for key in model} | {f"split.{key}" for key in ("no", "count", "tensors.count")}
)
NAMES = sorted(
    {spec.name for spec in moe_tensors()}
    | {"blk.511.ffn_up_exps.weight", "blk.99999999999999999999.ffn_up_exps.weight"}
)
KINDS = {
    "u8": (8, 0),
    "i8": (8, 1),
    "u16": (16, 0),
    "i16": (16, 1),
    "u32": (32, 0),
    "i32": (32, 1),
    "u64": (64, 0),
    "i64": (64, 1),
}

SETTINGS = (
    KvSettings(4096, slots=4, unified=True, type_k="q8_0", type_v="q4_0"),
    KvSettings(1 << 20, slots=3, flash_attention=False, full_window=True),
)


def number(data: atheris.FuzzedDataProvider, bits: int = 64, signed: int = 0) -> int:
    """A number of that many bits, often one at an edge."""
    value = (
        HOSTILE[data.ConsumeIntInRange(0, len(HOSTILE) - 1)] if data.ConsumeBool() else data.ConsumeIntInRange(0, 600)
    )
    value &= (1 << bits) - 1
    return value - (1 << bits) if signed and value >> (bits - 1) else value


def value(data: atheris.FuzzedDataProvider) -> object:
    """A metadata value of any kind."""
    choice = data.ConsumeIntInRange(0, 6)
    if choice == 0:
        return data.ConsumeBytes(data.ConsumeIntInRange(0, 40))
    if choice == 1:
        return ARCHITECTURES[data.ConsumeIntInRange(0, len(ARCHITECTURES) - 1)]
    if choice == 2:
        return [b"x" * data.ConsumeIntInRange(0, 9) for _ in range(data.ConsumeIntInRange(1, 5))]
    if choice == 3:
        return Typed("f64", data.ConsumeFloat())
    kind = sorted(KINDS)[data.ConsumeIntInRange(0, len(KINDS) - 1)]
    if choice == 4:
        return Typed(kind, [number(data, *KINDS[kind]) for _ in range(data.ConsumeIntInRange(0, 80))])
    return Typed(kind, number(data, *KINDS[kind]))


def tensor(data: atheris.FuzzedDataProvider) -> TensorSpec:
    """A tensor of any kind, at its proper place or anywhere."""
    name = (
        NAMES[data.ConsumeIntInRange(0, len(NAMES) - 1)] if data.ConsumeBool() else data.ConsumeUnicodeNoSurrogates(12)
    )
    shape = tuple(number(data) for _ in range(data.ConsumeIntInRange(0, 5)))
    return TensorSpec(name, shape, data.ConsumeIntInRange(0, 45), number(data) if data.ConsumeBool() else None)


def built(data: atheris.FuzzedDataProvider) -> bytes:
    """A file whose structure is right and whose contents are not."""
    base = list(MODELS.values())[data.ConsumeIntInRange(0, len(MODELS) - 1)] if data.ConsumeBool() else moe_metadata()
    entries: list[tuple[str | bytes, object]] = [
        (key, Typed("i32", list(one)) if isinstance(one, tuple) else one) for key, one in base.items()
    ]
    for _ in range(data.ConsumeIntInRange(0, 6)):
        key = KEYS[data.ConsumeIntInRange(0, len(KEYS) - 1)] if data.ConsumeBool() else data.ConsumeBytes(8)
        entries = [entry for entry in entries if entry[0] != key or data.ConsumeBool()] + [(key, value(data))]
    specs = moe_tensors()[: data.ConsumeIntInRange(0, 12)] + [tensor(data) for _ in range(data.ConsumeIntInRange(0, 4))]
    order = "<>"[data.ConsumeBool()]
    with suppress(struct.error):  # a number that does not fit its field is no file
        raw = gguf_bytes(entries, specs, order=order, version=data.ConsumeIntInRange(1, 4), with_data=False)
        return raw + bytes(data.ConsumeIntInRange(0, 4096))
    return b""


def read(raw: bytes, window: int) -> None:
    """All that is done with a header that came from outside."""
    headers = []
    for size in (len(raw), None, len(raw) + (1 << 40)):
        with suppress(GgufError):
            outcome = parse_header(raw, size)
            if isinstance(outcome, Header):
                headers.append(outcome)
            else:
                assert isinstance(outcome, NeedMore)
                assert outcome.offset + outcome.at_least > len(raw)
    with suppress(GgufError):
        steps = header_steps(len(raw))
        need = next(steps)
        with suppress(StopIteration):
            while len(piece := raw[need.offset : need.offset + max(need.at_least, window)]) >= need.at_least:
                need = steps.send(piece)
    for header in headers:
        use(header, len(raw))
        use(header, header.promised_bytes)


def use(header: Header, size_bytes: int) -> None:
    """The expert map, the price of context and the checks of split files."""
    with suppress(GgufError):
        assert kv_bytes_per_token(header.metadata) >= 0
    for settings in SETTINGS:
        with suppress(GgufError):
            kv_cache(header.metadata, settings)
    with suppress(GgufError):
        experts = expert_map((header,), (size_bytes,))
        found = layout(experts)
        assert found.expert_bytes + found.other_bytes <= max(size_bytes, header.promised_bytes)
        sum(one.length for one in expert_ranges(experts))
        sum(one.length for one in other_ranges(experts))
        if found.experts:
            expert_slices(experts, 0, found.experts - 1)
    for name in ("m.gguf", "m-00001-of-00002.gguf"):
        part = Part(name, size_bytes, header)
        for parts in ([part], [part, part]):
            sentence = wrong_part(parts)
            assert sentence is None or isinstance(sentence, str)
    part_names("m-00001-of-00002.gguf")


def one_input(raw: bytes) -> None:
    """What the fuzzer calls: the first byte chooses between the bytes themselves and a recipe."""
    if len(raw) < 2:
        return
    if raw[0] & 1:
        read(built(atheris.FuzzedDataProvider(raw[2:])), 1 + raw[1])
    else:
        read(raw[2:], 1 + raw[1])


def seeds(directory: str) -> None:
    """Whole files to begin with, where the corpus is still empty."""
    os.makedirs(directory, exist_ok=True)
    if os.listdir(directory):
        return
    files = {
        "moe": gguf_bytes(moe_metadata(), moe_tensors(1), with_data=False),
        "big": gguf_bytes(moe_metadata(), moe_tensors(1), order=">", version=2, with_data=False),
        "arrays": gguf_bytes({"names": ["a", "bc"], "flags": [True], "many": [1] * 1100, "f": 0.5, "t": "x"}),
    }
    for name, model in MODELS.items():
        files[name] = gguf_bytes({key: list(one) if isinstance(one, tuple) else one for key, one in model.items()})
    for name, raw in files.items():
        with open(os.path.join(directory, name), "wb") as file:
            file.write(b"\0\x20" + raw)


def main() -> None:
    """Seed the corpus (the first argument that is no option) and fuzz."""
    directories = [argument for argument in sys.argv[1:] if not argument.startswith("-")]
    if directories:
        seeds(directories[0])
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
