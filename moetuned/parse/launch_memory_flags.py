"""What of a llama.cpp server's command line decides how its weights lie in memory: repacked, copied, locked, on a GPU.

Spellings of `--load-mode` builds and of older ones (common/arg.cpp). The last of equal flags counts, and the command line beats
`LLAMA_ARG_*`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

LOAD_MODE_FLAGS = ("-lm", "--load-mode")
LOCK_FLAG, NO_MAP_FLAG = "--mlock", "--no-mmap"
NO_REPACK_FLAGS = ("--no-repack", "-nr")
_GPU_FLAGS = ("-ngl", "--gpu-layers", "--n-gpu-layers")
_LOCKING, _COPYING = ("mlock", "mmap+mlock"), ("none", "dio", "mlock")
_FALSE = ("off", "disabled", "false", "0")


class MemoryFlags(msgspec.Struct, frozen=True):
    """`repacks`: weights are copied where the CPU wants them in another order; `copies`: all are, not mapped; `locks`: mlock(2).

    `gpu`: layers may be on a GPU.
    """

    repacks: bool = True
    copies: bool = False
    locks: bool = False
    gpu: bool = False


def memory_flags(arguments: Sequence[str], environ: Mapping[str, str]) -> MemoryFlags:
    """What `arguments` (without the program) and `environ` say."""
    repacks = environ.get("LLAMA_ARG_REPACK", "on") not in _FALSE and "LLAMA_ARG_NO_REPACK" not in environ
    mode = environ.get("LLAMA_ARG_LOAD_MODE", "")
    layers = environ.get("LLAMA_ARG_N_GPU_LAYERS", "0")
    locks = copies = False
    for index, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if not equals:
            value = arguments[index + 1] if index + 1 < len(arguments) else ""
        if name in NO_REPACK_FLAGS or name == "--repack":
            repacks = name == "--repack"
        elif name in LOAD_MODE_FLAGS:
            mode = value
        elif name in _GPU_FLAGS:
            layers = value
        locks = locks or name == LOCK_FLAG
        copies = copies or name == NO_MAP_FLAG
    return MemoryFlags(repacks, copies or mode in _COPYING, locks or mode in _LOCKING, layers not in ("0", ""))


def mapped_only(command: Sequence[str]) -> list[str]:
    """The command with its weights mapped, neither locked nor copied."""
    found: list[str] = []
    for argument in command:
        name, equals, _ = argument.partition("=")
        if argument in (LOCK_FLAG, NO_MAP_FLAG):
            continue
        if found and found[-1] in LOAD_MODE_FLAGS:
            found.append("mmap")
        else:
            found.append(f"{name}=mmap" if equals and name in LOAD_MODE_FLAGS else argument)
    return found
