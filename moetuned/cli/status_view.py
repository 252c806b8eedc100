"""The status screen as a pure function of a Snapshot: what `moetunectl status` prints and the demo draws live.

Everything that came from outside (names, paths, messages) is stripped of control characters. Lines are at most `width`
wide; without colour nothing but text is printed.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from moetuned.cli.status_page import SMALLEST_WIDTH, Page
from moetuned.cli.text_width import printable, wrap
from moetuned.decide.headline import headlines
from moetuned.decide.headline_words import tokens
from moetuned.decide.memory_parts import memory_parts
from moetuned.decide.prefill_text import prefill_progress
from moetuned.schema.device import DeviceView
from moetuned.schema.event import Event
from moetuned.schema.headline import Headline, Severity
from moetuned.schema.snapshot import BackendView, MachineView, PrefillView, ProtectView, Snapshot, TunableView, WarmView
from moetuned.schema.units import format_bytes, format_duration, format_rate, format_ratio
from moetuned.schema.verdict import Phase

_EVENTS = 5
_REASONS = 6
_SMALL_RATE = 1e6  # bytes a second not worth a word

_FULL = "█"
COLOURS = {Severity.CRITICAL: "red", Severity.WARNING: "yellow", Severity.UNKNOWN: "yellow", Severity.OK: "green"}


def render(snapshot: Snapshot, width: int, colour: bool, now: float, *, whole: bool = False) -> str:
    """The whole screen, ending in a newline. `now` is Unix seconds; times are shown in the local time zone.

    `whole`: each headline is one line, however long, as who reads no more than the first line wants it.
    """
    page = Page(max(width, SMALLEST_WIDTH), colour)
    found = headlines(snapshot, now)
    for headline in found:
        page.text(headline.line, fg=COLOURS[headline.severity], bold=True, whole=whole)
    page.blank()
    _header(page, snapshot)
    for backend in _worst_first(snapshot.backends, found):
        page.blank()
        severity = next((one.severity for one in found if one.backend == backend.name), Severity.UNKNOWN)
        _backend(page, backend, COLOURS[severity], now)
    page.blank()
    _machine(page, snapshot.machine)
    _tuning(page, snapshot.tuning)
    label = "cannot"
    for line in snapshot.cannot:
        page.field(label, line, fg="yellow")
        label = ""
    for note in snapshot.notes:
        page.field("note", note)
    if snapshot.events:
        page.blank()
        for line in event_lines(snapshot.events[-_EVENTS:], page.width, now=now):
            page.raw(line)
    return page.done()


def _worst_first(backends: Sequence[BackendView], found: Sequence[Headline]) -> list[BackendView]:
    """In the order of their headlines."""
    order = {headline.backend: place for place, headline in reversed(tuple(enumerate(found)))}
    return sorted(backends, key=lambda one: order.get(one.name, len(order)))


def _header(page: Page, snapshot: Snapshot) -> None:
    up = format_duration(max(0.0, snapshot.wall_seconds - snapshot.daemon.started_wall_seconds))
    left = f"moetuned {printable(snapshot.daemon.version)}, up {up}, profile {snapshot.profile}, relief mode {snapshot.mode}"
    clock = time.strftime("%H:%M:%S", time.localtime(snapshot.wall_seconds))
    if not page.ends(left, clock):
        page.text(f"{left}, {clock}")


def _backend(page: Page, backend: BackendView, fg: str, now: float) -> None:
    verdict = backend.verdict
    joint = " " if backend.sentence.startswith(("is ", "hangs: ")) else ": "
    page.text(f"{backend.name}{joint}{backend.sentence}", fg=fg, bold=True)
    label = "why"
    for reason in verdict.reasons[:_REASONS]:
        page.field(label, reason.text)
        label = ""
    _relief(page, backend)
    page.field("verdict", f"phase {verdict.phase}, paging {verdict.paging}, memory {verdict.memory}")
    _memory(page, backend)
    _residency(page, backend)
    page.field("reads", _reads(backend))
    page.field("speed", _speed(backend))
    if backend.prefill is not None:
        page.field("prompt", _prompt(backend.prefill))
    page.field("context", _context(backend))
    if (warming := _warming(page, backend.warm, now)) is not None:
        page.field("warming", warming)
    if backend.learning is not None:
        page.field("learning", backend.learning, fg="yellow")
    if backend.protect.state != "off":
        page.field("locked", _locked(backend.protect))
    if backend.prompting is not None:
        page.field("prompts", backend.prompting)
    label = "others"
    for neighbour in backend.neighbours:
        page.field(label, neighbour.text or f"{neighbour.name} {neighbour.did} {format_bytes(neighbour.bytes)}")
        label = ""
    label = "disk"
    for text in _disks(backend.devices):
        page.field(label, text, fg="yellow")
        label = ""
    page.field("process", _process(backend))
    if backend.model_path is not None:
        page.field("model", f"{backend.model_path} ({format_bytes(backend.model_bytes)})")
    elif backend.model_unknown is not None:
        page.field("model", f"unknown: {backend.model_unknown}")


def _relief(page: Page, backend: BackendView) -> None:
    if backend.before_start is not None:
        page.field("start", backend.before_start, fg="yellow")
    label = "relief"
    for done in backend.relief:
        page.field(label, done)
        label = ""
    for action in backend.would_do:
        page.field("would do", action, fg="yellow")
    if backend.supervision.waits is not None:
        page.field("restart", backend.supervision.waits, fg="yellow")


def _memory(page: Page, backend: BackendView) -> None:
    memory, parts = backend.memory, memory_parts(backend)
    if not parts or not memory.limit_bytes:
        page.field("memory", f"unknown: {memory.unknown or 'neither limit nor use could be read yet'}")
    else:
        left = f" {format_bytes(memory.headroom_bytes)} left of {format_bytes(memory.limit_bytes)}"
        drawn = page.bar([(part.sign, part.bytes) for part in parts], memory.limit_bytes, len(left))
        page.field("memory", drawn + left)
        page.items([f"{part.sign} {part.label} {format_bytes(part.bytes)}" for part in parts])
        page.field("", f"({memory.limit_of or memory.scope})")
    swapped = memory.backend_swap_bytes
    if swapped:
        page.field("", f"{format_bytes(swapped)} of the backend's own are swapped out")
    if memory.growth is not None and not any(memory.growth in one.text for one in backend.verdict.reasons[:_REASONS]):
        page.field("", f"what grows: {memory.growth}", fg="yellow")
    if memory.seconds_to_limit is not None:
        page.field("", f"at this pace full in {format_duration(memory.seconds_to_limit)}", fg="yellow")


def _residency(page: Page, backend: BackendView) -> None:
    residency, layout = backend.residency, backend.layout
    if residency.resident_bytes is None:
        page.field("resident", f"unknown: {residency.unknown or 'not looked at yet'}")
        return
    if layout is None or residency.expert_bytes is None or residency.other_bytes is None:
        page.field("resident", _share(page, "", residency.resident_bytes, backend.model_bytes))
        why = backend.model_unknown or residency.unknown
        if why:
            page.field("", f"experts and other parts unknown: {why}")
        return
    label = "resident"
    if layout.expert_bytes:
        page.field(label, _share(page, " of the experts", residency.expert_bytes, layout.expert_bytes))
        label = ""
    page.field(label, _share(page, " of the rest", residency.other_bytes, layout.other_bytes))


def _share(page: Page, name: str, resident: int, whole: int | None) -> str:
    if not whole:
        return f"{format_bytes(resident)}{name}"
    resident = min(resident, whole)  # whole pages are counted, so the sum may pass the size
    tail = f" {format_ratio(resident / whole):>5}{name}, {format_bytes(resident)} of {format_bytes(whole)}"
    return page.bar(((_FULL, resident),), whole, 46) + tail


def _reads(backend: BackendView) -> str:
    signals = backend.signals
    rate = signals.get("process_read_bytes_per_second")
    if rate is None and backend.verdict.phase == Phase.ABSENT:
        return "unknown: the backend does not run"
    if rate is None:
        return "unknown: what the process reads cannot be seen (not yet, or not without root)"
    parts = [f"{format_rate(rate)} from disk"]
    if (refault := signals.get("refault_bytes_per_second")) is not None and refault >= _SMALL_RATE and rate:
        # The two are counted at different moments: pages of a read that is under way have been counted already.
        parts[0] += f", {format_ratio(min(1.0, refault / rate))} of it had been in memory before"
    if token := signals.get("bytes_per_token"):
        parts.append(f"{format_bytes(token)} a token")
    if (amplification := signals.get("read_amplification")) is not None and token:
        parts.append(f"{amplification:.1f} times what the missing experts need")
    return "; ".join(parts)


def _speed(backend: BackendView) -> str:
    if (speed := backend.signals.get("tokens_per_second")) is not None:
        best = backend.best_tokens_per_second
        return f"{tokens(speed)}{'' if best is None else f' (its best: {best:.1f})'}"
    prompt = backend.signals.get("prompt_tokens_per_second")
    if prompt and backend.verdict.phase == Phase.PREFILL:
        return f"reads the prompt at {prompt:.0f} tokens/s"
    if backend.verdict.phase in (Phase.IDLE, Phase.LOADING, Phase.ABSENT):
        return "no request is being answered"
    return "unknown: the backend gave no token counts (yet)"


def _prompt(prefill: PrefillView) -> str:
    """How far it is read, and what is not known of it."""
    text = prefill_progress(prefill)
    if prefill.unknown is not None:
        return f"{text}; how long is unknown: {prefill.unknown}" if text else f"how long is unknown: {prefill.unknown}"
    if prefill.tokens_total is None:
        most = "" if prefill.tokens_at_most is None else f", at most {prefill.tokens_at_most}"
        text += f"; the server does not tell its length before its last batch: at least {prefill.tokens_at_least} tokens{most}"
    return text


def _context(backend: BackendView) -> str:
    context = backend.context
    text = "unknown: the backend has not said" if context.now is None else f"{context.now} tokens now"
    if context.wanted is not None and context.wanted != context.now:
        text += f", {context.wanted} wanted"
    if context.preferred is not None:
        text += f" (preferred {context.preferred}"
        text += ")" if context.minimum is None else f", at least {context.minimum})"
    return text


def _locked(protect: ProtectView) -> str:
    if protect.state in ("locking", "held"):
        size = f"{format_bytes(protect.locked_bytes)} of {format_bytes(protect.goal_bytes)}"
        return f"{size} that every token needs" + ("" if protect.state == "held" else "; goes on")
    return f"nothing: {protect.detail}" if protect.detail else "nothing"


def _warming(page: Page, warm: WarmView, now: float) -> str | None:
    if warm.state == "off":
        return f"off: {warm.detail}" if warm.detail else None
    text = warm.state
    if warm.goal_bytes:
        done = min(warm.done_bytes, warm.goal_bytes)
        text += f", {_done_of(done, warm.goal_bytes)}"
        if warm.state in ("running", "paused"):
            text = page.bar(((_FULL, done),), warm.goal_bytes, 46) + f" {100 * done // warm.goal_bytes:>3} % {text}"
    if warm.eta_seconds is not None and warm.state == "running":
        text += f", {format_duration(warm.eta_seconds)} left"
    if warm.ended_wall_seconds is not None:
        text += f", {format_duration(max(0.0, now - warm.ended_wall_seconds))} ago"
    return text + (f": {warm.detail}" if warm.detail else "")


def _done_of(done: int, goal: int) -> str:
    """Never as if all were done while something is missing."""
    if done < goal and format_bytes(done) == format_bytes(goal):
        return f"all but {format_bytes(goal - done)} of {format_bytes(goal)}"
    return f"{format_bytes(done)} of {format_bytes(goal)}"


def _process(backend: BackendView) -> str:
    none = "not running" if backend.verdict.phase == Phase.ABSENT else "pid unknown"
    parts = [backend.kind, none if backend.pid is None else f"pid {backend.pid}"]
    if backend.url is not None:
        parts.append(backend.url)
    parts.append("supervised" if backend.supervised else "only watched")
    if backend.discovered:
        parts.append("found by itself")
    if backend.restarts:
        parts.append(f"restarted {backend.restarts} {'time' if backend.restarts == 1 else 'times'}")
    return ", ".join(parts)


def _disks(devices: Sequence[DeviceView]) -> list[str]:
    """What is to be known of the disks under its model, those of which it is the same together; [] when there is nothing to say."""
    found: dict[str, list[str]] = {}
    for device in devices:
        turns = "rotates: each expert that is not in memory takes it about 10 ms" if device.rotational else ""
        what = device.detail or ("" if device.virtual else turns)
        if what:
            model = "" if device.model is None else f" ({device.model})"
            found.setdefault(what, []).append(f"{device.name}{model}")
    return [f"{', '.join(names)}: {what}" for what, names in found.items()]


def _machine(page: Page, machine: MachineView) -> None:
    if machine.memory_bytes is None:
        page.field("machine", "unknown: /proc/meminfo could not be read yet")
        return
    text = f"{format_bytes(machine.memory_bytes)} memory"
    if machine.swap_bytes and machine.swap_free_bytes is not None:
        used = machine.swap_bytes - machine.swap_free_bytes
        text += f", {format_bytes(used)} of {format_bytes(machine.swap_bytes)} swap used"
    elif machine.swap_bytes == 0:
        text += ", no swap"
    for name, ratio in (("memory", machine.stall_memory_some_ratio), ("disks", machine.stall_io_some_ratio)):
        if ratio is not None:
            text += f", {format_ratio(ratio)} of the time waiting for {name}"
    page.field("machine", text)


def _tuning(page: Page, tuning: Iterable[TunableView]) -> None:
    quiet: list[str] = []
    loud: list[TunableView] = []
    for tunable in tuning:
        if tunable.state in ("applied", "already", "adjusted"):
            was = f" (was {tunable.original})" if tunable.original not in (None, tunable.now) else ""
            quiet.append(f"{tunable.name} {tunable.now or tunable.wanted or '?'}{was}")
        else:
            loud.append(tunable)
    if not quiet and not loud:
        page.field("tuned", "nothing; every setting of this machine is left as it is")
    if quiet:
        page.field("tuned", ", ".join(quiet))
    for tunable in loud:
        is_now = "" if tunable.now is None else f" is {tunable.now}"
        wanted = "" if tunable.wanted is None else f", wanted {tunable.wanted}"
        detail = f": {tunable.detail}" if tunable.detail else ""
        fg = "red" if tunable.state == "failed" else "yellow" if tunable.state in ("drifted", "yielded") else None
        page.field(tunable.state, f"{tunable.name}{is_now}{wanted}{detail}", fg=fg)


def event_lines(
    events: Sequence[Event], width: int | None, now: float | None = None, *, with_date: bool = False
) -> list[str]:
    """One event each, oldest first, wrapped to `width` (None: not wrapped); with the date when it is not today's."""
    lines: list[str] = []
    today = None if now is None else time.strftime("%F", time.localtime(now))
    for event in events:
        at = time.localtime(event.wall_seconds)
        dated = with_date or (today is not None and time.strftime("%F", at) != today)
        stamp = time.strftime("%F %T" if dated else "%T", at)
        lead = f"{stamp}  "
        subject = event.backend or "machine"
        about = "" if event.message.startswith(subject) else f" {subject}"
        text = printable(f"{event.name}{about}: {event.message}")
        wrapped = [text] if width is None else wrap(text, width - len(lead))
        for line in wrapped:
            lines.append(lead + line)
            lead = " " * len(lead)
    return lines
