"""How one container is replaced by another of the same name: the next step, told from what was recorded and from what there is.

A container cannot change its command, so it is made anew. The new one is made under another name first, because that finds most of what
can be wrong while the old one still runs; then the old one ends, gives up its name, and the new one is started. A container that
moetuned did not make is kept, stopped, under a name of its own. Every step is told from the state that the engine shows, so that a change
that was interrupted anywhere is carried on by asking again. The invariant: the new one is started only once the old one has ended, the
old one only once the new one is gone.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from moetuned.schema.container import ContainerChange, ContainerFacts, ContainerRecord

_NEVER_RAN = ("created", "configured", "initialized")
"""Docker says created, also after a start that failed; podman the other two as well."""
_ENDED = (*_NEVER_RAN, "exited", "stopped", "dead")
STARTED_AT_BOOT = "always"
"""The restart policy with which an engine starts also a container that was stopped when the machine (or the engine) is started anew."""
_MOST_STRAYS = 4


class Blocked(Exception):  # noqa: N818  what it says is why
    """The change cannot go on; the text says why, and what there is to do."""


class Names(msgspec.Struct, frozen=True):
    """Names that a change uses. `own_old`: of what moetuned made and is to be removed; `kept`: of what it did not make."""

    main: str
    new: str
    own_old: str
    kept: str

    def aside(self, own: bool) -> str:
        """The name that the old container gets."""
        return self.own_old if own else self.kept


class Create(msgspec.Struct, frozen=True):
    """Make the new one, without starting it."""


class Hold(msgspec.Struct, frozen=True):
    """Give a container this restart policy."""

    id: str
    policy: str


class Stop(msgspec.Struct, frozen=True):
    """Ask a container to end, and see to it that it does."""

    id: str


class Rename(msgspec.Struct, frozen=True):
    """Give a container another name."""

    id: str
    to: str


class Start(msgspec.Struct, frozen=True):
    """Start a container that was made."""

    id: str


class Remove(msgspec.Struct, frozen=True):
    """Remove a container that has ended and that moetuned made."""

    id: str


Step = Create | Hold | Stop | Rename | Start | Remove


def names_for(container: str) -> Names:
    """The names that go with a container's."""
    return Names(container, f"{container}-moetuned-next", f"{container}-moetuned-old", f"{container}-before-moetuned")


def is_active(one: ContainerFacts) -> bool:
    """Whether it runs, or would be run by the engine any moment; what is not known to have ended counts."""
    return one.status not in _ENDED


def touches_old(step: Step) -> bool:
    """Whether a change that goes on is committed by this step."""
    return isinstance(step, Stop | Rename | Start)


def taken_back(record: ContainerRecord, change: ContainerChange) -> ContainerRecord:
    """The record once nothing of the change is left, but what an engine that hung may still make of it."""
    return msgspec.structs.replace(record, change=None, strays=(*record.strays, change.token)[-_MOST_STRAYS:])


def done(record: ContainerRecord, change: ContainerChange) -> ContainerRecord:
    """The record once the new container is the one of the name."""
    return ContainerRecord(change.token, change.values, record.strays)


def is_own(one: ContainerFacts, record: ContainerRecord) -> bool:
    """Whether moetuned made it."""
    return record.token is not None and one.token == record.token


def begin(
    record: ContainerRecord,
    names: Names,
    seen: Sequence[ContainerFacts],
    token: str,
    words: tuple[str, ...],
    values: dict[str, str],
) -> ContainerChange:
    """The change that makes the container anew. Raises Blocked; then nothing may be done."""
    old = _named(seen, names.main)
    own = old is not None and is_own(old, record)
    for name in (names.new,) if old is None else (names.new, names.aside(own)):
        if (other := _named(seen, name)) is not None and not _is_stray(other, record.strays):
            raise Blocked(_in_the_way(other))
    if old is None:
        return ContainerChange(token, words, values, strays=record.strays)
    if old.removed_at_end and not own:
        raise Blocked(
            f"the container {old.name} was made with --rm, so it would be lost; end it yourself, and moetuned makes it anew"
        )
    return ContainerChange(token, words, values, old.id, own, old.policy, is_active(old), strays=record.strays)


def take_up(change: ContainerChange) -> ContainerChange:
    """The change that is left of one that was interrupted: taken back unless the old container was touched.

    Where there was no old one, it is finished.
    """
    if change.committed or change.old_id is None:
        return change
    return msgspec.structs.replace(change, undoing=True)


def next_step(change: ContainerChange, names: Names, seen: Sequence[ContainerFacts]) -> Step | None:
    """What is to be done next; None: nothing is left to do. Raises Blocked."""
    new = next((one for one in seen if one.token == change.token), None)
    old = next((one for one in seen if one.id == change.old_id), None)
    return _back(change, names, seen, new, old) if change.undoing else _on(change, names, seen, new, old)


def _on(
    change: ContainerChange,
    names: Names,
    seen: Sequence[ContainerFacts],
    new: ContainerFacts | None,
    old: ContainerFacts | None,
) -> Step | None:
    if new is None:
        if (other := _named(seen, names.new)) is None:
            return Create()
        if _is_stray(other, change.strays):
            return Remove(other.id)
        raise Blocked(_in_the_way(other))
    if old is not None:
        if not change.old_own and old.policy == STARTED_AT_BOOT:
            return Hold(old.id, "no")
        if is_active(old):
            return Stop(old.id)
        if old.name == names.main:
            return _rename(old, names.aside(change.old_own), seen)
    if new.name != names.main:
        return _rename(new, names.main, seen)
    if new.status in _NEVER_RAN:
        return Start(new.id)
    return Remove(old.id) if old is not None and change.old_own else None


def _back(
    change: ContainerChange,
    names: Names,
    seen: Sequence[ContainerFacts],
    new: ContainerFacts | None,
    old: ContainerFacts | None,
) -> Step | None:
    if new is not None:
        return Stop(new.id) if is_active(new) else Remove(new.id)
    if old is None:
        return None
    if old.name != names.main:
        if _named(seen, names.main) is not None:
            # Somebody made one of that name meanwhile: it is theirs to say which is to run.
            return Remove(old.id) if change.old_own and not is_active(old) else None
        return Rename(old.id, names.main)
    if not change.old_own and change.old_policy == STARTED_AT_BOOT and old.policy != STARTED_AT_BOOT:
        return Hold(old.id, change.old_policy)
    return Start(old.id) if change.old_ran and not is_active(old) else None


def _rename(one: ContainerFacts, to: str, seen: Sequence[ContainerFacts]) -> Rename:
    if (other := _named(seen, to)) is not None:
        raise Blocked(_in_the_way(other))
    return Rename(one.id, to)


def _named(seen: Sequence[ContainerFacts], name: str) -> ContainerFacts | None:
    return next((one for one in seen if one.name == name), None)


def _is_stray(one: ContainerFacts, strays: Sequence[str]) -> bool:
    """Whether it was made for a change that was taken back, later than that was looked for (an engine that hung), and never ran."""
    return one.token in strays and one.status in _NEVER_RAN


def _in_the_way(other: ContainerFacts) -> str:
    return f"a container {other.name} is in the way, of which moetuned knows nothing; remove or rename it"


def undo_commands(engine: str, names: Names, policy: str) -> tuple[str, ...]:
    """What brings the container back that was there before moetuned, for people to read and type."""
    back = [f"{engine} rm -f {names.main}", f"{engine} rename {names.kept} {names.main}"]
    if policy == STARTED_AT_BOOT:
        back.append(f"{engine} update --restart={policy} {names.main}")
    return (*back, f"{engine} start {names.main}")
