"""Asks the user's own llama.cpp what a plan costs: `llama-fit-params` allocates nothing and needs only a model's header."""

from __future__ import annotations

import os
import tempfile

from moetuned.host.backend_flags import ask_flags, run_briefly
from moetuned.host.model_outline import ModelOutline
from moetuned.parse.fit_params import parse_fit_params
from moetuned.schema.estimate import Exact, LaunchPlan

PROGRAM = "llama-fit-params"
_SECONDS = 60.0
_OUTPUT_BYTES = 1 << 20
_MIB = 1 << 20
_END_CHARACTERS = 300


def ask_exact(program: str | None, outline: ModelOutline, plan: LaunchPlan) -> Exact:
    """Bytes as the program reports them. A model that is not wholly here is shown to it as a sparse file of its header.

    Never raises.
    """
    if program is None:
        return Exact(unknown=f"there is no {PROGRAM} beside the backend or on PATH")
    if outline.whole:
        return _ask(program, outline.paths[0], plan)
    try:
        with tempfile.TemporaryDirectory(prefix="moetuned-") as directory:
            return _ask(program, _stubs(directory, outline), plan)
    except OSError as error:
        return Exact(unknown=f"no sparse copy of the header could be made in {tempfile.gettempdir()}: {error.strerror}")


def _stubs(directory: str, outline: ModelOutline) -> str:
    """Sparse files of the headers; the path of the first."""
    count = len(outline.paths)
    names = [f"model-{number:05}-of-{count:05}.gguf" for number in range(1, count + 1)] if count > 1 else ["model.gguf"]
    for name, path, header, size in zip(names, outline.paths, outline.headers, outline.part_bytes, strict=True):
        with open(path, "rb") as source, open(os.path.join(directory, name), "xb") as stub:
            stub.write(source.read(header.data_offset))
            stub.truncate(size)
    return os.path.join(directory, names[0])


def _ask(program: str, model: str, plan: LaunchPlan) -> Exact:
    known = ask_flags(program).known
    arguments = [program, "-m", model, "-c", str(plan.context_length), "-np", str(plan.slots)]
    arguments += ["-ub", str(plan.ubatch_tokens), "-b", str(max(2048, plan.ubatch_tokens)), "-fitp", "on"]
    arguments += ["-ctk", plan.cache_type_k, "-ctv", plan.cache_type_v]
    if plan.gpu_layers is not None:
        arguments += ["-ngl", str(plan.gpu_layers), "-ncmoe", str(plan.cpu_moe_layers or 0)]
    if not plan.repack and (known is None or known.knows("--no-repack")):
        arguments.append("--no-repack")
    if known is not None and not known.knows("-fitp"):
        return Exact(unknown=f"{program} has no --fit-print")
    text, problem = run_briefly(arguments, _SECONDS, _OUTPUT_BYTES)
    found = parse_fit_params(text)
    if found is None:
        said = f"; it ended with: {_end(text)}" if text.strip() else " and said nothing"
        return Exact(unknown=problem or f"{program} gave no figures{said}")
    return Exact(
        model_bytes=found.model_mib * _MIB,
        context_bytes=found.context_mib * _MIB,
        compute_bytes=found.compute_mib * _MIB,
        source=f"{program}, in whole MiB",
    )


def _end(text: str) -> str:
    return " ".join(text.split())[-_END_CHARACTERS:]
