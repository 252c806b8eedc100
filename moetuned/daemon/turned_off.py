"""Whether the self-test turned an action off for a backend: what only concerns processes of other users does not count for one of ours."""

from __future__ import annotations

import os

from moetuned.daemon.settings import Settings
from moetuned.daemon.watched import Watched
from moetuned.decide.capabilities import why_not
from moetuned.schema.capability import Action


def cannot(watched: Watched, settings: Settings, action: Action) -> str | None:
    """Why it is turned off, one sentence; None: it is not."""
    if not settings.off:
        return None
    return why_not(settings.off, action, watched.name, other_user=_is_others(watched))


def _is_others(watched: Watched) -> bool | None:
    """Whether its process is another user's; None: that cannot be told, or there is none."""
    if watched.process is None:
        return None
    try:
        return os.stat(f"/proc/{watched.process.pid}").st_uid != os.geteuid()
    except OSError:
        return None
