"""A request to tune, against what this daemon uses."""

from __future__ import annotations

import os
from collections.abc import Mapping

from moetuned.host.config_files import DEFAULT_PATH


def other_than_ours(
    asked: Mapping[str, object], config_path: str | None, journal_path: str, profile: str
) -> str | None:
    """What of a request to tune is not what this daemon uses, and what to do, in one sentence; None when it is all the same."""
    ours = config_path or DEFAULT_PATH
    config, wanted, journal = asked.get("config"), asked.get("profile"), asked.get("journal")
    if isinstance(journal, str) and os.path.realpath(journal) != os.path.realpath(journal_path):
        return f"the daemon's undo journal is {journal_path}, it knows nothing of {journal}"
    change = f"edit {ours} and reload the daemon (systemctl reload moetuned), or stop it"
    if isinstance(config, str) and os.path.realpath(config) != os.path.realpath(ours):
        return f"the daemon uses {ours}, not {config}; {change}"
    if isinstance(wanted, str) and wanted != profile:
        return f"the daemon uses the profile {profile}, not {wanted}; {change}"
    return None
