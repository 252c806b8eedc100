"""The file of each setting of the plan opens for writing.

For: kernel settings, queues of disks, and limits of cgroups that are not systemd's.

Tried: the file is opened for writing and closed; nothing is written.

No: the file is read-only here (a container, `ProtectKernelTunables=yes`, `ProtectControlGroups=yes`) or not this user's.

Unknown: there is no such file at the moment.

Do: `ProtectKernelTunables=no` for /proc/sys and /sys, `ProtectControlGroups=no` for /sys/fs/cgroup, in a drop-in of moetuned.service; in a container run moetuned on the machine itself, or give the container /proc/sys and /sys to write (`--privileged`); or take the setting out of the config (`keep`).
"""

from __future__ import annotations

from moetuned.host.rehearsal_answers import YES, cure_of_sandbox, of_error, open_for_writing
from moetuned.schema.capability import Action, Found, Need, RehearsalFacts

CALLS = ()


def needs(facts: RehearsalFacts) -> tuple[Need, ...]:
    """Each file once; those that systemd writes are its matter."""
    paths = dict.fromkeys(one.path for one in facts.settings if one.unit is None)
    return tuple(Need(path, (Action.CHANGE_SETTING,)) for path in paths)


def rehearse(need: Need, _facts: RehearsalFacts) -> Found:
    """See above."""
    try:
        open_for_writing(need.subject)
    except OSError as error:
        option = "ProtectControlGroups=no" if need.subject.startswith("/sys/fs/cgroup/") else "ProtectKernelTunables=no"
        return of_error(error, need.subject, f"{cure_of_sandbox(error, option)}; or in the config: keep")
    return YES
