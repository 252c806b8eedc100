"""The llama.cpp of the Python package xllamacpp: the real one without a compiler.

Recognised by: `python -m moetuned.xllamacpp_server`.

Read from: its command line and its LLAMA_ARG_* variables, which are llama-server's.

Tells: what llama-server tells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from moetuned.parse import llama_arguments
from moetuned.parse.llama_arguments import describe_arguments
from moetuned.parse.python_command import module_arguments
from moetuned.schema.backend_abilities import LLAMA_SERVER, LLAMA_SETTINGS
from moetuned.schema.backend_description import BackendDescription

NAME = "xllamacpp"
VARIABLES = llama_arguments.VARIABLES
_MODULE = "moetuned.xllamacpp_server"
ABILITIES = LLAMA_SERVER
SETTINGS = LLAMA_SETTINGS


def recognise(argv: Sequence[str]) -> bool:
    """Whether Python runs this launcher."""
    return module_arguments(argv, _MODULE) is not None


def describe(argv: Sequence[str], environ: Mapping[str, str]) -> BackendDescription:
    """What its command line and environment say."""
    return describe_arguments(module_arguments(argv, _MODULE) or (), environ)
