"""moetuned's stand-in for a backend: a load generator for paging, no language model.

It maps a real GGUF and touches its bytes as a Mixture-of-Experts model would, and takes llama-server's flags.

Recognised by: `python -m moetuned.simulator serve`.

Read from: its command line and its LLAMA_ARG_* variables, which are llama-server's.

Tells: what llama-server tells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from moetuned.parse import llama_arguments
from moetuned.parse.llama_arguments import describe_arguments
from moetuned.parse.python_command import module_arguments
from moetuned.schema.backend_abilities import LLAMA_SERVER, LLAMA_SETTINGS
from moetuned.schema.backend_description import BackendDescription

NAME = "simulator"
VARIABLES = llama_arguments.VARIABLES
_MODULE = "moetuned.simulator"
ABILITIES = msgspec.structs.replace(LLAMA_SERVER, saves_slots=False)
SETTINGS = LLAMA_SETTINGS


def recognise(argv: Sequence[str]) -> bool:
    """Whether it is the stand-in, serving."""
    return (module_arguments(argv, _MODULE) or ("",))[0] == "serve"


def describe(argv: Sequence[str], environ: Mapping[str, str]) -> BackendDescription:
    """What its command line and environment say."""
    return describe_arguments((module_arguments(argv, _MODULE) or ())[1:], environ)
