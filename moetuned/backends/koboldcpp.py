"""KoboldCpp.

Recognised by: a program called koboldcpp or koboldcpp-SOMETHING, or Python with koboldcpp.py. The single-file program runs as two
processes; the inner one is the backend.

Read from: its command line. With --config only its HTTP tells the context, and its address must be said (`url:`). It maps its model
only with --usemmap; without, the whole model is private memory.

Tells: /api/extra/perf whether it works on a request and how many wait, not whether on the prompt or the answer; its counts of tokens are
those of the last request. It listens once its model is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from moetuned.parse.kobold_arguments import describe_kobold
from moetuned.parse.python_command import script_arguments
from moetuned.schema.backend_abilities import Abilities, Dialect, SettingNames, Way
from moetuned.schema.backend_description import BackendDescription

NAME = "koboldcpp"
VARIABLES = ()
_SCRIPT = "koboldcpp.py"
ABILITIES = Abilities(
    dialect=Dialect.KOBOLD, context=(Way.FLAG,), cache_types=(Way.FLAG,), child_holds_model=True,
)  # fmt: skip
SETTINGS = {"context": (SettingNames(("--contextsize", "--ctx-size", "-c")),)}


def recognise(argv: Sequence[str]) -> bool:
    """Whether it is the program, or the script."""
    return _arguments(argv) is not None


def describe(argv: Sequence[str], environ: Mapping[str, str]) -> BackendDescription:  # noqa: ARG001  it has no variables
    """What its command line says."""
    return describe_kobold(_arguments(argv) or ())


def _arguments(argv: Sequence[str]) -> Sequence[str] | None:
    program = argv[0].rpartition("/")[2] if argv else ""
    if program in (NAME, _SCRIPT) or program.startswith(NAME + "-"):
        return argv[1:]
    return script_arguments(argv, _SCRIPT)
