"""The server of the Python package llama-cpp-python.

Recognised by: `python -m llama_cpp.server`.

Read from: its command line and the variables of its settings, e.g. N_CTX; HOST and PORT go before the flags. With a config file only
those two count: the model is then found as it is mapped, and the context is unknown.

Tells: that it listens, which it does once its model is loaded. It has no path that tells of requests or tokens, so what it does is
unknown, and thrashing is told from what its process reads. /v1/models is never asked: that would cut off a running answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from moetuned.parse import llama_python_arguments
from moetuned.parse.llama_python_arguments import describe_llama_python
from moetuned.parse.python_command import module_arguments
from moetuned.schema.backend_abilities import Abilities, Dialect, SettingNames, Way
from moetuned.schema.backend_description import BackendDescription

NAME = "llama-cpp-python"
VARIABLES = llama_python_arguments.VARIABLES
_MODULE = "llama_cpp.server"
_BOTH = (Way.FLAG, Way.VARIABLE)
ABILITIES = Abilities(dialect=Dialect.LLAMA_PYTHON, context=_BOTH, cache_types=_BOTH, prompt_cache=_BOTH)
SETTINGS = {"context": (SettingNames(("--n_ctx",), "N_CTX"),)}


def recognise(argv: Sequence[str]) -> bool:
    """Whether Python runs this server."""
    return module_arguments(argv, _MODULE) is not None


def describe(argv: Sequence[str], environ: Mapping[str, str]) -> BackendDescription:
    """What its command line and environment say."""
    return describe_llama_python(module_arguments(argv, _MODULE) or (), environ)
