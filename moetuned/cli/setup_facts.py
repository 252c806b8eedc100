"""Gathers what `moetunectl setup` asks and plans from: models, backends, units, the config, and what the estimate says of each model."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from moetuned import backends, tunables
from moetuned.cli.backend_adopt import name_of_unit
from moetuned.cli.estimate_facts import Question, answer
from moetuned.cli.setup_own_config import CONFIG_PATH, load_checked
from moetuned.decide.setup_config import UNDO, launch_words, unit_of
from moetuned.decide.setup_plan import SERVICE, environment_file
from moetuned.decide.unit_command import CommandError, read_command
from moetuned.gguf.header import GgufError
from moetuned.gguf.split_files import split_name
from moetuned.host.backend_flags import find_program
from moetuned.host.backend_search import FoundServer, find_servers, free_port
from moetuned.host.config_files import DEFAULT_PATH
from moetuned.host.disk_measure import MeasureError
from moetuned.host.fs import RealFS
from moetuned.host.machine import MachineError
from moetuned.host.model_files import ModelFileError
from moetuned.host.model_search import (
    ModelOnDisk,
    Search,
    homes_to_look_in,
    in_private_tmp,
    search,
    unreadable_for_others,
    usual_places,
)
from moetuned.host.model_trust import changeable_by_others, stranger_of, trusted_users
from moetuned.host.program_search import find_program as find_system_program
from moetuned.host.service import ServiceError
from moetuned.host.system_file import is_closed, read_system_file
from moetuned.host.system_program import ProgramError, ask_program
from moetuned.host.systemd_booted import is_booted
from moetuned.host.systemd_unit import unit_files, unit_status
from moetuned.host.trusted_path import distrust
from moetuned.host.tuning_targets import model_target
from moetuned.parse.config_values import url_port
from moetuned.parse.environment_file import parse_environment_file
from moetuned.parse.persisted_file import Standing, standing
from moetuned.parse.unit_file import merge_service
from moetuned.schema.config import Backend, Config, Profile, Tuning
from moetuned.schema.estimate import Estimate
from moetuned.schema.setup import Candidate, ServiceState, SettingChange, SetupFacts, SetupRecord, Way
from moetuned.schema.supervise import SuperviseContainer, SuperviseProcess, SuperviseUnit
from moetuned.schema.tunable import StepKind, Targets
from moetuned.schema.units import format_bytes

HOOKS = "/etc/moetuned/hooks.d"
_MOST_JUDGED = 12
_MIB = 1 << 20
_LOCAL = re.compile(r"http://(127\.0\.0\.1|localhost|\[::1\])(:\d+)?/?")
_SECONDS = 5.0
_BYTES = 64 << 10

Progress = Callable[[str], None]


def gather(models: Sequence[str], record: SetupRecord, progress: Progress) -> SetupFacts:
    """All of it. `models`: paths that were named. Raises ConfigError for a config that the daemon would refuse, ValueError for a named
    model that is none, OSError for a file of setup's own that cannot be read.
    """
    others, current = _config({CONFIG_PATH: None}), _config({})
    text = read_system_file(CONFIG_PATH)
    progress("looking for backends")
    servers = find_servers(backends.find)
    progress("looking for models")
    found = search(usual_places(os.environ, homes_to_look_in(os.environ)))
    found = _with_named(found, models)
    own = {each.name: each for each in current.backends if each.name not in {one.name for one in others.backends}}
    names = set(own) | {path.removesuffix(".env").rpartition("/")[2] for path in record.files if path.endswith(".env")}
    texts = {path: one for path in map(environment_file, sorted(names)) if (one := read_system_file(path)) is not None}
    service = _service() if is_booted() else ServiceState()
    candidates = _Candidates(others, own, texts, service, models, progress)
    candidates.add_servers(servers)
    candidates.add_entries()
    candidates.add_models(found.models)
    units = [unit_of(each.name) for each in candidates.found if each.way is Way.CREATED]
    return SetupFacts(
        config_path=CONFIG_PATH,
        others=others,
        current=current,
        systemd=is_booted(),
        service=service,
        candidates=tuple(candidates.found),
        looked=found.looked,
        settings=_settings(others, candidates.found),
        has_main_config=os.path.exists(DEFAULT_PATH),
        hooks_directory=os.path.isdir(HOOKS),
        mail_program=find_system_program("sendmail") is not None,
        config_text=text,
        config_closed=_config_closed(),
        environment_texts=texts,
        directories_missing=_missing(
            (CONFIG_PATH, *(environment_file(each.name) for each in candidates.found if each.way is Way.CREATED))
        ),
        enabled_units=tuple(unit for unit in units if _says("is-enabled", unit) == "enabled"),
        active_units=tuple(unit for unit in units if _says("is-active", unit) in ("active", "activating", "reloading")),
    )


def _config_closed() -> bool:
    """Whether a file of the config is hidden from ordinary users: what setup takes over from it stays hidden, too."""
    directory = os.path.join(os.path.dirname(DEFAULT_PATH), "conf.d")
    names = sorted(os.listdir(directory)) if os.path.isdir(directory) else []
    paths = (DEFAULT_PATH, *(os.path.join(directory, name) for name in names if name.endswith(".yaml")))
    return any(is_closed(path) for path in paths) or any(map(is_closed, (directory, os.path.dirname(DEFAULT_PATH))))


def _config(instead: Mapping[str, str | None]) -> Config:
    return load_checked(instead)


def _with_named(found: Search, named: Sequence[str]) -> Search:
    models = []
    for path in named:
        absolute = os.path.abspath(path)
        try:
            models.append(ModelOnDisk(absolute, os.stat(absolute).st_size))
        except OSError as error:
            raise ValueError(f"--model {path}: {error.strerror}") from error
    known = {os.path.realpath(each.path) for each in models}
    others = tuple(each for each in found.models if os.path.realpath(each.path) not in known)
    return msgspec.structs.replace(found, models=(*models, *others))


def _missing(paths: Iterable[str]) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for path in paths:
        directory = os.path.dirname(path)
        while directory != "/" and not os.path.isdir(directory):
            found[directory] = None
            directory = os.path.dirname(directory)
    return tuple(found)


def _says(verb: str, unit: str) -> str:
    """A word of systemctl's, e.g. "enabled"; "" where it does not say it: that is no reason not to go on."""
    try:
        properties = {"is-enabled": "UnitFileState", "is-active": "ActiveState"}
        text = ask_program(
            "systemctl", ("show", "--value", f"--property={properties[verb]}", "--", unit), "systemd", _SECONDS, _BYTES
        )
    except ProgramError:
        return ""
    return text.strip()


def _service() -> ServiceState:
    try:
        there = unit_status(SERVICE).load_state == "loaded"
        template = unit_status(unit_of("setup")).load_state == "loaded"
    except ServiceError:
        return ServiceState()
    enabled, active = _says("is-enabled", SERVICE), _says("is-active", SERVICE)
    return ServiceState(there, enabled == "enabled", active in ("active", "reloading"), template)


def _settings(others: Config, candidates: Sequence[Candidate]) -> tuple[SettingChange, ...]:
    """What the profile moe-offload would change, with what the config says of single settings."""
    tuning = msgspec.structs.replace(others.tuning, profile=Profile.MOE_OFFLOAD)
    models = tuple(model_target(each.model) for each in candidates if each.model is not None and each.problem is None)[
        :_MOST_JUDGED
    ]
    steps, problems = tunables.plan_tuning(RealFS(), tuning, Targets(models=models, profile=tuning.profile.value))
    if problems:
        steps, _ = tunables.plan_tuning(RealFS(), Tuning(profile=Profile.MOE_OFFLOAD), Targets(models=models))
    return tuple(
        SettingChange(step.wanted.spec.name, "unknown" if step.now is None else step.now.value, step.wanted.cell.value)
        for step in steps
        if step.kind is StepKind.WRITE
    )


class _Candidates:
    """Collects them, each under a name of its own."""

    def __init__(
        self,
        others: Config,
        own: Mapping[str, Backend],
        texts: Mapping[str, str],
        service: ServiceState,
        named: Sequence[str],
        progress: Progress,
    ) -> None:
        self.found: list[Candidate] = []
        self._others, self._own, self._texts, self._service, self._progress = others, own, texts, service, progress
        self._named = {os.path.realpath(path) for path in named}
        self._program = find_program("llama-server")
        self._ports: set[int] = set()
        self._judged = 0
        self._trusted = trusted_users(os.environ)

    def add_servers(self, servers: Sequence[FoundServer]) -> None:
        for each in servers:
            if each.description.url is not None:
                self._ports.add(url_port(each.description.url))
            if each.unit == SERVICE or (each.unit or "").startswith("moetuned-backend-"):
                continue
            entry = next((one for one in self._own.values() if _is_of(one, each)), None)
            if entry is not None and (self._made_by_setup(entry) or isinstance(entry.supervise, SuperviseProcess)):
                continue  # it comes with what setup wrote
            named = next((one for one in self._others.backends if _is_of(one, each)), None)
            self.found.append(self._of_server(each, entry, named))

    def _of_server(self, each: FoundServer, entry: Backend | None, named: Backend | None) -> Candidate:
        way = Way.UNIT if each.unit is not None else Way.CONTAINER if each.container is not None else Way.PROCESS
        port = "" if each.description.url is None else f"-{url_port(each.description.url)}"
        wish = entry.name if entry is not None else named.name if named is not None else ""
        wish = wish or (name_of_unit(each.unit) if each.unit is not None else each.container or f"{each.kind}{port}")
        name = wish if entry is not None else self._free(wish, () if named is None else (named.name,))
        who = {Way.UNIT: f"unit {each.unit}", Way.CONTAINER: f"container {each.container}"}.get(
            way, f"process {each.pid}"
        )
        model = (
            ""
            if each.model_path is None
            else f", {_short(_seen_from_here(each.model_path) or each.description.model_path or '?')}"
        )
        state = "runs" if each.pid is not None else "does not run"
        already = "" if named is None else ", in the config already"
        url = each.description.front_url or each.description.url
        by_hand = each.pid if way is Way.PROCESS else None
        stranger = None if by_hand is None else stranger_of(by_hand, self._trusted)
        return Candidate(
            name=name,
            way=way,
            about=f"{who}, {each.kind}{model}, {state}{already}",
            unit=each.unit,
            container=each.container,
            kind=each.kind,
            url=url if url is not None and _LOCAL.fullmatch(url) else None,
            model=_seen_from_here(each.model_path),
            runs=each.pid is not None,
            context=each.description.context_length,
            entry=entry,
            named_in_config=named is not None,
            doubt=None if stranger is None else f"{stranger} started it",
        )

    def _made_by_setup(self, entry: Backend) -> bool:
        unit = entry.supervise.unit if isinstance(entry.supervise, SuperviseUnit) else None
        text = self._texts.get(environment_file(entry.name))
        return unit == unit_of(entry.name) and text is not None and standing(text, UNDO) is not Standing.FOREIGN

    def add_entries(self) -> None:
        """What setup wrote earlier and no server that was found stands for."""
        known = {each.name for each in self.found}
        for entry in self._own.values():
            if self._made_by_setup(entry):
                self.found.append(self._created_before(entry))
            elif isinstance(entry.supervise, SuperviseProcess):
                about = f"started by moetuned, {_short(entry.model or '?')}"
                self.found.append(
                    Candidate(
                        entry.name,
                        Way.CHILD,
                        about,
                        model=entry.model,
                        context=entry.context.preferred,
                        slots=entry.slots,
                        entry=entry,
                    )
                )
            elif entry.name not in known:
                self.found.append(Candidate(entry.name, Way.KEPT, "as it was set up", model=entry.model, entry=entry))

    def _created_before(self, entry: Backend) -> Candidate:
        values = parse_environment_file(self._texts[environment_file(entry.name)])
        number = {
            name: int(values[key])
            for name, key in (("context", "MOETUNED_CONTEXT"), ("slots", "MOETUNED_SLOTS"))
            if values.get(key, "").isdigit()
        }
        model = values.get("MODEL")
        if values.get("PORT", "").isdigit():
            self._ports.add(int(values["PORT"]))
        runs = _says("is-active", unit_of(entry.name)) == "active"
        about = f"unit {unit_of(entry.name)}, {_short(model or '?')}, {'runs' if runs else 'does not run'}"
        return Candidate(
            entry.name, Way.CREATED, about, unit=None, model=model, runs=runs, context=number.get("context"), slots=number.get("slots"),
            environment=tuple(values.items()), entry=entry,
        )  # fmt: skip

    def add_models(self, models: Sequence[ModelOnDisk]) -> None:
        used = {os.path.realpath(each.model) for each in self.found if each.model is not None}
        # So many models of others that only theirs would be judged are no way to be taken, or to keep one's own from it.
        for each in sorted(models, key=lambda one: changeable_by_others(one.path, self._trusted) is not None):
            real = os.path.realpath(each.path)
            if real in used:
                continue
            if self._judged >= _MOST_JUDGED and real not in self._named:
                continue
            self._judged += 1
            self._progress(f"estimating {os.path.basename(each.path)}")
            self.found.append(self._of_model(each))

    def _of_model(self, each: ModelOnDisk) -> Candidate:
        try:
            found = answer(Question(model=each.path))
        except (ModelFileError, GgufError, MachineError, MeasureError, ValueError) as error:
            return Candidate(
                self._free(_model_name(each.path)),
                self._way,
                f"model {_short(each.path)}",
                model=each.path,
                problem=str(error),
            )
        size = f"{format_bytes(found.size_bytes)}, {found.architecture or 'of an unknown kind'}"
        name = self._free(_model_name(found.parts[0]))
        port = free_port(self._ports)
        self._ports.add(port)
        problem = self._hindrance(found, name)
        plan = found.plan
        cache = -1 if plan.prompt_cache_bytes is None else plan.prompt_cache_bytes // _MIB
        more = launch_words(found.launch.command)
        return Candidate(
            name=name,
            way=self._way,
            about=f"model {_short(found.parts[0])}, {size}",
            url=f"http://127.0.0.1:{port}",
            model=found.parts[0],
            size_bytes=found.size_bytes,
            fits=found.fits,
            judgement=_judgement(found),
            context=plan.context_length,
            longest=found.longest_context.context_length,
            trained=found.trained_context,
            slots=plan.slots,
            prompt_cache_mib=cache,
            program=self._program,
            more=more,
            environment=(
                ("MODEL", found.parts[0]),
                ("HOST", "127.0.0.1"),
                ("PORT", str(port)),
                ("MOETUNED_CONTEXT", str(plan.context_length)),
                ("MOETUNED_SLOTS", str(plan.slots)),
                ("MOETUNED_PROMPT_CACHE_MIB", str(cache)),
                ("MOETUNED_CHECKPOINTS", str(plan.checkpoints)),
                ("MOETUNED_CACHE_TYPE_K", plan.cache_type_k),
                ("MOETUNED_CACHE_TYPE_V", plan.cache_type_v),
                ("MORE", " ".join(word for word in more if word != "--metrics")),
            )
            if self._way is Way.CREATED
            else (),
            problem=problem,
            doubt=next(filter(None, (changeable_by_others(part, self._trusted) for part in found.parts)), None),
        )

    @property
    def _way(self) -> Way:
        return Way.CREATED if self._service.template else Way.CHILD

    def _hindrance(self, found: Estimate, name: str) -> str | None:
        """Why no server can be started with this model."""
        if found.present_bytes < found.size_bytes:
            return f"only {format_bytes(found.present_bytes)} of {format_bytes(found.size_bytes)} are here yet"
        if self._way is Way.CHILD:
            return _no_program(self._program)
        if in_private_tmp(found.parts[0]):
            return f"its unit has a {os.path.dirname(found.parts[0])} of its own and would not find {found.parts[0]}; move the model"
        if (closed := next(filter(None, map(unreadable_for_others, found.parts)), None)) is not None:
            return f"{closed} cannot be read by the user that its unit gets; run chmod o+{'x' if os.path.isdir(closed) else 'r'} {closed}, or move the model"
        return _no_program_of_unit(unit_of(name), self._program)

    def _free(self, wish: str, may: Sequence[str] = ()) -> str:
        """The wish as a name that no other backend has, and no file of variables."""
        name = re.sub(r"[^A-Za-z0-9_.-]+", "-", wish).strip("-._")[:48] or "backend"
        entries = (*self._others.backends, *self._own.values())
        taken = {*(each.name for each in self.found), *(each.name for each in entries)} - set(may)
        number, free = 1, name
        while free in taken or free.lower() in ("none", "all") or (not may and os.path.exists(environment_file(free))):
            number += 1
            free = f"{name}-{number}"
        return free


def _is_of(entry: Backend, server: FoundServer) -> bool:
    """Whether this entry of the config means that server."""
    if isinstance(entry.supervise, SuperviseUnit):
        return server.unit == entry.supervise.unit
    if isinstance(entry.supervise, SuperviseContainer):
        return server.container == entry.supervise.container
    if entry.kind is not None and entry.kind != server.kind:
        return False
    if entry.url is not None:
        return any(
            url is not None and url_port(url) == url_port(entry.url)
            for url in (server.description.url, server.description.front_url)
        )
    if entry.model is not None and server.model_path is not None:
        return os.path.realpath(entry.model) == os.path.realpath(server.model_path)
    return entry.kind is not None


def _seen_from_here(path: str | None) -> str | None:
    """A model's path that also the next process can be known by: not through /proc; None where there is none."""
    if path is None or not path.startswith("/proc/"):
        return path
    real = os.path.realpath(path)
    return real if not real.startswith("/proc/") and os.path.exists(real) else None


def _judgement(found: Estimate) -> str:
    if not found.fits:
        return f"does not fit: {found.ledger.shortage}"
    low, high = found.forecast.tokens_per_second_low, found.forecast.tokens_per_second_high
    disk = (
        ""
        if found.disk.kind != "hard disk"
        else ", on a hard disk, which is far too slow where it does not fit into memory"
    )
    return f"{found.forecast.word.lower()}, a forecast of {_rate(low)} to {_rate(high)} tokens/s{disk}"


def _rate(tokens_per_second: float) -> str:
    return f"{tokens_per_second:.0f}" if tokens_per_second >= 10 else f"{tokens_per_second:.1f}"


def _model_name(path: str) -> str:
    """Its file's name without what says the part; of one with a name that says nothing, that of its directory."""
    name = os.path.basename(path)
    split = split_name(name)
    stem = name.removesuffix(".gguf") if split is None else split.prefix
    return stem[:24] if stem.startswith("sha256-") else stem


def _short(path: str) -> str:
    home = os.path.expanduser("~")
    return path if not path.startswith(f"{home}/") or home == "/" else f"~{path[len(home) :]}"


def _no_program(program: str | None) -> str | None:
    if program is None:
        return "there is no llama-server on PATH; install llama.cpp"
    try:
        return distrust(program) if os.geteuid() == 0 else None
    except OSError as error:
        return f"{program}: {error.strerror}"


def _no_program_of_unit(unit: str, program: str | None) -> str | None:
    """Why the unit would find no program. Somebody may have given it another command."""
    try:
        status = unit_status(unit)
        command = read_command(merge_service(unit_files(status, RealFS())))
    except (ServiceError, CommandError):
        return None
    if command.argv[0] != "llama-server":
        return None
    if any(
        os.access(f"{directory}/llama-server", os.X_OK)
        for directory in ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin")
    ):
        return None
    if program is None:
        return "there is no llama-server in /usr/local/bin or /usr/bin; install llama.cpp"
    return f"its unit looks for llama-server in /usr/local/bin and /usr/bin; run ln -s {program} /usr/local/bin/llama-server"
