"""How a unit of systemd gets what a restart may change from a file that moetuned writes: a drop-in for it, or why there can be none.

The drop-in reads `/run/moetuned/backends/NAME.env`. What the command says gets a variable in its place, with the value of now as its
default; what it does not say is given by the server's own variable. Without that file, or without moetuned, the unit starts
as it did. EnvironmentFile= goes before Environment=, later files before earlier ones (systemd.exec(5)), and a server's command line
before its variables. The section [X-Moetuned], which systemd passes over, says which variable sets what; a unit whose owner wrote that
section and the EnvironmentFile= needs no drop-in.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import msgspec

from moetuned.decide.unit_command import (
    CommandError,
    UnitCommand,
    Value,
    environment_of,
    find_value,
    read_command,
    uncertain_words,
    with_variables,
)
from moetuned.decide.unit_container import engine_of_unit, instead
from moetuned.parse.exec_words import variables_in
from moetuned.parse.persisted_file import with_header
from moetuned.parse.unit_file import OWN_SECTION, ServiceText, UnitFile, merge_service, reading_order_with
from moetuned.schema.backend_abilities import SettingNames
from moetuned.schema.persisted import LeftOut

VALUES = ("context", "prompt_cache_mib", "slots", "checkpoints", "cache_type")
DROP_IN = "zz-moetuned.conf"
"""Read after `override.conf`, which `systemctl edit` writes and which often sets ExecStart= anew."""
_PREFIX = "MOETUNED_"
_MADE_DIRECTORY = "made_directory"
_NAME = re.compile(r"[A-Z][A-Z0-9_]{0,63}")
_NUMBER = re.compile(r"-?[0-9]{1,9}")
_CACHE_TYPE = re.compile(r"[a-z][a-z0-9_]{0,15}")
_FLASH = ("-fa", "--flash-attn")
_FLASH_VARIABLE = "LLAMA_ARG_FLASH_ATTN"
_FLASH_GOOD = frozenset({"on", "auto", "1", "enabled", "true", "-1"})
_BY_HAND = (
    "give it `EnvironmentFile=-{file}` by hand, use ${{MOETUNED_CONTEXT}} where its context is said, and add a section [X-Moetuned] with "
    "the line context=MOETUNED_CONTEXT"
)


class AdoptionError(ValueError):
    """A unit that cannot be adopted; the text is one sentence that says what to do."""


class Setting(msgspec.Struct, frozen=True):
    """One thing that a restart will be able to change: the variables that give it, what each is now (None: not said), and how, in words."""

    name: str
    variables: tuple[str, ...]
    now: tuple[str | None, ...]
    how: str


class Adoption(msgspec.Struct, frozen=True):
    """`text`: of the drop-in at `path`; None: the unit has all of it already, written by its owner."""

    path: str
    text: str | None
    settings: tuple[Setting, ...]
    left_out: tuple[LeftOut, ...]


class Kind(msgspec.Struct, frozen=True):
    """What of a kind of backend counts here."""

    name: str
    settings: Mapping[str, tuple[SettingNames, ...]]


def is_value(name: str, text: str) -> bool:
    """Whether `text` can be a value of the setting `name`: a whole number, or the name of a cache type."""
    return (_CACHE_TYPE if name == "cache_type" else _NUMBER).fullmatch(text) is not None


def environment_path(name: str, directory: str) -> str:
    """The file that the unit of the backend called `name` reads."""
    return f"{directory}/{name}.env"


def undo_words(unit: str) -> str:
    """What moetunectl is told to take the drop-in away."""
    return f"backend adopt --undo {unit}"


def drop_in_path(unit: str) -> str:
    """Where the drop-in of a unit lies."""
    return f"/etc/systemd/system/{unit}.d/{DROP_IN}"


def plan_adoption(
    unit: str,
    name: str,
    files: Sequence[UnitFile],
    find: Callable[[Sequence[str]], Kind | None],
    directory: str,
    read_now: Sequence[str] = (),
    *,
    files_say: Mapping[str, str] = MappingProxyType({}),
    makes_directory: bool = False,
) -> Adoption:
    """The drop-in for `unit`, whose files in the order they are read are `files`, as the backend `name`. Raises AdoptionError.

    A drop-in of moetuned's own among them is passed over. `find` tells the kind of a command line; `directory` holds the files of
    variables, `read_now` are the files of variables that systemd reads for it now, and `files_say` what those of its owner say, as far as
    that may be read. `makes_directory`: that of the drop-in does not exist, and goes again when it is taken away.
    """
    path, environment = drop_in_path(unit), environment_path(name, directory)
    own = [file for file in files if file.path != path]
    service = merge_service(own)
    by_hand = _BY_HAND.format(file=environment)
    if engine := _engine_of(service):
        raise AdoptionError(instead(unit, engine))
    try:
        if len(own) == len(files) and service.own and environment in read_now:
            return _by_its_owner(unit, path, environment, service, read_now, files_say)
        command = read_command(service)
        kind = find(command.argv)
        if kind is None or not kind.settings:
            raise AdoptionError(f"{unit} runs {command.argv[0]}, which moetuned does not know how to set: {by_hand}")
        if unsure := uncertain_words(command):
            raise AdoptionError(
                f"the command of {unit} has words that may be flags ({', '.join(unsure)}): write them out there, or {by_hand}"
            )
        settings, left_out, places = _settings(command, {**environment_of(service), **files_say}, service, kind)
    except CommandError as error:
        raise AdoptionError(f"{unit} {error}: {by_hand}") from error
    if not settings:
        why = "; ".join(f"{each.name}: {each.reason}" for each in left_out)
        raise AdoptionError(f"nothing of {unit} can be set from outside ({why}): {by_hand}")
    new = with_variables(command, places) if places else None
    text = with_header(_drop_in(environment, settings, places, new, makes_directory=makes_directory), undo_words(unit))
    _check_order(own, UnitFile(path, text), environment, new)
    return Adoption(path, text, settings, left_out)


def _engine_of(service: ServiceText) -> str | None:
    try:
        return engine_of_unit(read_command(service).argv, service.type)
    except CommandError:
        return None


def _by_its_owner(
    unit: str,
    path: str,
    environment: str,
    service: ServiceText,
    read_now: Sequence[str],
    files_say: Mapping[str, str],
) -> Adoption:
    found = set_by(service, environment, read_now)
    left_out = tuple(LeftOut(name, reason) for name, reason in found.unusable)
    if not found.variables:
        raise AdoptionError(f"{unit} reads {environment}, but nothing in it sets anything by a variable of that file")
    said = {**environment_of(service), **files_say}
    settings = tuple(
        Setting(name, variables, tuple(map(said.get, variables)), f"its owner gave it {' and '.join(variables)}")
        for name, variables in found.variables.items()
    )
    return Adoption(path, None, settings, left_out)


def _settings(
    command: UnitCommand, environment: Mapping[str, str | None], service: ServiceText, kind: Kind
) -> tuple[tuple[Setting, ...], tuple[LeftOut, ...], list[tuple[Value, str]]]:
    settings: list[Setting] = []
    left_out: list[LeftOut] = []
    places: list[tuple[Value, str]] = []
    for name in VALUES:
        found = _one(name, kind, command, environment, service)
        if isinstance(found, LeftOut):
            left_out.append(found)
        else:
            settings.append(found[0])
            places += found[1]
    return tuple(settings), tuple(left_out), places


def _one(
    name: str, kind: Kind, command: UnitCommand, environment: Mapping[str, str | None], service: ServiceText
) -> LeftOut | tuple[Setting, list[tuple[Value, str]]]:
    names = kind.settings.get(name, ())
    if not names:
        return LeftOut(name, f"{kind.name} takes none from outside")
    if (reason := _hindrance(name, kind, command, environment)) is not None:
        return LeftOut(name, reason)
    variables: list[str] = []
    now: list[str | None] = []
    how: list[str] = []
    places: list[tuple[Value, str]] = []
    for number, each in enumerate(names):
        value = find_value(command, each.flags) if each.flags else None
        if value is None:
            if each.variable is None:
                return LeftOut(
                    name, f"its command does not say it ({each.flags[0]}), and {kind.name} has no variable for it"
                )
            variables.append(each.variable)
            now.append(environment.get(each.variable))
            how.append(f"by the variable {each.variable}")
        elif value.variable is not None and _NAME.fullmatch(value.variable):
            variables.append(value.variable)
            now.append(environment.get(value.variable))
            how.append(f"its command takes it from {value.variable}")
        elif value.text is None or not is_value(name, value.text):
            return LeftOut(name, "what its command says for it is no plain value")
        else:
            suffix = ("_K", "_V")[number] if len(names) > 1 else ""
            variables.append(f"{_PREFIX}{name.upper()}{suffix}")
            now.append(value.text)
            how.append(f"on its command, by {variables[-1]}")
            places.append((value, variables[-1]))
    if taken_away := [variable for variable in variables if variable in _unset(service)]:
        return LeftOut(name, f"UnsetEnvironment= takes {taken_away[0]} away")
    return Setting(name, tuple(variables), tuple(now), "; ".join(how)), places


def _hindrance(name: str, kind: Kind, command: UnitCommand, environment: Mapping[str, str | None]) -> str | None:
    """Why it should not be set although it could be."""
    first = kind.settings[name][0]
    slots = kind.settings.get("slots", ())
    if first.each_slot and slots and slots[0].variable is not None:
        slots_now = environment.get(slots[0].variable, "1")
        if slots_now != "1":
            return f"{first.variable} is of each slot, and {slots[0].variable} is {slots_now or 'not known'}"
    if name == "cache_type" and len(kind.settings[name]) > 1:
        flash = find_value(command, _FLASH)
        said = environment.get(_FLASH_VARIABLE) if flash is None else flash.text
        if said not in _FLASH_GOOD:
            return "its command does not say that flash attention is on (-fa on), without which a V cache cannot be quantised"
    if name == "context" and any(find_value(command, (flag,)) for flag in ("--config", "--config_file")):
        return "its config file says it"
    return None


def _unset(service: ServiceText) -> frozenset[str]:
    return frozenset(word.partition("=")[0] for _, value in service.unset for word in value.split())


def _drop_in(
    environment: str,
    settings: Sequence[Setting],
    places: Sequence[tuple[Value, str]],
    command: str | None,
    *,
    makes_directory: bool,
) -> str:
    lines = ["[Service]"]
    if command is not None:
        defaults = " ".join(f"{variable}={value.text}" for value, variable in places)
        lines += ["# What its command said. The file below goes before; where it is not there, this counts."]
        lines += [f"Environment={defaults}"]
    lines += [f"EnvironmentFile=-{environment}"]
    if command is not None:
        lines += ["ExecStart=", f"ExecStart={command}"]
    lines += ["", f"[{OWN_SECTION}]", "# For moetuned; systemd passes it over."]
    lines += [f"{each.name}={' '.join(each.variables)}" for each in settings]
    if makes_directory:
        lines += [f"{_MADE_DIRECTORY}=yes"]
    return "".join(f"{line}\n" for line in lines)


def made_directory(text: str) -> bool:
    """Whether the directory of a drop-in was made for it."""
    return (_MADE_DIRECTORY, "yes") in merge_service([UnitFile("", text)]).own


def _check_order(own: Sequence[UnitFile], drop_in: UnitFile, environment: str, command: str | None) -> None:
    """Raises AdoptionError where a file that is read after the drop-in would undo what it says."""
    texts = {file.path: file for file in (*own, drop_in)}
    first = [file.path for file in own if not _is_drop_in(file.path)]
    order = reading_order_with([file.path for file in own if _is_drop_in(file.path)], drop_in.path)
    after = merge_service([texts[path] for path in (*first, *order)])
    if command is not None and [text for _, text in after.commands] != [command]:
        raise AdoptionError(
            f"{after.commands[-1][0]} is read after {DROP_IN} and says ExecStart=: give it a name before z"
        )
    if not after.environment_files or after.environment_files[-1] != (drop_in.path, f"-{environment}"):
        where = after.environment_files[-1][0] if after.environment_files else order[-1]
        raise AdoptionError(f"{where} is read after {DROP_IN} and says EnvironmentFile=: give it a name before z")


def _is_drop_in(path: str) -> bool:
    return path.rpartition("/")[0].endswith(".d")


class SetBy(msgspec.Struct, frozen=True):
    """Which variables give which of `VALUES`, and what is said to be given and cannot be, with the reason."""

    variables: dict[str, tuple[str, ...]]
    unusable: tuple[tuple[str, str], ...] = ()


def set_by(service: ServiceText, environment: str, read_now: Sequence[str]) -> SetBy:
    """What a restart can change of a unit as it is now by the file `environment`; nothing where that is not the last of `read_now`, the
    files of variables that systemd reads for it.

    A variable of moetuned's own counts only where the command has it; another one only where nothing takes it away.
    """
    if not read_now or read_now[-1] != environment:
        return SetBy({})
    used = _variables_of_commands(service)
    found: dict[str, tuple[str, ...]] = {}
    unusable: list[tuple[str, str]] = []
    for name, text in service.own:
        if name not in VALUES:
            continue
        variables = tuple(text.split())
        if not variables or not all(_NAME.fullmatch(variable) for variable in variables):
            unusable.append((name, f"[{OWN_SECTION}] says no variable for it"))
        elif idle := [each for each in variables if each.startswith(_PREFIX) and each not in used]:
            unusable.append((name, f"its command has no ${{{idle[0]}}}"))
        elif gone := [each for each in variables if each in _unset(service)]:
            unusable.append((name, f"UnsetEnvironment= takes {gone[0]} away"))
        else:
            found[name] = variables
    return SetBy(found, tuple(unusable))


def _variables_of_commands(service: ServiceText) -> frozenset[str]:
    try:
        return frozenset(name for word in read_command(service).words for name in variables_in(word.decoded))
    except CommandError:
        # One that moetuned would not write anew: its owner did. `${NAME}` is looked for as it stands.
        return frozenset(re.findall(r"\$\{?([A-Z][A-Z0-9_]*)", " ".join(text for _, text in service.commands)))
