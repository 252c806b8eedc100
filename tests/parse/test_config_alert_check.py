from __future__ import annotations

import pytest

from moetuned.parse.config_text import ConfigError, load_with_warnings

HOOK = "kind: webhook, url: 'https://example.org/hook'"


def said(*alerts: str, more: str = "") -> list[tuple[str, str, str]]:
    """Severity, path and hint of all problems."""
    text = "alerts:\n" + "".join(f"  - {{{alert}}}\n" for alert in alerts) + more
    try:
        _, found = load_with_warnings([("c", text)])
    except ConfigError as error:
        found = (*error.problems, *error.warnings)
    return [(each.severity, each.path, each.hint) for each in found]


def only(severity: str, path: str, hint: str, found: list[tuple[str, str, str]]) -> None:
    assert [each[:2] for each in found] == [(severity, path)]
    assert hint in found[0][2]


def test_all_that_can_be_said_is_fine() -> None:
    filters = "name: phone, on: [thrash_begin], ends: true, backends: [glm], at_most: 20/h, quiet_hours: '22:00-07:00', loud: [backend_down], timeout: 5s"
    assert said(f"{HOOK}, {filters}, headers_file: /etc/moetuned/secrets/hook, proxy: 'http://proxy:3128'") == []
    assert said("kind: alertmanager, urls: ['http://127.0.0.1:9093'], labels: {team: ml}", "kind: exec") == []


def test_names_must_differ() -> None:
    only("error", "alerts[1].name", "is the name of alerts[0] already", said(f"{HOOK}, name: a", f"{HOOK}, name: a"))
    only("error", "alerts[0].name", "always on", said(f"{HOOK}, name: journal"))
    assert said(HOOK, HOOK, HOOK) == []


@pytest.mark.parametrize("text", ["1/m", "0/h", "h", "1000/h"])
def test_rates(text: str) -> None:
    only("error", "alerts[0].at_most", "from 1 to 999 an hour or a day", said(f"{HOOK}, at_most: {text}"))


@pytest.mark.parametrize("text", ["22:00", "24:00-07:00", "22-7", "22:00-07:60", "night"])
def test_quiet_hours(text: str) -> None:
    only("error", "alerts[0].quiet_hours", "two local times of day", said(f"{HOOK}, quiet_hours: '{text}'"))


def test_quiet_hours_that_never_end() -> None:
    only("error", "alerts[0].quiet_hours", "at the same time", said(f"{HOOK}, quiet_hours: '07:00-07:00'"))


def test_loud_without_quiet_hours() -> None:
    only("warning", "alerts[0].loud", "no quiet_hours", said(f"{HOOK}, loud: [backend_down]"))


def test_named_twice() -> None:
    only("warning", "alerts[0].on", "is named twice", said(f"{HOOK}, on: [thrash_begin, thrash_begin]"))


def test_a_backend_that_is_not_there() -> None:
    more = "backends: [{name: glm, kind: simulator, url: 'http://127.0.0.1:1'}]\nwatch: {discover: false}\n"
    only("warning", "alerts[0].backends", "there are: glm", said(f"{HOOK}, backends: [gml]", more=more))
    assert said(f"{HOOK}, backends: [gml]") == [], "one that is found by itself may be called so"


@pytest.mark.parametrize("port", ["0", "65536", "99999"])
def test_ports(port: str) -> None:
    only("error", "alerts[0].url", "1 to 65535", said(f"kind: webhook, url: 'https://example.org:{port}/'"))
    only(
        "error",
        "alerts[0].urls[1]",
        "1 to 65535",
        said(f"kind: alertmanager, urls: ['http://[::1]:9093', 'http://[::1]:{port}']"),
    )


def test_a_proxy_speaks_http() -> None:
    only("error", "alerts[0].proxy", "must be http://", said(f"{HOOK}, proxy: 'https://proxy:3128'"))


def test_secrets_over_the_network() -> None:
    secret = "headers_file: /a"
    only("warning", "alerts[0].url", "unencrypted", said(f"kind: webhook, url: 'http://example.org/a', {secret}"))
    for url in ("http://127.0.0.1:80/a", "http://localhost", "http://[::1]/a", "https://example.org"):
        assert said(f"kind: webhook, url: '{url}', {secret}") == []
    only(
        "warning", "alerts[0].url", "unencrypted", said(f"kind: webhook, url: 'http://127.0.0.1.example.org', {secret}")
    )


def test_timeouts() -> None:
    only("error", "alerts[0].timeout", "between 100 ms and 10 min", said(f"{HOOK}, timeout: 1h"))


def test_events_of_a_map() -> None:
    only(
        "error", "alerts[0].priority.trash_begin", "did you mean thrash_begin?",
        said("kind: ntfy, url: 'https://ntfy.sh/topic', priority: {trash_begin: urgent}"),
    )  # fmt: skip


def test_a_kind_that_is_none() -> None:
    only("error", "alerts[0].kind", "did you mean webhook?", said("kind: webhok"))


@pytest.mark.parametrize(
    "text",
    [
        "alerts: ['https://hooks.example.org/geheim']",
        "alerts: https://hooks.example.org/geheim",
        "alerts: [{kind: webhook, url: 'https://me:geheim@example.org/'}]",
        "alerts: [{kind: webhook, url: 'hooks.example.org/geheim'}]",
        "alerts: [{kind: webhook, url: ['https://example.org/geheim b']}]",
        "alerts: [{kind: alertmanager, urls: ['http://me:geheim@localhost:9093']}]",
        "alerts: [{kind: ntfy, url: 'https://ntfy.sh/a', token_file: geheim}]",
        "alerts: [{kind: webhook, url: 'https://example.org/', headers_file: 'Authorization: geheim'}]",
    ],
)
def test_what_may_be_a_secret_is_not_shown(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_with_warnings([("c", text)])
    assert "geheim" not in str(caught.value)
