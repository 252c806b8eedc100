"""llama.cpp's server out of the Python package xllamacpp: `python -m moetuned.xllamacpp_server …`.

The real llama.cpp without a compiler; it takes llama-server's flags.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from moetuned.parse.llama_arguments import describe_arguments
from moetuned.parse.python_command import module_arguments
from moetuned.schema.backend_description import BackendDescription

NAME = "xllamacpp"
_MODULE = "moetuned.xllamacpp_server"


def recognise(argv: Sequence[str]) -> bool:
    """Whether Python runs this launcher."""
    return module_arguments(argv, _MODULE) is not None


def describe(argv: Sequence[str], environ: Mapping[str, str]) -> BackendDescription:
    """What its command line and environment say."""
    return describe_arguments(module_arguments(argv, _MODULE) or (), environ)
