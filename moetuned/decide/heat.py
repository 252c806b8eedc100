"""Which experts a backend really uses, learned from looks at what of its model is in the page cache. Pure.

Residency is not use: loading streams the whole file and leaves its tail. What counts as a use is that an expert came into memory
between two looks while the backend answered. One that was there before and stays counts only when it is verified: it came by use since
the load, or the cache has turned over since, so that what nobody uses is gone. Where paging out had no effect (another process maps
the file too, pages are locked) turning over says nothing of what was in memory then: it has to leave and come back. Nothing is learned
from a look at an unhealthy moment (loading, thrashing, unknown), from one right after our own warming, or while somebody else reads
the files.

The last use is what is kept, no count: published measurements agree that what was used recently beats a long-term list.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from moetuned.schema.heat import ExpertPages, Heat, ModelStamp

USED_SHARE = 0.5
"""An expert of which less came into memory was not used: read-ahead of its neighbours brings a part of it."""
TURNED_OVER = 2.0
"""The cache has turned over when the backend read so many times what of the model is resident, with memory full."""
STAYED = (
    "most of what was paged out stayed in memory (another process maps the model too, or something locks it), so what loading left counts "
    "as used only once it has left memory and come back"
)
"""What is to be said wherever heat is shown with `Heat.stayed`."""
RECENT_LOOKS = 8
"""Uses in the last so many looks are recent."""
_OTHERS_READ_RATIO = 1.25
_OTHERS_READ_SLACK_BYTES = 64 << 20


class Look(msgspec.Struct, frozen=True):
    """One look at a model and what is known of the time since the one before.

    `pages`: None when residency is unknown. `load`: anything that is another one after each load of the model (process and start
    time). `healthy`: ready, and neither loading, thrashing, unknown nor being warmed, at this look and since the one before.
    `answered`: it worked on a request since the one before. `warmed`: we warmed since then; `paged_out`: its mapping was, by us;
    `stayed`: most of what was to be paged out was in memory afterwards (False: it went, None: unknown, or nothing was paged out).
    `read_bytes`: what the process has read from storage so far; None where that is not counted (FUSE). `memory_full`: nothing more
    can be cached without evicting something; None: unknown.
    """

    pages: ExpertPages | None
    load: object
    healthy: bool
    answered: bool
    warmed: bool = False
    paged_out: bool = False
    stayed: bool | None = None
    read_bytes: int | None = None
    memory_full: bool | None = None
    page_bytes: int = 4096


class HeatState(msgspec.Struct, frozen=True):
    """What is known, and what the next look is compared with. `heat` is what is worth keeping; the rest is of one load.

    `before`: cached pages at the look that the next one is compared with; None: the next one only becomes that. `verified`: a flag for
    each cell. `stuck`: the same for what is there since a load or a page-out that took nothing away; () for none.
    `read_before`: `read_bytes` at the last look. `read_at_start`: at the last look before which the page cache was filled by
    anything but requests; what was read since then counts for turning over.
    """

    heat: Heat
    load: object = None
    before: tuple[int, ...] | None = None
    verified: tuple[bool, ...] = ()
    stuck: tuple[bool, ...] = ()
    turned_over: bool = False
    paged_out: bool = False
    read_before: int | None = None
    read_at_start: int | None = None


def fresh(model: ModelStamp, pages: ExpertPages) -> HeatState:
    """Nothing is known yet."""
    cells = len(pages.whole)
    return HeatState(Heat(model, pages.layers, pages.experts, (0,) * cells, 0, 0.0), verified=(False,) * cells)


def resume(heat: Heat) -> HeatState:
    """What an earlier run learned; how the model came into memory since is not known."""
    return HeatState(heat, verified=(False,) * len(heat.last_used))


def step(state: HeatState, look: Look) -> HeatState:
    """Learn from one look. `last_used` never decreases; a look that is unknown or of another shape only breaks the comparison."""
    state = _note_stayed(state, look)
    pages, heat = look.pages, state.heat
    nothing = (False,) * len(heat.last_used)
    if look.load != state.load:
        # Whatever is in memory now, loading put it there; what was read until now, loading read.
        state = HeatState(heat, look.load, None, nothing, (True,) * len(nothing) if heat.stayed else ())
    state = msgspec.structs.replace(state, paged_out=state.paged_out or look.paged_out)
    if look.warmed:
        # What we touched stays without anybody's use.
        state = msgspec.structs.replace(state, verified=nothing)
    if pages is not None and _fits(heat, pages) and any(state.stuck):
        state = msgspec.structs.replace(state, stuck=_still(state.stuck, pages))
    if pages is None or not look.healthy or not _fits(heat, pages):
        return msgspec.structs.replace(state, before=None, read_before=look.read_bytes)
    before = state.before
    if before is None or look.warmed or look.paged_out:
        # What came into memory since the last comparison, nobody knows how: only turning over again can prove its use.
        state = _start_over(state, look)
        verified = _still(state.verified, pages)
        return msgspec.structs.replace(state, before=pages.cached, verified=verified, read_before=look.read_bytes)
    if not look.answered or _read_by_others(state, look, pages, before):
        if any(_grown(before, pages)):
            state = _start_over(state, look)
        verified = _still(state.verified, pages)
        return msgspec.structs.replace(state, before=pages.cached, verified=verified, read_before=look.read_bytes)
    return _learn(state, look, pages, before)


def _learn(state: HeatState, look: Look, pages: ExpertPages, before: tuple[int, ...]) -> HeatState:
    """What grew was used; what stayed was when that is verified."""
    heat = state.heat
    turned_over = state.turned_over or _turned_over(state, look, pages)
    number = heat.look + 1
    grown, there = _grown(before, pages), _there(pages)
    stuck = state.stuck or (False,) * len(there)
    verified = tuple(
        new or (here and (was or (turned_over and not stays)))
        for was, new, here, stays in zip(state.verified, grown, there, stuck, strict=True)
    )
    used = tuple(number if sure else last for sure, last in zip(verified, heat.last_used, strict=True))
    return msgspec.structs.replace(
        state,
        heat=msgspec.structs.replace(heat, last_used=used, look=number),
        before=pages.cached,
        verified=verified,
        turned_over=turned_over,
        read_before=look.read_bytes,
    )


def unverified(state: HeatState, pages: ExpertPages) -> tuple[tuple[int, int], ...]:
    """Experts (layer, expert) that are in memory though nobody is known to have used them, in file order of their cells.

    Paging them out in an idle moment shows which come back; what was in use costs one read of it. So only once a load: () after that,
    when the cache has turned over, and before a first healthy look. What we warmed counts as well: an expert of which no use is known
    was chosen by its place in the file.
    """
    if state.before is None or state.paged_out or state.turned_over or not _fits(state.heat, pages):
        return ()
    cells = zip(pages.cached, state.verified, state.heat.last_used, strict=True)
    return _named(
        (cell for cell, (cached, sure, last) in enumerate(cells) if cached and not sure and not last), pages.experts
    )


def order(heat: Heat, pages: ExpertPages | None = None) -> tuple[tuple[int, int], ...]:
    """Experts (layer, expert) that were ever seen to be used, hottest first: by last look used, then by the share that is resident
    (`pages`, if known), then by layer and number, which is their order in the file.
    """
    known = pages is not None and _fits(heat, pages)

    def rank(cell: int) -> tuple[int, float, int]:
        return -heat.last_used[cell], -_share(pages, cell) if known and pages is not None else 0.0, cell

    return _named(sorted((cell for cell, last in enumerate(heat.last_used) if last), key=rank), heat.experts)


def served_ratio(heat: Heat, pages: ExpertPages, recent_looks: int = RECENT_LOOKS) -> float | None:
    """Of the pages of all experts that were used in the last `recent_looks` looks, the share that is in memory now (0 to 1).

    None when nothing was used in that time, or `pages` are of another model.
    """
    if not _fits(heat, pages):
        return None
    recent = [cell for cell, last in enumerate(heat.last_used) if last and last > heat.look - recent_looks]
    whole = sum(pages.whole[cell] for cell in recent)
    return sum(min(pages.cached[cell], pages.whole[cell]) for cell in recent) / whole if whole else None


def _note_stayed(state: HeatState, look: Look) -> HeatState:
    """Whether paging out works is kept until it is seen to be otherwise. The flags of a load that is over are thrown away by `step`."""
    if look.stayed is None:
        return state
    heat = state.heat
    if heat.stayed is not look.stayed:
        heat = msgspec.structs.replace(heat, stayed=look.stayed)
    # What is in memory by requests since the load is known to be used, whether it went or not.
    stuck = tuple(not sure for sure in state.verified) if look.stayed else ()
    return msgspec.structs.replace(state, heat=heat, stuck=stuck)


def _start_over(state: HeatState, look: Look) -> HeatState:
    """From here on the cache has to turn over."""
    return msgspec.structs.replace(state, turned_over=False, read_at_start=look.read_bytes)


def _turned_over(state: HeatState, look: Look, pages: ExpertPages) -> bool:
    if look.memory_full is not True or look.read_bytes is None or state.read_at_start is None:
        return False
    resident = sum(pages.cached) * look.page_bytes
    return look.read_bytes - state.read_at_start >= TURNED_OVER * resident > 0


def _read_by_others(state: HeatState, look: Look, pages: ExpertPages, before: tuple[int, ...]) -> bool:
    """Whether more came into memory than the backend read: a backup or a checksum runs over the files."""
    if look.read_bytes is None or state.read_before is None:
        return False
    came = sum(max(0, now - was) for now, was in zip(pages.cached, before, strict=True)) * look.page_bytes
    return came > (look.read_bytes - state.read_before) * _OTHERS_READ_RATIO + _OTHERS_READ_SLACK_BYTES


def _grown(before: Iterable[int], pages: ExpertPages) -> tuple[bool, ...]:
    cells = zip(before, pages.cached, pages.whole, strict=True)
    return tuple(whole > 0 and now - was >= USED_SHARE * whole for was, now, whole in cells)


def _there(pages: ExpertPages) -> tuple[bool, ...]:
    return tuple(
        whole > 0 and cached >= USED_SHARE * whole for cached, whole in zip(pages.cached, pages.whole, strict=True)
    )


def _still(verified: Iterable[bool], pages: ExpertPages) -> tuple[bool, ...]:
    """What has left memory has to be used again to be verified again."""
    return tuple(was and here for was, here in zip(verified, _there(pages), strict=True))


def _fits(heat: Heat, pages: ExpertPages) -> bool:
    cells = heat.layers * heat.experts
    return (heat.layers, heat.experts) == (pages.layers, pages.experts) and (
        len(heat.last_used) == len(pages.cached) == len(pages.whole) == cells
    )


def _share(pages: ExpertPages | None, cell: int) -> float:
    if pages is None or not pages.whole[cell]:
        return 0.0
    return min(1.0, pages.cached[cell] / pages.whole[cell])


def _named(cells: Iterable[int], experts: int) -> tuple[tuple[int, int], ...]:
    return tuple(divmod(cell, experts) for cell in cells)
