"""moetuned's stand-in for a backend: `python -m moetuned.simulator serve …`, a load generator for paging.

It maps a real GGUF and touches its bytes as a Mixture-of-Experts model would, and takes llama-server's flags.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from moetuned.parse.llama_arguments import describe_arguments
from moetuned.parse.python_command import module_arguments
from moetuned.schema.backend_description import BackendDescription

NAME = "simulator"
_MODULE = "moetuned.simulator"


def recognise(argv: Sequence[str]) -> bool:
    """Whether it is the stand-in, serving."""
    return (module_arguments(argv, _MODULE) or ("",))[0] == "serve"


def describe(argv: Sequence[str], environ: Mapping[str, str]) -> BackendDescription:
    """What its command line and environment say."""
    return describe_arguments((module_arguments(argv, _MODULE) or ())[1:], environ)
