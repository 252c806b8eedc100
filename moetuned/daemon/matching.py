"""Which found process is which backend: of a supervisor, of the config, found before, or new."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from moetuned.daemon.discovery import FoundBackend, belongs_to
from moetuned.daemon.watched import Watched
from moetuned.schema.supervise import SuperviseUnit

Match = tuple[FoundBackend, Watched | None]


def match(found: Sequence[FoundBackend], watched: Collection[Watched], leaving: Collection[int] = ()) -> list[Match]:
    """For each process its backend, None for one that nobody knows; no backend gets two.

    `leaving`: sessions of backends that are being ended, which are nobody's. A process in the session of a supervised
    backend, or below what its manager calls its main process, or in its unit, is that backend's, and only one of several is told: the one that was held, else the session's leader, else the first.
    """
    matches: list[Match] = []
    rest = [each for each in found if each.session not in leaving]
    for owner in watched:
        if owner.supervisor is None or owner.supervisor.identity is None or owner.supervisor.by_search:
            continue
        session = owner.supervisor.identity.pid
        own = [
            each
            for each in rest
            if each.session == session
            or (owner.supervisor.state.managed and (_below(each, session) or _in_unit(owner, each)))
        ]
        rest = [each for each in rest if each not in own]
        if own:
            matches.append((_best(own, owner), owner))
    free = [each for each in watched if each.supervisor is None or each.supervisor.by_search]
    for holds in (_configured_holds, _configured_wants, _discovered_holds):
        for owner in free:
            taken = next((each for each in rest if holds(owner, each)), None)
            if taken is not None and not any(one is owner for _, one in matches):
                matches.append((taken, owner))
                rest.remove(taken)
    return matches + [(each, None) for each in rest]


def _below(found: FoundBackend, main: int) -> bool:
    """Whether a manager's main process is this one, which need not lead a session, or started it in another session.

    So does podman's conmon, and a shell with setsid or su in front of the server.
    """
    return main == found.identity.pid or main in found.above


def _in_unit(owner: Watched, found: FoundBackend) -> bool:
    """Whether it runs in the owner's unit: what its main process started and left alone is no child of it any more."""
    supervise = None if owner.config is None else owner.config.supervise
    return isinstance(supervise, SuperviseUnit) and supervise.unit in found.services


def _best(own: Iterable[FoundBackend], owner: Watched) -> FoundBackend:
    return min(own, key=lambda each: (each.identity != owner.process, each.identity.pid != each.session))


def _configured_holds(owner: Watched, found: FoundBackend) -> bool:
    return owner.config is not None and _holds(owner, found)


def _configured_wants(owner: Watched, found: FoundBackend) -> bool:
    if owner.config is None or (owner.config.url is not None and found.displaced_by is not None):
        return False
    return owner.process is None and belongs_to(owner.config, found)


def _discovered_holds(owner: Watched, found: FoundBackend) -> bool:
    return owner.config is None and _holds(owner, found)


def _holds(owner: Watched, found: FoundBackend) -> bool:
    """Its process, or the one behind the process that it had until now."""
    return owner.process is not None and owner.process in (found.identity, found.front)
