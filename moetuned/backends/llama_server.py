"""llama-server of llama.cpp (also of ik_llama.cpp): the program of that name, whatever its directory.

Its model, context length, slots, KV and prompt cache and address are read from its command line and LLAMA_ARG_* variables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from moetuned.parse.llama_arguments import describe_arguments
from moetuned.schema.backend_description import BackendDescription

NAME = "llama-server"


def recognise(argv: Sequence[str]) -> bool:
    """Whether the program is llama-server, or a build of it named llama-server-SOMETHING."""
    program = argv[0].rpartition("/")[2] if argv else ""
    return program == NAME or program.startswith(NAME + "-")


def describe(argv: Sequence[str], environ: Mapping[str, str]) -> BackendDescription:
    """What its command line and environment say."""
    return describe_arguments(argv[1:], environ)
