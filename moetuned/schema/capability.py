"""What the daemon can do from where it runs: each path and call that an action may need, rehearsed, with what came of it.

`Capabilities` is also the documented JSON of `moetunectl status --capabilities --json` and GET /v1/capabilities: fields are added, never
renamed.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from moetuned.schema.supervise import ResourceLimits


class Answer(StrEnum):
    """What a rehearsal said. Unknown is not no: it turns nothing off."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


class Action(StrEnum):
    """What moetuned does that needs something of the machine."""

    CHANGE_SETTING = "change_setting"
    SWAP_FILE = "swap_file"
    ZRAM = "zram"
    START = "start"
    RESTART = "restart"
    PAUSE = "pause"
    WARM = "warm"
    PROTECT = "protect"
    PAGE_OUT = "page_out"
    SAVE_CONVERSATIONS = "save_conversations"
    ALERT = "alert"
    OBSERVE = "observe"
    """To see what a backend, the machine or a model does."""
    KEEP = "keep"
    """To write down what must outlive the daemon."""


class SettingFile(msgspec.Struct, frozen=True):
    """A file of a setting that the plan writes. `unit`: systemd is asked to write it."""

    name: str
    path: str
    unit: str | None = None


class BackendNeeds(msgspec.Struct, frozen=True):
    """What the config says of one backend, as far as actions need something for it. `by`: process, systemd, docker, command or none.

    `target`: its unit, its container's engine or its script; `scope`: it is started in a scope of systemd. `cgroup`: where it runs or is to.
    """

    name: str
    by: str
    target: str | None = None
    model: str | None = None
    cgroup: str | None = None
    limits: ResourceLimits = ResourceLimits()
    scope: bool = False
    slot_directory: str | None = None

    @property
    def other_user(self) -> bool:
        """Whether its process may be another user's than the daemon's: the daemon's own child never is."""
        return self.by != "process"


class Tried(msgspec.Struct, frozen=True):
    """Which try it was: what tells it from all others of the same facts."""

    rehearsal: str
    subject: str
    actions: tuple[Action, ...]
    backend: str | None = None
    other_user: bool = False


class RehearsalFacts(msgspec.Struct, frozen=True):
    """What the config may have moetuned do, from which the rehearsals know what there is to try.

    `swap_file`: where it would be made. `acts`: relief restarts; `pauses`: and stops processes for a moment. `only`: of all that, try
    these alone; None: all.
    """

    state_directory: str = "/var/lib/moetuned"
    runtime_directory: str = "/run/moetuned"
    settings: tuple[SettingFile, ...] = ()
    swap_file: str | None = None
    zram: bool = False
    backends: tuple[BackendNeeds, ...] = ()
    discovers: bool = True
    acts: bool = False
    pauses: bool = False
    warms: bool = False
    protects: bool = False
    prompts: str | None = None
    hook_directories: tuple[str, ...] = ()
    metric_file: str | None = None
    only: tuple[Tried, ...] | None = None


class Need(msgspec.Struct, frozen=True):
    """One thing to try: `subject` (a file, a unit, a call) for these actions, of one backend or of all (None).

    `other_user`: the answer holds for processes of other users than the daemon's.
    """

    subject: str
    actions: tuple[Action, ...]
    backend: str | None = None
    other_user: bool = False

    def by(self, rehearsal: str) -> Tried:
        """The try of it by this rehearsal."""
        return Tried(rehearsal, self.subject, self.actions, self.backend, self.other_user)


class Found(msgspec.Struct, frozen=True):
    """What came of one try. `why` is the answer's reason, `cure` what a person can do, a sentence each."""

    answer: Answer
    why: str = ""
    cure: str = ""


class Capability(msgspec.Struct, frozen=True):
    """One rehearsal of one subject. `seconds`: how long it took."""

    rehearsal: str
    subject: str
    actions: tuple[Action, ...]
    answer: Answer
    why: str = ""
    cure: str = ""
    backend: str | None = None
    other_user: bool = False
    seconds: float = 0.0

    @property
    def tried(self) -> Tried:
        """Which try it was."""
        return Tried(self.rehearsal, self.subject, self.actions, self.backend, self.other_user)


class TurnedOff(msgspec.Struct, frozen=True):
    """An action that is not tried, because a rehearsal was refused. `subject`: of which setting's file; None: all of it.

    `other_user`: only for processes of other users.
    """

    action: Action
    why: str
    text: str
    backend: str | None = None
    subject: str | None = None
    other_user: bool = False


class Capabilities(msgspec.Struct, frozen=True):
    """The answer of GET /v1/capabilities. `state`: pending | done | failed, `detail` says why; `by`: daemon or command.

    `cannot`: what is turned off, one line each.
    """

    state: str = "pending"
    detail: str = ""
    by: str = "daemon"
    wall_seconds: float | None = None
    cannot: tuple[str, ...] = ()
    capabilities: tuple[Capability, ...] = ()
