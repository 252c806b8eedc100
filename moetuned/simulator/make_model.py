"""`python -m moetuned.simulator make-model OUT`: write a random Mixture-of-Experts model that a real llama.cpp loads."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

from moetuned.schema.units import format_bytes, parse_bytes
from moetuned.simulator.model_file import WriteError, write_model
from moetuned.simulator.model_shape import (
    ModelShape,
    ShapeError,
    check_shape,
    default_dimensions,
    expert_slice_bytes,
    kv_bytes_per_token,
    shape_for_size,
)

_EPILOG = """\
The file is a GGUF of architecture qwen3moe with Q4_0 experts and random weights: llama.cpp loads and runs it, what it
says is noise, how it pages is real. Layers and experts are chosen for --size (within 3 %) unless they are given.

KV cache: a token of context costs layers x heads-kv x key-length x 4 bytes (keys and values in F16). A model of 1.5 GiB
gets about 17 layers, so with the defaults 17 KiB a token: 68 MiB for a context of 4096, 544 MiB for 32768. Raise
--heads-kv or --key-length to make it dearer.
"""


def make_parser() -> argparse.ArgumentParser:
    """The command's arguments."""
    parser = argparse.ArgumentParser(
        prog="python -m moetuned.simulator make-model",
        description=__doc__,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    defaults = ModelShape(layers=1, experts=4)
    add = parser.add_argument
    add("out", metavar="OUT", help="file to write; an existing one is replaced at the end")
    add("--size", default="1G", help="size of the file, e.g. 300M, 1.5G (default 1G; powers of 1024)")
    add("--layers", type=int, help="layers (default: chosen for --size)")
    add("--experts", type=int, help="experts a layer (default: chosen for --size)")
    add("--used", type=int, default=defaults.experts_used, help="experts a token uses in a layer (default %(default)s)")
    add("--embd", type=int, help="embedding length (default 1024; 256 below 64 MiB)")
    add("--ff", type=int, help="feed-forward length of an expert (default 768; 256 below 64 MiB)")
    add("--heads", type=int, default=defaults.heads, help="attention heads (default %(default)s)")
    add("--heads-kv", type=int, default=defaults.heads_kv, help="heads of the KV cache (default %(default)s)")
    add(
        "--key-length",
        type=int,
        default=defaults.key_length,
        help="length of a key and of a value (default %(default)s)",
    )
    add("--context-length", type=int, default=defaults.context_length, help="longest context (default %(default)s)")
    add("--seed", type=int, default=1, help="the same seed and sizes give the same file (default %(default)s)")
    return parser


def shape_from_arguments(arguments: argparse.Namespace) -> ModelShape:
    """The model's shape the arguments ask for. Raises ShapeError or ValueError with a message for the user."""
    size = parse_bytes(arguments.size)
    embedding, forward = default_dimensions(size)
    template = ModelShape(
        layers=1,
        experts=max(arguments.used, 1),
        experts_used=arguments.used,
        embedding=arguments.embd or embedding,
        feed_forward=arguments.ff or forward,
        heads=arguments.heads,
        heads_kv=arguments.heads_kv,
        key_length=arguments.key_length,
        context_length=arguments.context_length,
    )
    check_shape(template)
    if arguments.layers is not None and arguments.experts is not None:
        return ModelShape(**{**vars(template), "layers": arguments.layers, "experts": arguments.experts})
    return shape_for_size(size, template, layers=arguments.layers, experts=arguments.experts)


def main(argv: list[str]) -> int:
    """Run the command; 0 done, 1 the file could not be written, 2 usage."""
    parser = make_parser()
    arguments = parser.parse_args(argv)
    try:
        shape = shape_from_arguments(arguments)
        begun = time.monotonic()
        size = write_model(arguments.out, shape, arguments.seed, _progress_to(sys.stderr.isatty()))
    except ValueError as error:
        parser.error(str(error))
    except WriteError as error:
        print(f"moetuned.simulator: {error}", file=sys.stderr)
        return 1
    print(
        f"{arguments.out}: {format_bytes(size)} in {time.monotonic() - begun:.1f} s; {shape.layers} layers of"
        f" {shape.experts} experts, {shape.experts_used} used, slices of {format_bytes(expert_slice_bytes(shape))};"
        f" KV cache {kv_bytes_per_token(shape)} bytes a token"
    )
    return 0


def _progress_to(terminal: bool) -> Callable[[int, int], None]:
    shown = -1

    def show(done: int, total: int) -> None:
        nonlocal shown
        percent = done * 100 // total
        if terminal and percent != shown:
            shown = percent
            print(
                f"\r{percent:3d} % of {format_bytes(total)}",
                end="\n" if done == total else "",
                file=sys.stderr,
                flush=True,
            )

    return show


__all__ = ["ShapeError", "main", "make_parser", "shape_from_arguments"]
