"""Ollama. The process that holds a model is the backend: it begins with the model and ends some minutes after the last request.

Recognised by: `ollama serve`; its runner (`ollama runner --model …`, before 0.5 `ollama_llama_server`); since 0.30 the llama-server
below its directory lib/ollama. While a runner runs, `ollama serve` itself is not shown.

Read from: the runner's command line, and the variables OLLAMA_CONTEXT_LENGTH, OLLAMA_NUM_PARALLEL and OLLAMA_KV_CACHE_TYPE. The model
is the GGUF blob. Newer runners are told their context over HTTP: it is then that of the variable, which the settings of a model and a
request may override. In an entry of the config, `url:` is the address of `ollama serve` (OLLAMA_HOST).

Tells: a runner whether it loads or is ready; `ollama serve` which models are loaded; its llama-server what llama.cpp's tells at /slots.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from moetuned.parse import ollama_arguments
from moetuned.parse.ollama_arguments import describe_ollama, ollama_part
from moetuned.schema.backend_abilities import Abilities, Dialect, SettingNames, Way
from moetuned.schema.backend_description import BackendDescription

NAME = "ollama"
VARIABLES = ollama_arguments.VARIABLES
ABILITIES = Abilities(
    dialect=Dialect.OLLAMA,
    context=(Way.VARIABLE, Way.API),
    slots=(Way.VARIABLE,),
    cache_types=(Way.VARIABLE,),
    prompt_cache=(Way.VARIABLE,),
    tokens="with its llama-server: `next_token.n_decoded` of /slots",
    child_holds_model=True,
)
SETTINGS = {
    "context": (SettingNames(variable="OLLAMA_CONTEXT_LENGTH", each_slot=True),),
    "slots": (SettingNames(variable="OLLAMA_NUM_PARALLEL"),),
    "cache_type": (SettingNames(variable="OLLAMA_KV_CACHE_TYPE"),),
    "prompt_cache_mib": (SettingNames(variable="LLAMA_ARG_CACHE_RAM"),),
}


def recognise(argv: Sequence[str]) -> bool:
    """Whether it is one of Ollama's processes that serve or hold a model."""
    return ollama_part(argv) is not None


def describe(argv: Sequence[str], environ: Mapping[str, str]) -> BackendDescription:
    """What its command line and environment say."""
    return describe_ollama(argv, environ)
