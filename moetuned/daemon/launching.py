"""What a backend is started with: looked at off the loop, right before it is started."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Mapping

from moetuned import backends
from moetuned.daemon.obstacles import find_obstacle
from moetuned.daemon.process_supervisor import Prepared
from moetuned.daemon.settings import Settings
from moetuned.daemon.workers import Lane, Workers
from moetuned.decide.exit_cause import Obstacle
from moetuned.decide.launch_command import command_for
from moetuned.decide.ledger import Subject
from moetuned.decide.start_fit import StartFacts, StartFit, known_flags, start_fit
from moetuned.decide.supervision import LaunchPlan
from moetuned.decide.weights import weights
from moetuned.host.backend_flags import ask_flags
from moetuned.host.machine import MachineError, own_cpus, read_machine
from moetuned.host.model_files import ModelFileError, read_model
from moetuned.parse.launch_memory_flags import memory_flags
from moetuned.parse.llama_help import ProgramHelp
from moetuned.schema.config import Backend
from moetuned.schema.relief import BeforeStart
from moetuned.schema.supervise import SuperviseProcess

log = logging.getLogger(__name__)

_ASKED = "llama-server"
"""The kind whose program is asked for its flags. Others are not what their first word names."""


class Launching:
    """Belongs to the loop's thread. `settings` gives those that are in force."""

    def __init__(self, workers: Workers, settings: Callable[[], Settings]) -> None:
        self._workers = workers
        self._settings = settings
        self._obstacles: dict[str, Obstacle] = {}
        """What let a backend not start the last time, by its name."""

    def prepare(self, config: Backend, plan: LaunchPlan, done: Callable[[Prepared], None]) -> None:
        """Find out what to start and give it to `done`, in the loop. What cannot be found out changes nothing."""
        settings = self._settings()
        supervise = config.supervise
        assert isinstance(supervise, SuperviseProcess)
        as_it_is = Prepared(tuple(supervise.command), plan)

        def found(prepared: Prepared | None, error: BaseException | None) -> None:
            if prepared is None:
                log.warning("%s: whether it fits cannot be told: %s; it is started as it is", config.name, error)
            self._obstacles.pop(config.name, None)
            if prepared is not None and prepared.obstacle is not None:
                self._obstacles[config.name] = prepared.obstacle
            done(prepared or as_it_is)

        key = f"preparing the start of {config.name}"
        known = self._obstacles.get(config.name)
        if not self._workers.submit(Lane.RELIEF, key, lambda: look(config, plan, settings, known=known), found):
            done(as_it_is)  # An earlier one has not answered yet.


def look(
    config: Backend,
    plan: LaunchPlan,
    settings: Settings,
    environ: Mapping[str, str] = os.environ,
    known: Obstacle | None = None,
) -> Prepared:
    """What to start. Reads the model's header and the machine's memory, and asks a llama-server for its flags.

    First whether anything lets it not start; `known`: what did the last time.
    """
    supervise = config.supervise
    assert isinstance(supervise, SuperviseProcess)
    argv = command_for(supervise.command, config.model, plan)
    obstacle = find_obstacle(supervise, argv, environ, known)
    if obstacle is not None:
        return Prepared(tuple(supervise.command), plan, obstacle=obstacle)
    kind = backends.find(argv)
    help_known = _help(argv[0]) if kind is not None and kind.NAME == _ASKED else None
    command: tuple[str, ...] = tuple(supervise.command)
    said = []
    if help_known is not None:
        command, dropped = known_flags(command, help_known)
        said += [f"{flag} is left out: this build of {argv[0]} does not know it" for flag in dropped]
    if kind is not None and settings.before_start is not BeforeStart.OFF:
        argv = command_for(command, config.model, plan)
        given = {**environ, **supervise.environment}
        description = kind.describe(argv, given)
        context = max(config.context.minimum, settings.minimum_context or 0)
        facts = StartFacts(command, plan, context, description, memory_flags(argv[1:], given), help_known)
        fit = _fit(description.model_path or config.model, facts, supervise.cgroup)
        if fit is not None and fit.why is not None:
            if settings.before_start is BeforeStart.REFUSE:
                return Prepared(command, plan, refused=f"{fit.why} (relief.before_start is refuse)")
            done = f"started with what fits ({', '.join(fit.changes)})" if fit.changes else "started as it is"
            said.append(f"{done}: {fit.why}")
            command, plan = fit.command, fit.plan
    return Prepared(command, plan, "; ".join(said) or None)


def _fit(path: str | None, facts: StartFacts, cgroup: str | None) -> StartFit | None:
    """None: the model or the machine is not known."""
    if path is None:
        return None
    try:
        model = read_model(path)
        machine = read_machine(os.getpid(), own_cpus(), cgroup=cgroup)
    except (ModelFileError, MachineError) as error:
        log.info("whether %s fits cannot be told: %s", path, error)
        return None
    if model.experts is None:
        return None
    return start_fit(Subject(model.headers, weights(model.headers, model.experts)), machine, facts)


def _help(program: str) -> ProgramHelp | None:
    path = shutil.which(program)
    if path is None:
        return None
    found = ask_flags(path)
    if found.unknown is not None:
        log.info("flags of %s: %s", path, found.unknown)
    return found.known
