"""What `moetunectl setup` finds, asks, plans and remembers. Data only; its JSON is `SetupReport`."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from moetuned.schema.config import Backend, Config


class Way(StrEnum):
    """How a backend that setup offers is run."""

    UNIT = "unit"
    """A unit of systemd that somebody made."""
    CREATED = "created"
    """A model that gets, or has, a unit moetuned-backend@NAME."""
    PROCESS = "process"
    """A server that runs and that nobody could restart: it is watched."""
    CONTAINER = "container"
    """A container that runs: it is watched."""
    CHILD = "child"
    """A model that moetuned itself starts, where there is no systemd."""
    KEPT = "kept"
    """What setup was told earlier and cannot be seen now."""


class Candidate(msgspec.Struct, frozen=True):
    """A backend that can be looked after. `name`: in the config. `problem`: why it cannot be, one sentence; None: it can. `doubt`: who else
    than root and who asked has a hand in it, so that it is no default, only taken where it is named; None: nobody.

    `entry`: what setup wrote for it earlier. `environment`: of a unit that setup makes, in order. `program`: the llama-server of a child.
    `context`, `longest` and `trained` are tokens; None: unknown. `fits` None: not judged; `judgement`: in words. `more`: flags of a child.
    """

    name: str
    way: Way
    about: str
    unit: str | None = None
    container: str | None = None
    kind: str | None = None
    url: str | None = None
    model: str | None = None
    size_bytes: int | None = None
    runs: bool = False
    fits: bool | None = None
    judgement: str = ""
    context: int | None = None
    longest: int | None = None
    trained: int | None = None
    slots: int | None = None
    prompt_cache_mib: int | None = None
    program: str | None = None
    more: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    entry: Backend | None = None
    named_in_config: bool = False
    problem: str | None = None
    doubt: str | None = None

    @property
    def can_be_restarted(self) -> bool:
        """Whether moetuned may get to restart it."""
        return self.way in (Way.UNIT, Way.CREATED, Way.CHILD)


class Looked(msgspec.Struct, frozen=True):
    """A place where models were looked for: how many were found, and what kept the look from being whole."""

    place: str
    found: int = 0
    note: str | None = None


class SettingChange(msgspec.Struct, frozen=True):
    """A kernel setting that the profile moe-offload would change here."""

    name: str
    now: str
    wanted: str


class ServiceState(msgspec.Struct, frozen=True):
    """moetuned.service: whether systemd has it, starts it at boot, and runs it now; `template`: whether it has moetuned-backend@.service."""

    installed: bool = False
    enabled: bool = False
    active: bool = False
    template: bool = False


class SetupFacts(msgspec.Struct, frozen=True):
    """All that questions and plan are made from. `others`: the config without setup's own file, `current`: with it.

    `config_text`: of setup's own file, `environment_texts`: of the files of units that setup could make, by path; no entry: there is none.
    `config_closed`: a file of the config is hidden from ordinary users. `directories_missing`: those that writing makes.
    """

    config_path: str
    others: Config
    current: Config
    systemd: bool = False
    service: ServiceState = ServiceState()
    candidates: tuple[Candidate, ...] = ()
    looked: tuple[Looked, ...] = ()
    settings: tuple[SettingChange, ...] = ()
    has_main_config: bool = False
    hooks_directory: bool = False
    mail_program: bool = False
    config_text: str | None = None
    config_closed: bool = False
    environment_texts: dict[str, str] = {}
    directories_missing: tuple[str, ...] = ()
    enabled_units: tuple[str, ...] = ()
    active_units: tuple[str, ...] = ()


class SetupRecord(msgspec.Struct, frozen=True):
    """What setup made, on the disk before it makes it: files it wrote, units it adopted, units it enabled, directories it made.

    `pending`: units that have yet to take what was written, for one that ends before it tells them so.
    """

    files: tuple[str, ...] = ()
    adopted: tuple[str, ...] = ()
    enabled: tuple[str, ...] = ()
    directories: tuple[str, ...] = ()
    pending: tuple[str, ...] = ()


class Step(StrEnum):
    """What carrying out a plan does."""

    WRITE = "write"
    REMOVE = "remove"
    ADOPT = "adopt"
    GIVE_BACK = "give_back"
    START_BACKEND = "start_backend"
    RESTART_BACKEND = "restart_backend"
    STOP_BACKEND = "stop_backend"
    START_SERVICE = "start_service"
    RELOAD_SERVICE = "reload_service"


class PlannedDeed(msgspec.Struct, frozen=True):
    """One step: of a file its path with the text before and after (None: no file), of a unit its name. `why`: for people.

    `edited`: the file was changed by hand since it was written. `closed`: nobody but root may read it.
    """

    step: Step
    target: str
    why: str
    name: str = ""
    before: str | None = None
    after: str | None = None
    edited: bool = False
    closed: bool = False


class SetupPlan(msgspec.Struct, frozen=True):
    """In the order in which it is carried out. `record` is what is to be remembered before the first step."""

    deeds: tuple[PlannedDeed, ...] = ()
    record: SetupRecord = SetupRecord()
    notes: tuple[str, ...] = ()


class SetupReport(msgspec.Struct, frozen=True):
    """JSON of `moetunectl setup`. `done`: the steps that were carried out; `status`: the daemon's headline, None: nobody was asked.

    `error`: why it ended before all was done, in the words that are on standard error, too; None: it did not.
    """

    answers: dict[str, str]
    candidates: tuple[Candidate, ...]
    looked: tuple[Looked, ...]
    plan: SetupPlan
    done: tuple[str, ...] = ()
    dry_run: bool = False
    status: str | None = None
    error: str | None = None
