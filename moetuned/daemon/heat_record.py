"""What the daemon holds of the use of a backend's experts between looks. Plain state, changed by the loop's thread only."""

from __future__ import annotations

from moetuned.decide.heat import HeatState
from moetuned.gguf.experts import ExpertMap
from moetuned.host.model_files import ModelFile
from moetuned.host.processes import ProcessIdentity
from moetuned.schema.heat import ExpertPages, Heat, ModelStamp


class HeatRecord:
    """What is known of one backend's use of its model. Belongs to the loop's thread."""

    def __init__(self, model: ModelFile, experts: ExpertMap) -> None:
        self.model = model
        self.experts = experts
        self.stamp: ModelStamp | None = None
        self.kept: Heat | None = None
        """What an earlier run learned."""
        self.outdated = False
        """Whether what is kept is of another file or shape."""
        self.opened = False
        self.state: HeatState | None = None
        self.pages: ExpertPages | None = None
        self.pages_of: ProcessIdentity | None = None
        """The process at the time of that look."""
        self.unknown: str | None = None
        self.load: ProcessIdentity | None = None
        """The process whose loading was noticed to be over."""
        self.wanted_at = 0.0
        """A look that began earlier is out of date for who asked."""
        self.next_look = 0.0
        self.last_cpu_seconds = 0.0
        self.saved: Heat | None = None
        """What of it is kept."""
        self.next_save = 0.0
        self.calm_since: float | None = None
        self.tokens: float | None = None
        """As the backend has counted them so far."""
        self.paging_out = False
        self.stays_of: ProcessIdentity | None = None
        """The process of which paging out was not seen to take anything away: it makes no room."""
        self.asked_of: ProcessIdentity | None = None
        """The process of which what is of unknown use was paged out, to see what comes back."""
        # Since the last look began:
        self.healthy = True
        self.answered = False
        self.warmed = False
        self.paged_out = False
        self.stayed: bool | None = None
        """Whether most of what was to be paged out was in memory afterwards; None: nothing was, or it is unknown."""
