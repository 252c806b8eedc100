"""Checks of `backends`: names, commands with their placeholders, and keys that must agree with the command."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator

from moetuned.parse.bounded_pattern import bounded_pattern
from moetuned.parse.close_match import close_match
from moetuned.parse.config_problem import Problem, any_of, key_path, shown
from moetuned.parse.config_values import duration_problem, url_port
from moetuned.parse.container_run import container_name_problem, run_problems
from moetuned.parse.numbers_http import number_pattern
from moetuned.parse.script_command import script_problems
from moetuned.schema.config import Backend, Config, Context, Mode, Profile
from moetuned.schema.relief import StepName
from moetuned.schema.supervise import SuperviseCommand, SuperviseContainer, SuperviseProcess, SuperviseUnit
from moetuned.schema.units import parse_bytes

PLACEHOLDERS = ("model", "context", "prompt_cache_mib", "slots", "checkpoints", "cache_type")
_WITH_KEY = {"prompt_cache_mib": "2048", "slots": "1", "checkpoints": "4", "cache_type": "f16"}
"""Placeholders with a key of the same name that must be set, and an example of a value."""
_CAN = {
    "prompt_cache_mib": "shrink the prompt cache",
    "slots": "take it to one slot",
    "checkpoints": "keep fewer checkpoints",
    "cache_type": "quantise the KV cache",
}
CGROUP_KEYS = ("memory_low", "memory_min", "io_weight")
"""Keys that are set for a backend's cgroup, as part of the tuning."""
_SCRIPT_SECONDS = (1.0, 3600.0)
_CGROUP_ROOT = "/sys/fs/cgroup"
# A word in single braces. Not {{…}} of chat templates, nor JSON such as {"enable_thinking": false}.
_PLACEHOLDER = re.compile(r"(?<!\{)\{([A-Za-z_][A-Za-z0-9_]*)\}(?!\})")
_CONTEXT_FLAGS = ("-c", "--ctx-size", "--contextsize", "--n_ctx")
_PORT_FLAG = "--port"
_GENERIC = "generic"

_Path = tuple[str | int, ...]


def check_backends(config: Config, known_kinds: Collection[str] | None = None) -> Iterator[Problem]:
    """All problems of all backends, errors and warnings. `known_kinds` None: kinds are not checked."""
    names: dict[str, int] = {}
    ports: dict[int, int] = {}
    services: dict[tuple[str, str], int] = {}
    for index, backend in enumerate(config.backends):
        path: _Path = ("backends", index)
        first = names.setdefault(backend.name, index)
        if first != index:
            yield _error((*path, "name"), backend.name, f"is the name of backends[{first}] too; names must differ")
        if known_kinds is not None and backend.kind is not None and backend.kind not in known_kinds:
            yield _error((*path, "kind"), backend.kind, _unknown_kind(backend.kind, sorted(known_kinds)))
        yield from _check_generic(path, backend)
        if backend.url is not None:
            yield from _check_url(path, backend.url, ports, index)
        yield from _check_context(path, backend)
        yield from _absolute((*path, "model"), backend.model)
        if backend.memory_low is not None:
            yield from _check_size((*path, "memory_low"), backend.memory_low)
        yield from _check_observed(config, path, backend)
        yield from _check_min(path, backend)
        if isinstance(backend.supervise, SuperviseProcess):
            yield from _check_process(config, (*path, "supervise"), backend, backend.supervise)
        if isinstance(backend.supervise, SuperviseContainer):
            yield from _check_container(config, (*path, "supervise"), backend, backend.supervise)
        if isinstance(backend.supervise, SuperviseCommand):
            yield from _check_script(config, (*path, "supervise"), backend, backend.supervise)
        yield from _check_service((*path, "supervise"), backend, services, index)


def _check_observed(config: Config, path: _Path, backend: Backend) -> Iterator[Problem]:
    """Settings of its cgroup are settings of the kernel, too."""
    if config.tuning.profile is not Profile.OBSERVE:
        return
    for key in CGROUP_KEYS:
        if (value := getattr(backend, key)) is not None:
            hint = "has no effect: tuning.profile is observe, which changes nothing; set profile: moe-offload or take it out"
            yield _warning((*path, key), value, hint)


def _error(path: _Path, value: object, hint: str) -> Problem:
    return Problem("", key_path(path), None if value is None else shown(value), hint)


def _warning(path: _Path, value: object, hint: str) -> Problem:
    return Problem("", key_path(path), None if value is None else shown(value), hint, severity="warning")


def _unknown_kind(kind: str, known: list[str]) -> str:
    near = close_match(kind.lower().replace("_", "-"), known)
    said = f"; did you mean {near}?" if near else ""
    return f"is no kind of backend{said} (known: {any_of(known)}; without the key it is recognised)"


def _absolute(path: _Path, value: str | None) -> Iterator[Problem]:
    if value is not None and not value.startswith("/"):
        yield _error(path, value, "must be an absolute path: the daemon's working directory is /")


def _check_size(path: _Path, size: str | int, more: str = "") -> Iterator[Problem]:
    try:
        parse_bytes(size)
    except ValueError as error:
        yield _error(path, None, f"{error}{more}")


def _check_min(path: _Path, backend: Backend) -> Iterator[Problem]:
    """What the kernel never takes it does not take last either: memory_low counts only for what it is more."""
    if backend.memory_min is None:
        return
    wrong = tuple(_check_size((*path, "memory_min"), backend.memory_min))
    yield from wrong
    if wrong or backend.memory_low is None:
        return
    try:
        adds_nothing = parse_bytes(backend.memory_low) <= parse_bytes(backend.memory_min)
    except ValueError:  # said of memory_low
        return
    if adds_nothing:
        hint = f"is not more than memory_min ({backend.memory_min}), so it protects nothing beyond that"
        yield _warning((*path, "memory_low"), backend.memory_low, hint)


def _check_url(path: _Path, url: str, ports: dict[int, int], index: int) -> Iterator[Problem]:
    port = url_port(url)
    if not 1 <= port <= 65535:
        yield _error((*path, "url"), url, "its port must be between 1 and 65535")
        return
    first = ports.setdefault(port, index)
    if first != index:
        yield _error((*path, "url"), url, f"has the port of backends[{first}] too; every backend needs its own")


def _check_service(
    path: _Path, backend: Backend, services: dict[tuple[str, str], int], index: int
) -> Iterator[Problem]:
    """Two entries for one unit or container would both restart it."""
    match backend.supervise:
        case SuperviseUnit(unit=name):
            key, kind = "unit", "systemd"
        case SuperviseContainer(container=name, engine=engine):
            key, kind = "container", str(engine)
        case _:
            return
    first = services.setdefault((kind, name), index)
    if first != index:
        yield _error((*path, key), name, f"is the {key} of backends[{first}] too; each runs one backend")


def _check_generic(path: _Path, backend: Backend) -> Iterator[Problem]:
    """Kind generic and its key belong together; every expression is one that cannot run away."""
    generic = backend.generic
    if generic is None:
        if backend.kind == _GENERIC:
            yield _error((*path, "generic"), None, "is missing: kind generic needs to know its process")
        return
    if backend.kind != _GENERIC:
        yield _error((*path, "generic"), None, "is only for kind: generic")
    if backend.url is None:
        yield _warning((*path, "url"), None, "is not set, so it is not asked over HTTP and only its process is watched")
    checks: dict[str, Callable[[str], object]] = {"process": bounded_pattern}
    checks |= dict.fromkeys(("tokens", "prompt_tokens", "requests"), number_pattern)
    for key, compiled in checks.items():
        text = getattr(generic, key)
        try:
            if text is not None:
                compiled(text)
        except ValueError as error:
            yield _error((*path, "generic", key), text, str(error))


def _check_context(path: _Path, backend: Backend) -> Iterator[Problem]:
    context = backend.context
    if context.minimum > context.preferred:
        hint = f"must not be more than context.preferred ({context.preferred})"
        yield _error((*path, "context", "minimum"), context.minimum, hint)


def _check_process(config: Config, path: _Path, backend: Backend, process: SuperviseProcess) -> Iterator[Problem]:
    yield from _check_program((*path, "command", 0), process.command[0])
    yield from _check_words_of(config, (*path, "command"), backend, process.command)
    yield from _absolute((*path, "directory"), process.directory)
    yield from _absolute((*path, "log"), process.log)
    if process.cgroup is not None:
        yield from _check_cgroup((*path, "cgroup"), process.cgroup)
    for key in ("memlock", "core"):
        size = getattr(process.limits, key)
        if size is not None and size != "unlimited":
            yield from _check_size((*path, "limits", key), size, " or unlimited")
    for name in process.environment:
        if not name or "=" in name or "\0" in name:
            yield _error((*path, "environment"), name, "is no name of an environment variable")
    port = flag_value(process.command, (_PORT_FLAG,))
    if port is not None and backend.url is not None and port.isdecimal() and int(port) != url_port(backend.url):
        url_key = key_path((*path[:-1], "url"))
        yield _error((*path, "command"), f"{_PORT_FLAG} {port}", f"is not the port of {url_key} ({backend.url})")


def _check_container(config: Config, path: _Path, backend: Backend, container: SuperviseContainer) -> Iterator[Problem]:
    problem = container_name_problem(container.container)
    if problem is not None:
        yield _error((*path, "container"), container.container, problem)
    for problem in run_problems(container.run):
        yield _error((*path, "run"), None, problem)
    yield from _check_words_of(config, (*path, "run"), backend, container.run)


def _check_script(config: Config, path: _Path, backend: Backend, script: SuperviseCommand) -> Iterator[Problem]:
    for problem in script_problems(script.restart):
        yield _error((*path, "restart"), None, problem)
    if (wrong := duration_problem(script.timeout, _SCRIPT_SECONDS)) is not None:
        yield _error((*path, "timeout"), *wrong)
    used = _placeholders(script.restart)
    yield from _check_unknown((*path, "restart"), script.restart)
    yield from _check_placeholders((*path, "restart"), backend, used)
    yield from _check_relief(config, (*path, "restart"), backend, script.restart, used)


def _check_program(path: _Path, program: str) -> Iterator[Problem]:
    if not program.strip():
        yield _error(path, program, "must name a program")
    elif " -" in program:
        yield _error(path, program, "holds more than the program; write every word as its own item")
    elif "/" in program and not program.startswith("/"):
        yield _error(path, program, "must be a plain name or an absolute path")


def _check_words_of(config: Config, path: _Path, backend: Backend, words: list[str]) -> Iterator[Problem]:
    used = _placeholders(words)
    for index, argument in enumerate(words):
        if argument.startswith("-") and re.match(r"--?[a-zA-Z][\w-]* \S", argument):
            hint = "is one argument with a blank in it; write flag and value as two items"
            yield _warning((*path, index), argument, hint)
    if backend.model is not None and "model" not in used and not any(backend.model in word for word in words):
        yield _warning(path, None, "does not use {model}, so the backend may load another file than model")
    yield from _check_unknown(path, words)
    yield from _check_placeholders(path, backend, used)
    yield from _check_relief(config, path, backend, words, used)


def _placeholders(words: list[str]) -> set[str]:
    return {name for argument in words for name in _PLACEHOLDER.findall(argument)}


def _check_unknown(path: _Path, words: list[str]) -> Iterator[Problem]:
    for name in sorted(_placeholders(words).difference(PLACEHOLDERS)):
        near = close_match(name.lower(), PLACEHOLDERS, 0.5)
        hint = f"did you mean {{{near}}}?" if near else f"known: {', '.join(f'{{{one}}}' for one in PLACEHOLDERS)}"
        if any(f"${{{name}}}" in word for word in words):
            hint += " (no shell reads the command, so variables are not replaced: write the value)"
        yield _error(path, f"{{{name}}}", f"is no placeholder; {hint}")


def _check_placeholders(path: _Path, backend: Backend, used: set[str]) -> Iterator[Problem]:
    if "model" in used and backend.model is None:
        yield _error(path, "{model}", f"is used, but {key_path((*path[:-2], 'model'))} is not set")
    for name, example in _WITH_KEY.items():
        value, key = getattr(backend, name), (*path[:-2], name)
        if name in used and value is None:
            hint = f"is used, but {key_path(key)} is not set; write e.g. {example}"
            yield _error(path, f"{{{name}}}", hint)
        if value is not None and name not in used:
            yield _warning(key, value, f"has no effect: {path[-1]} does not use {{{name}}}")


def _check_relief(config: Config, path: _Path, backend: Backend, words: list[str], used: set[str]) -> Iterator[Problem]:
    """`relief.mode: act` promises a shorter context; without {context} the promise could not be kept.

    Both escapes are explicit: relief may observe, or the context's minimum may equal its preferred length.
    """
    if StepName.QUANTISE_KV_CACHE in config.relief.steps and "cache_type" not in used:
        hint = "has no {cache_type}, so relief cannot quantise its KV cache"
        yield _warning(path, None, hint)
    if "context" in used or backend.context.minimum == backend.context.preferred:
        return
    if StepName.SHORTER_CONTEXT not in config.relief.steps:
        return
    fixed = flag_value(words, _CONTEXT_FLAGS)
    add = 'add "{context}"' if isinstance(backend.supervise, SuperviseCommand) else 'add -c and "{context}"'
    cure = add if fixed is None else f"write {{context}} in place of {fixed}"
    if config.relief.mode is not Mode.ACT:
        if backend.context != Context():
            yield _warning(path, None, f"has no {{context}}, so context.preferred has no effect; {cure}")
    elif used & set(_WITH_KEY):
        able = [_CAN[name] for name in _WITH_KEY if name in used]
        yield _warning(path, None, f"has no {{context}}: relief can only {' and '.join(able)}; {cure}")
    else:
        hint = f"has no {{context}}, but relief.mode is act and a restart could not free anything; {cure}"
        yield _error(path, None, f"{hint}, or set context.minimum to context.preferred")


def _check_cgroup(path: _Path, cgroup: str) -> Iterator[Problem]:
    parts = cgroup.split("/")
    if not cgroup.startswith(_CGROUP_ROOT + "/") or not cgroup.removeprefix(_CGROUP_ROOT).strip("/"):
        yield _error(path, cgroup, f"must be a directory below {_CGROUP_ROOT}, e.g. {_CGROUP_ROOT}/llm.slice")
    elif ".." in parts or "." in parts:
        yield _error(path, cgroup, "must not hold . or ..")


def flag_value(command: list[str], flags: tuple[str, ...]) -> str | None:
    """The value of the last of `flags` in a command line ("--port 1" or "--port=1"); None when there is none."""
    value: str | None = None
    for index, word in enumerate(command):
        if word in flags and index + 1 < len(command):
            value = command[index + 1]
        for flag in flags:
            if flag.startswith("--") and word.startswith(flag + "="):
                value = word[len(flag) + 1 :]
    return value
