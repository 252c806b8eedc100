"""The server of llama.cpp, every build that takes split GGUF files.

Recognised by: a program called llama-server or llama-server-SOMETHING, in any directory; neither ik_llama.cpp's nor Ollama's.

Read from: its command line and its LLAMA_ARG_* variables. What a build knows says its --help.

Tells: /health, /slots, and /metrics where it was started with --metrics.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from moetuned.parse import llama_arguments
from moetuned.parse.llama_arguments import describe_arguments, is_ik_llama, is_llama_server
from moetuned.parse.ollama_arguments import ollama_part
from moetuned.schema.backend_abilities import LLAMA_SERVER, LLAMA_SETTINGS
from moetuned.schema.backend_description import BackendDescription

NAME = "llama-server"
VARIABLES = llama_arguments.VARIABLES
ABILITIES = LLAMA_SERVER
SETTINGS = LLAMA_SETTINGS


def recognise(argv: Sequence[str]) -> bool:
    """Whether the program is llama-server, or a build of it named so, and neither the fork's nor Ollama's."""
    return is_llama_server(argv) and not is_ik_llama(argv) and ollama_part(argv) is None


def describe(argv: Sequence[str], environ: Mapping[str, str]) -> BackendDescription:
    """What its command line and environment say."""
    return describe_arguments(argv[1:], environ)
