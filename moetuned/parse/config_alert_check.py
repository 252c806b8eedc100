"""Alert sinks of a config: names that must differ, times, addresses, and what has no effect."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from moetuned.parse.config_label_check import check_labels
from moetuned.parse.config_problem import Problem, any_of, key_path, shown
from moetuned.parse.config_values import duration_problem, quiet_hours
from moetuned.schema.alert import JOURNAL, Alert, AlertmanagerAlert, ExecAlert
from moetuned.schema.config import Config

_TIMEOUT_SECONDS = (0.1, 600.0)
_PORT = re.compile(r"https?://(?:\[[^]]*\]|[^/:]*):(\d+)")
_LOCAL = re.compile(r"http://(localhost|127(\.\d{1,3}){3}|\[::1\])([:/].*)?")
_SECRETS = ("headers_file", "token_file")

_Path = tuple[str | int, ...]


def check_alerts(config: Config) -> Iterator[Problem]:
    """All problems of the alert sinks."""
    for index, alert in enumerate(config.alerts):
        path = ("alerts", index)
        if (problem := duration_problem(alert.timeout, _TIMEOUT_SECONDS)) is not None:
            yield _error((*path, "timeout"), *problem)
        yield from _check_name(path, alert, config.alerts[:index])
        yield from _check_filters(path, alert, config)
        yield from _check_addresses(path, alert)
        if isinstance(alert, AlertmanagerAlert):
            yield from check_labels(path, alert.labels)
        if isinstance(alert, ExecAlert):
            yield from _check_directory(path, alert, config.alerts[:index])


def _check_name(path: _Path, alert: Alert, before: Sequence[Alert]) -> Iterator[Problem]:
    if alert.name is None:
        return
    if alert.name == JOURNAL:
        yield _error((*path, "name"), alert.name, "is the name of the sink that is always on; choose another")
    for earlier, other in enumerate(before):
        if other.name == alert.name:
            yield _error((*path, "name"), alert.name, f"is the name of alerts[{earlier}] already; choose another")
            break


def _check_filters(path: _Path, alert: Alert, config: Config) -> Iterator[Problem]:
    for key in ("on", "loud"):
        names = getattr(alert, key)
        for twice in sorted({name for name in names if names.count(name) > 1}):
            yield _warning((*path, key), str(twice), "is named twice")
    if alert.quiet_hours is not None:
        try:
            quiet_hours(alert.quiet_hours)
        except ValueError as error:
            yield _error((*path, "quiet_hours"), None, str(error))
    elif alert.loud:
        yield _warning((*path, "loud"), None, "has no effect: there are no quiet_hours in which it could be loud")
    known = [backend.name for backend in config.backends]
    for name in alert.backends:
        if name not in known and not config.watch.discover:
            hint = f"there is no backend of that name, so nothing is told of it; there are: {any_of(known) if known else 'none'}"
            yield _warning((*path, "backends"), name, hint)


def _check_addresses(path: _Path, alert: Alert) -> Iterator[Problem]:
    secret = next((key for key in _SECRETS if getattr(alert, key, None) is not None), None)
    for step, url in _urls(alert):
        match = _PORT.match(url)
        if match is not None and not 0 < int(match[1]) <= 65535:
            yield _error((*path, *step), None, f"has no valid port ({match[1]}); it is 1 to 65535")
        if step == ("proxy",) and not url.startswith("http://"):
            yield _error(
                (*path, *step),
                None,
                "must be http://; what goes through it to an https:// address is encrypted all the same",
            )
        elif (
            secret is not None
            and step[0] in ("url", "urls")
            and url.startswith("http://")
            and _LOCAL.fullmatch(url) is None
        ):
            yield _warning(
                (*path, *step),
                None,
                f"what is in {secret} goes over the network unencrypted; use https:// if it can be had",
            )


def _urls(alert: Alert) -> Iterator[tuple[_Path, str]]:
    for key in ("url", "proxy", "click"):
        if (url := getattr(alert, key, None)) is not None:
            yield (key,), url
    for index, url in enumerate(getattr(alert, "urls", ())):
        yield ("urls", index), url


def _check_directory(path: _Path, alert: ExecAlert, before: Sequence[Alert]) -> Iterator[Problem]:
    if not alert.directory.startswith("/"):
        yield _error((*path, "directory"), alert.directory, "must be an absolute path")
    for earlier, other in enumerate(before):
        if isinstance(other, ExecAlert) and other.directory.rstrip("/") == alert.directory.rstrip("/"):
            hint = f"the same directory as alerts[{earlier}]; join the two, or its hooks may run twice for one event"
            yield _error((*path, "directory"), alert.directory, hint)
            break


def _error(path: _Path, value: object, hint: str) -> Problem:
    return Problem("", key_path(path), None if value is None else shown(value), hint)


def _warning(path: _Path, value: object, hint: str) -> Problem:
    return Problem("", key_path(path), None if value is None else shown(value), hint, severity="warning")
