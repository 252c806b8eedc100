"""Whether somebody who asks the daemon to tune means the config and the journal that it uses."""

from __future__ import annotations

import os
from collections.abc import Mapping

from moetuned.host.config_files import DEFAULT_PATH


def other_than_ours(asked: Mapping[str, object], config: str | None, journal: str, profile: str) -> str | None:
    """What of a request to tune is not what this daemon uses, and what to do, in one sentence; None when it is all the same.

    `config`, `journal` and `profile` are the daemon's; `config` None: the default file.
    """
    ours = config or DEFAULT_PATH
    named, wanted, its_journal = asked.get("config"), asked.get("profile"), asked.get("journal")
    if isinstance(its_journal, str) and os.path.realpath(its_journal) != os.path.realpath(journal):
        return f"the daemon's undo journal is {journal}, it knows nothing of {its_journal}"
    change = f"edit {ours} and reload the daemon (systemctl reload moetuned), or stop it"
    if isinstance(named, str) and os.path.realpath(named) != os.path.realpath(ours):
        return f"the daemon uses {ours}, not {named}; {change}"
    if isinstance(wanted, str) and wanted != profile:
        return f"the daemon uses the profile {profile}, not {wanted}; {change}"
    return None


def held_by_another(journal: str) -> str:
    """What is said where another process has the undo journal."""
    return (
        f"another moetuned process holds {os.path.dirname(journal)}, so this daemon (pid {os.getpid()}) has changed nothing and "
        "changes nothing; ask or stop that one"
    )
