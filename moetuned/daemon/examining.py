"""Why a backend ended: looked at off the loop, right after it did."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping

from moetuned.daemon.obstacles import find_obstacle
from moetuned.daemon.process_supervisor import Ended
from moetuned.daemon.workers import Lane, Workers
from moetuned.decide.exit_cause import SIGKILL, Cause, Ending, Evidence, ending
from moetuned.host.kernel_log import oom_kills_since
from moetuned.host.processes import CLOCK_TICKS
from moetuned.schema.oom_kill import OomKill
from moetuned.schema.supervise import SuperviseProcess

log = logging.getLogger(__name__)

LOG_LATE_SECONDS = 0.1
"""The kernel counts a kill before it sends the signal, and writes its log after it (mm/oom_kill.c)."""


class Examining:
    """Belongs to the loop's thread."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers

    def examine(self, ended: Ended, done: Callable[[Ending], None]) -> None:
        """Find out why it ended and give that to `done`, in the loop."""
        name, as_is = ended.config.name, Ending(Cause.EXIT, str(ended.how))

        def found(ending: Ending | None, error: BaseException | None) -> None:
            if ending is None:
                log.warning("%s: why it ended cannot be told: %s", name, error)
            done(ending or as_is)

        key = f"finding out why {name} (process {ended.identity.pid}) ended"
        if not self._workers.submit(Lane.WORK, key, lambda: look(ended), found):
            done(as_is)


def look(ended: Ended, environ: Mapping[str, str] = os.environ) -> Ending:
    """The cause, as far as there is evidence. Reads the kernel log where a SIGKILL ended it, else looks at its model and its port."""
    code, supervise = ended.how.code, ended.config.supervise
    number = None if code is None else max(0, -code)
    logged = _logged(ended) if number in (None, SIGKILL) else None
    obstacle = None
    if not number and ended.command and isinstance(supervise, SuperviseProcess):
        obstacle = find_obstacle(supervise, ended.command, environ)
    found = Evidence(ended.identity.pid, str(ended.how), number, ended.oom_kills, logged, obstacle)
    return ending(found)


def _logged(ended: Ended) -> tuple[OomKill, ...] | None:
    pid, start_ticks = ended.identity.pid, ended.identity.start_ticks
    logged = oom_kills_since(start_ticks, CLOCK_TICKS)
    if logged is not None and ended.oom_kills and all(kill.pid != pid for kill in logged):
        time.sleep(LOG_LATE_SECONDS)
        logged = oom_kills_since(start_ticks, CLOCK_TICKS)
    return logged
