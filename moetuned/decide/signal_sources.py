"""Why a signal is not known, from its own manual entry: the sources it names, and which of them said nothing.

A signal's docstring ends with its sources ("Source: /proc/<pid>/io read_bytes"), which the reference page prints and a test keeps
there. So nothing is listed here a second time: a new signal is explained by what it says of itself.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping
from functools import cache

import msgspec

from moetuned.decide import signals as signal_files
from moetuned.decide.facts import BackendFacts
from moetuned.schema.sample import BackendSample

_AS_FOR = re.compile(r"`([a-z_]+)`")
_NONE_WHEN = re.compile(r"None (when|with|without) (.+?)(?:(?<!e\.g)[.;](?: |$)|$)")
_UNKNOWN_OR = re.compile(r"^unknown or (when |with )?")
_DEPTH = 3


class Sight(msgspec.Struct, frozen=True):
    """What was to be seen at one tick. `troubles`: why a file could not be read, by its path. `values`: the signals, as far as known."""

    sample: BackendSample
    facts: BackendFacts
    dt_seconds: float | None = None
    troubles: Mapping[str, str] = {}
    residency_unknown: str | None = None
    values: Mapping[str, float | None] = {}


def why_unknown(signal: str, sight: Sight) -> str:
    """One phrase, without a full stop, of why the value of `signal` is None. KeyError for a name that is no signal."""
    trouble = _trouble(signal, sight, _DEPTH)
    if trouble is not None:
        return trouble
    if sight.dt_seconds is None:
        return "no earlier sample to compare with"
    part = _unknown_part(signal, sight, _DEPTH)
    if part is not None:
        return part
    return _said(signal)


def _said(signal: str) -> str:
    """When it is unknown although each source said something, in the words of its manual entry."""
    found = _NONE_WHEN.search(_manual(signal)[1])
    if found is not None and found[2] != "unknown":
        rest = _UNKNOWN_OR.sub("", found[2].strip())  # each source said something, so it is the other reason
        return rest if found[1] == "when" else f"{found[1]} {rest}"
    return "its sources say nothing of it now"


def _unknown_part(signal: str, sight: Sight, depth: int) -> str | None:
    """The signal that it stands on and that is unknown itself, and why."""
    doc, _ = _manual(signal)
    names = _AS_FOR.findall(doc[doc.rfind("Source") :]) if "Source" in doc and depth else ()
    for name in names:
        if name != signal and name in signal_files.signal_functions() and sight.values.get(name, 0.0) is None:
            deeper = _unknown_part(name, sight, depth - 1)
            return deeper or f"{name.replace('_', ' ')} is unknown: {_said(name)}"
    return None


def _trouble(signal: str, sight: Sight, depth: int) -> str | None:
    """What a source of it, or of a signal that it stands on, gave instead of figures."""
    doc, _ = _manual(signal)
    sources = doc[doc.rfind("Source") :] if "Source" in doc else doc
    for word, why in _SOURCES:
        if word in sources and (text := why(sight)) is not None:
            return text
    if not depth:
        return None
    names = (name for name in _AS_FOR.findall(sources) if name != signal and name in signal_files.signal_functions())
    return next((text for name in names if (text := _trouble(name, sight, depth - 1)) is not None), None)


@cache
def _manual(signal: str) -> tuple[str, str]:
    if signal not in signal_files.signal_functions():
        raise KeyError(signal)
    module = importlib.import_module(f"{signal_files.__name__}.{signal}")
    texts = (module.__doc__ or "", module.compute.__doc__ or "")
    return " ".join(texts[0].split()), " ".join(texts[1].split())


def _file(sight: Sight, path: str) -> str:
    trouble = sight.troubles.get(path)
    return f"{path}: {trouble or 'could not be read'}"


def _process_file(name: str, known: Callable[[BackendSample], object]) -> Callable[[Sight], str | None]:
    def why(sight: Sight) -> str | None:
        process = sight.sample.process
        if process is None:
            return "no process" if sight.sample.process_gone else "its process could not be read"
        return None if known(sight.sample) is not None else _file(sight, f"/proc/{process.pid}/{name}")

    return why


def _answers(sight: Sight) -> str | None:
    http = sight.sample.http
    if http is None:
        return "no fresh answer over HTTP" if sight.facts.address_known else "no HTTP address is known to ask"
    if http.health == "unreachable":
        return "nothing answers over HTTP"
    if http.health != "ok":
        return f"/health says {http.health or 'nothing'}"
    return None


def _slots(sight: Sight) -> str | None:
    http = sight.sample.http
    if http is None or http.health != "ok":
        return _answers(sight)
    if http.slots is not None:
        return None
    if not http.tells_slots:
        return "its kind of backend tells nothing of single requests"
    if http.wants_key:
        return "it wants an API key, so /slots tells nothing"
    return (
        "/slots did not answer (busy, or not served)"
        if http.slots_asked
        else "/slots is not asked while it does nothing"
    )


def _metrics(sight: Sight) -> str | None:
    http = sight.sample.http
    if http is None or http.health != "ok":
        return _answers(sight)
    if http.wants_key and http.decode_calls_total is None:
        return "it wants an API key, so /metrics tells nothing"
    if not http.tells_slots:
        return None if http.counts_live else "its kind of backend tells no such number"
    silent = http.prompt_tokens_total is None and http.decode_calls_total is None
    return "/metrics gave nothing (llama-server serves it only with --metrics)" if silent else None


def _cgroup(sight: Sight) -> str | None:
    if sight.sample.cgroup is not None:
        return None
    directory = sight.sample.cgroup_directory
    if directory is None:
        return "no cgroup of its own"
    troubles = [path for path in sight.troubles if path.startswith(directory + "/")]
    return _file(sight, troubles[0]) if troubles else f"{directory}: its memory files could not be read"


def _pressure(sight: Sight) -> str | None:
    cgroup = sight.sample.cgroup
    if cgroup is None:
        return _cgroup(sight)
    return "no memory.pressure in its cgroup (cgroup v1, or a kernel without PSI)" if cgroup.pressure is None else None


def _layout(sight: Sight) -> str | None:
    return "layout unknown" if sight.facts.layout is None else None


def _residency(sight: Sight) -> str | None:
    if sight.sample.residency is not None:
        return None
    return "no scan of its residency" + (f": {sight.residency_unknown}" if sight.residency_unknown else " lately")


def _disks(sight: Sight) -> str | None:
    if not sight.facts.disks:
        return "no disk under its model is known"
    troubles = [path for path in (f"/sys/block/{disk}/stat" for disk in sight.facts.disks) if path in sight.troubles]
    return _file(sight, troubles[0]) if troubles else None


def _machine_file(path: str) -> Callable[[Sight], str | None]:
    return lambda sight: _file(sight, path) if path in sight.troubles else None


_SOURCES: tuple[tuple[str, Callable[[Sight], str | None]], ...] = (
    ("layout", _layout),
    ("/proc/<pid>/io", _process_file("io", lambda sample: sample.process and sample.process.read_bytes)),
    ("/proc/<pid>/stat", _process_file("stat", lambda sample: sample.process and sample.process.cpu_ticks)),
    ("/proc/<pid>/status", _process_file("status", lambda sample: sample.process and sample.process.rss_anon_bytes)),
    ("/slots", _slots),
    ("/metrics", _metrics),
    ("memory.pressure", _pressure),
    ("/proc/pressure/memory", _machine_file("/proc/pressure/memory")),
    ("/proc/pressure/io", _machine_file("/proc/pressure/io")),
    ("/proc/vmstat", _machine_file("/proc/vmstat")),
    ("/proc/meminfo", _machine_file("/proc/meminfo")),
    ("memory.stat", _cgroup),
    ("cgroup", _cgroup),
    ("cachestat", _residency),
    ("residency", _residency),
    ("/sys/block", _disks),
)
"""A word of the docstring's sources, and why that source may say nothing; the first that does says why."""
