"""Somebody else who sets a kernel setting that moetuned sets too: a file read at boot, another tuner, the kernel command line."""

from __future__ import annotations

import msgspec

from moetuned.schema.tunable import Bound


class Rival(msgspec.Struct, frozen=True, omit_defaults=True):
    """One setting that one other party writes.

    `what` names the party so that a person finds it ("tuned, profile throughput-performance", "/etc/sysctl.d/99-x.conf
    line 3"), `path` is the kernel file, with `*` where it is a class of devices (/sys/block/*/queue/read_ahead_kb), `value`
    None is unknown (computed, or a variable), `when` says when it is written ("at boot"), `file` is where it is written down,
    `bound` how the value is meant (tuned's `>4096` only raises), `only` what must hold besides, as it is written there,
    `gives_way` whether it lets the files in /etc/sysctl.d win over itself.
    """

    what: str
    path: str
    value: str | None
    when: str
    file: str | None = None
    bound: Bound = Bound.SET
    only: str | None = None
    gives_way: bool = False


class FoundRivals(msgspec.Struct, frozen=True):
    """What was found, and one sentence for each file that could not be read or understood."""

    rivals: tuple[Rival, ...] = ()
    notes: tuple[str, ...] = ()
