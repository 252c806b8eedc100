"""Any other server: what it is and where it tells what, the config says (`generic:` of its entry).

Recognised by: the expression `process` of its entry, on the program and its arguments joined by blanks.

Read from: its entry: `url`, `context` and `model`; without a model the GGUF file that it has mapped.

Tells: what the expressions `tokens`, `prompt_tokens` and `requests` find at its metrics path.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from moetuned.schema.backend_abilities import Abilities, Dialect, SettingNames, Way
from moetuned.schema.backend_description import BackendDescription

NAME = "generic"
VARIABLES = ()
ABILITIES = Abilities(
    dialect=Dialect.GENERIC,
    context=(Way.FLAG,),
    prompt_cache=(Way.FLAG,),
    tokens="what the expression `tokens` of its entry finds",
)
SETTINGS: Mapping[str, tuple[SettingNames, ...]] = {}


def recognise(argv: Sequence[str]) -> bool:  # noqa: ARG001  only an entry of the config knows
    """Never by its command line alone."""
    return False


def describe(argv: Sequence[str], environ: Mapping[str, str]) -> BackendDescription:  # noqa: ARG001  nothing is known of them
    """Only how it answers."""
    return BackendDescription(url_unknown="say `url:` in its entry of the config", dialect=Dialect.GENERIC)
