"""What the schema's types cannot say: sizes, durations, ranges, and keys that must agree with each other.

Every check yields all it finds; file and line are filled in by `parse.config_text`, which knows where keys stand.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator

import msgspec

from moetuned.parse.close_match import close_match
from moetuned.parse.config_backend_check import check_backends
from moetuned.parse.config_problem import Problem, any_of, key_path, shown
from moetuned.parse.config_swap_check import check_swap
from moetuned.parse.config_values import (
    at_most,
    duration_problem,
    headroom_limit,
    listen_address,
    overlay_of,
    socket_path_problem,
    url_port,
)
from moetuned.schema.config import Config, Mode, Profile
from moetuned.schema.supervise import SuperviseNone
from moetuned.schema.units import parse_bytes

# Shorter ticks cost more than they tell (counters of the kernel are summed up lazily); longer ones miss a squeeze, and samples
# more than 5 s apart are not compared (decide.window), so a tick that is a little late must still be within that.
_INTERVAL_SECONDS = (0.2, 4.0)
_RESIDENCY_SECONDS = (1.0, 3600.0)
_COOL_DOWN_SECONDS = (10.0, 86400.0)
_SETTLE_SECONDS = (1.0, 600.0)
_DRAIN_SECONDS = (0.0, 600.0)
_HUNG_SECONDS = (60.0, 86400.0)
_TEXTFILE_SECONDS = (5.0, 3600.0)
_OF_DEVICES = ("read_ahead", "scheduler", "nr_requests")
"""Keys of `tuning` that are set for the disks under the backends' models."""
_SYSCTL_KEY = re.compile(r"[a-z0-9_-]+([./][a-z0-9_-]+)+")


def check(
    config: Config, known_sysctls: Collection[str] | None = None, known_kinds: Collection[str] | None = None
) -> tuple[Problem, ...]:
    """All cross-field problems, errors and warnings, of a config whose types are right.

    `known_sysctls`: names such as "vm.dirty_ratio" that there are tunables for; `known_kinds`: kinds of backends such as
    "llama-server"; None: not checked.
    """
    found = [
        *_check_tuning(config, known_sysctls),
        *check_backends(config, known_kinds),
        *_check_watch(config),
        *_check_warm(config),
        *_check_limits(config),
        *_check_relief(config),
        *_check_alerts(config),
        *_check_api(config),
        *_check_metrics(config),
    ]
    return tuple(found)


def _error(path: tuple[str | int, ...], value: object, hint: str) -> Problem:
    return Problem("", key_path(path), None if value is None else shown(value), hint)


def _warning(path: tuple[str | int, ...], value: object, hint: str) -> Problem:
    return Problem("", key_path(path), None if value is None else shown(value), hint, severity="warning")


def _read(path: tuple[str | int, ...], value: object, reader: Callable[[], object]) -> Iterator[Problem]:
    """The problem that `reader` has with the value, if any; its ValueError already shows the value."""
    try:
        reader()
    except ValueError as error:
        yield _error(path, None, str(error)) if shown(value) in str(error) else _error(path, value, str(error))


def _duration(path: tuple[str | int, ...], value: str | float, allowed: tuple[float, float]) -> Iterator[Problem]:
    if (problem := duration_problem(value, allowed)) is not None:
        yield _error(path, *problem)


def _check_tuning(config: Config, known: Collection[str] | None) -> Iterator[Problem]:
    tuning = config.tuning
    for key, value in tuning.sysctl.items():
        path = ("tuning", "sysctl", key)
        if _SYSCTL_KEY.fullmatch(key) is None:
            yield _error(path, None, "is no sysctl name; write e.g. vm.vfs_cache_pressure")
        elif known is not None and key not in known:
            near = close_match(key.replace("/", "."), known)
            hint = f"did you mean {near}?" if near else f"it knows {any_of(sorted(known)) if known else 'none'}"
            yield _error(path, None, f"moetuned has no tunable for it, so it could not undo it; {hint}")
        if isinstance(value, str) and re.fullmatch(r"[0-9A-Za-z_ .,:-]{1,200}", value) is None:
            yield _error(path, value, "must be one line of letters, digits, blanks and .,:-")
    if tuning.swap is not None:
        yield from check_swap(tuning.swap)
    overlay = overlay_of(tuning)
    of_devices = [key for key, _ in overlay if key.partition(".")[2] in _OF_DEVICES]
    if tuning.profile is Profile.OBSERVE and (overlay or tuning.swap is not None):
        hint = "has no effect: profile is observe, which changes nothing; set profile: moe-offload or take it out"
        first = "tuning.sysctl" if tuning.sysctl else overlay[0][0] if overlay else "tuning.swap"
        yield _warning(tuple(first.split(".")), None, hint)
    elif of_devices and all(backend.model is None for backend in config.backends):
        where = "file system" if of_devices[0] == "tuning.read_ahead" else "disk"
        hint = f"has no effect: no backend of the config has a model, so there is no {where} to set it for"
        yield _warning(tuple(of_devices[0].split(".")), None, hint)


def _check_watch(config: Config) -> Iterator[Problem]:
    yield from _duration(("watch", "interval"), config.watch.interval, _INTERVAL_SECONDS)
    yield from _duration(("watch", "idle_interval"), config.watch.idle_interval, _INTERVAL_SECONDS)
    yield from _duration(("watch", "residency_every"), config.watch.residency_every, _RESIDENCY_SECONDS)


def _check_warm(config: Config) -> Iterator[Problem]:
    warm = config.warm
    if warm.budget != "auto":
        budget = warm.budget
        try:
            parse_bytes(budget)
        except ValueError as error:
            yield _error(("warm", "budget"), None, f"{error}, or auto")
    if warm.rate is not None:
        rate = warm.rate
        try:
            if parse_bytes(rate) < 1 << 20:
                yield _error(("warm", "rate"), rate, "must be at least 1MiB a second; enabled: false turns warming off")
        except ValueError as error:
            yield _error(("warm", "rate"), None, f"{error} (a second)")
    if warm.prompts != "off" and all(isinstance(backend.supervise, SuperviseNone) for backend in config.backends):
        hint = "has no effect: prompts are sent only to a backend that moetuned starts (supervise: {by: process, …})"
        yield _warning(("warm", "prompts"), warm.prompts, hint)


def _check_limits(config: Config) -> Iterator[Problem]:
    limits = config.limits
    found = [
        *_read(("limits", "near"), limits.near, lambda: headroom_limit(limits.near)),
        *_read(("limits", "critical"), limits.critical, lambda: headroom_limit(limits.critical)),
    ]
    yield from found
    if found:
        return
    near, critical = headroom_limit(limits.near), headroom_limit(limits.critical)
    hint = f"must be more headroom than limits.critical ({limits.critical}): near_limit comes before critical"
    if near.ratio is not None and critical.ratio is not None and near.ratio <= critical.ratio:
        yield _error(("limits", "near"), limits.near, hint)
    sizes = near.size_bytes, critical.size_bytes
    if sizes[0] is not None and sizes[1] is not None and sizes[0] <= sizes[1]:
        yield _error(("limits", "near"), limits.near, hint)


def _check_relief(config: Config) -> Iterator[Problem]:
    relief = config.relief
    yield from _duration(("relief", "cool_down"), relief.cool_down, _COOL_DOWN_SECONDS)
    yield from _duration(("relief", "settle"), relief.settle, _SETTLE_SECONDS)
    yield from _duration(("relief", "drain"), relief.drain, _DRAIN_SECONDS)
    if relief.restart_hung != "off":
        for problem in _duration(("relief", "restart_hung"), relief.restart_hung, _HUNG_SECONDS):
            yield msgspec.structs.replace(problem, hint=f"{problem.hint}, or off")
    for twice in sorted({name for name in relief.steps if relief.steps.count(name) > 1}):
        yield _warning(("relief", "steps"), str(twice), "is named twice")
    for index, backend in enumerate(config.backends):
        if relief.minimum_context is not None and relief.minimum_context > backend.context.preferred:
            hint = f"is more than backends[{index}].context.preferred ({backend.context.preferred})"
            yield _error(("relief", "minimum_context"), relief.minimum_context, hint)
    count, _ = at_most(relief.at_most)
    if count == 0 and relief.mode is Mode.ACT:
        yield _error(
            ("relief", "at_most"), relief.at_most, "forbids every restart; write 1/h or more, or mode: observe"
        )
    if relief.mode is Mode.ACT and all(isinstance(backend.supervise, SuperviseNone) for backend in config.backends):
        hint = "there is no backend that moetuned may restart; give one with supervise: {by: process, …}, or by: systemd, docker or command"
        yield _warning(("relief", "mode"), str(relief.mode), hint)


def _check_alerts(config: Config) -> Iterator[Problem]:
    if config.alerts:
        from moetuned.parse.config_alert_check import check_alerts  # its expressions take memory

        yield from check_alerts(config)


def _check_api(config: Config) -> Iterator[Problem]:
    api = config.api
    socket_problem = socket_path_problem(api.socket)
    if socket_problem is not None:
        yield _error(("api", "socket"), api.socket, socket_problem)
    if re.fullmatch(r"[a-z_][a-z0-9_-]{0,31}", api.group) is None:
        yield _error(("api", "group"), api.group, "is no group name; write a name such as moetuned")
    if api.listen is False:
        return
    listen = api.listen
    found = [*_read(("api", "listen"), listen, lambda: listen_address(listen))]
    yield from found
    if found:
        return
    _, port = listen_address(listen)
    for index, backend in enumerate(config.backends):
        if port and backend.url is not None and url_port(backend.url) == port:
            yield _error(("api", "listen"), listen, f"has the port of backends[{index}].url; choose another")


def _check_metrics(config: Config) -> Iterator[Problem]:
    metrics = config.metrics
    yield from _duration(("metrics", "every"), metrics.every, _TEXTFILE_SECONDS)
    path = metrics.textfile
    if path is None:
        return
    if re.fullmatch(r"(/[^/\x00-\x1f]{1,255}){1,64}", path) is None or {".", ".."} & set(path.split("/")):
        yield _error(("metrics", "textfile"), path, "must be an absolute path without . and .. in it")
    elif not path.endswith(".prom") or path.endswith("/.prom"):
        hint = "must have a name that ends in .prom, e.g. moetuned.prom: node_exporter reads no other"
        yield _error(("metrics", "textfile"), path, hint)
