"""ik_llama.cpp's llama-server: a fork of llama.cpp with its own flags for experts and for loading.

Recognised by: a llama-server below a directory whose name begins with ik_llama or ik-llama, or one with a flag that only this fork
has, such as --defer-experts, -fmoe or -rtr. Without either it is taken for llama-server, which reads the same from it.

Read from: its command line and its LLAMA_ARG_* variables. It knows no --load-mode, and its --no-mmap and --mlock are switches.

Tells: /health, /slots, and /metrics where it was started with --metrics.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from moetuned.parse import llama_arguments
from moetuned.parse.llama_arguments import describe_arguments, is_ik_llama
from moetuned.schema.backend_abilities import LLAMA_SERVER, LLAMA_SETTINGS, SettingNames, Way
from moetuned.schema.backend_description import BackendDescription

NAME = "ik-llama"
VARIABLES = llama_arguments.VARIABLES
ABILITIES = msgspec.structs.replace(LLAMA_SERVER, prompt_cache=(Way.FLAG,), tokens="`next_token.n_decoded` of /slots")
SETTINGS = {
    **LLAMA_SETTINGS,
    "prompt_cache_mib": (SettingNames(("-cram", "--cache-ram")),),
    "checkpoints": (SettingNames(("-ctxcp", "--ctx-checkpoints")),),
}


def recognise(argv: Sequence[str]) -> bool:
    """Whether it is a llama-server, and this fork's."""
    return is_ik_llama(argv)


def describe(argv: Sequence[str], environ: Mapping[str, str]) -> BackendDescription:
    """What its command line and environment say."""
    return describe_arguments(argv[1:], environ)
