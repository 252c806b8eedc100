from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.schema.alert import (
    AlertmanagerAlert,
    DesktopAlert,
    ExecAlert,
    MailAlert,
    NtfyAlert,
    WebhookAlert,
    kind_of_sink,
    sink_names,
)


def test_kinds_are_the_names_in_the_config() -> None:
    assert kind_of_sink(ExecAlert()) == "exec"
    assert kind_of_sink(AlertmanagerAlert(urls=["http://127.0.0.1:9093"])) == "alertmanager"
    assert kind_of_sink(MailAlert(to=["root"])) == "mail"
    assert kind_of_sink(NtfyAlert(url="https://ntfy.sh/x")) == "ntfy"


def test_names_are_given_once_each() -> None:
    hook = WebhookAlert(url="https://example.org")
    assert sink_names([hook, hook, ExecAlert()]) == ["webhook", "webhook-2", "exec"]
    assert sink_names([hook, WebhookAlert(url="https://example.org", name="webhook")]) == ["webhook-2", "webhook"]


@given(st.lists(st.sampled_from([None, "exec", "exec-2", "desktop", "a"]), max_size=8))
def test_no_two_of_the_names_that_are_made_up_are_the_same(given_names: list[str | None]) -> None:
    names = sink_names([DesktopAlert(name=name) for name in given_names])
    made_up = [name for name, given_name in zip(names, given_names, strict=True) if given_name is None]
    assert len(set(made_up)) == len(made_up)
    assert not set(made_up) & set(given_names)


@pytest.mark.parametrize(
    ("url", "good"),
    [
        ("https://example.org", True),
        ("http://127.0.0.1:9093/alertmanager", True),
        ("https://[2001:db8::1]:8443/hook?a=b", True),
        ("ftp://example.org", False),
        ("https://user:pass@example.org/", False),
        ("https://example.org/a b", False),
        ("https://example.org/\nX: y", False),
        ("https://", False),
    ],
)
def test_urls(url: str, good: bool) -> None:
    from moetuned.parse.config_text import ConfigError, load

    text = f"alerts: [{{kind: webhook, url: {url!r}}}]\n".replace("\\n", "\n")
    if good:
        assert load([("c", text)]).alerts == [WebhookAlert(url=url)]
    else:
        with pytest.raises(ConfigError, match=re.escape("alerts[0].url")):
            load([("c", text)])


def _says(sink: str) -> str:
    """What is wrong with a config with this sink; empty where nothing is."""
    from moetuned.parse.config_text import ConfigError, load

    try:
        load([("c", f"alerts: [{sink}]\n")])
    except ConfigError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    "address", ["root", "me@example.org", "a.b+c@mail.example.org", "x@[192.0.2.1]", "o'neill@example.org"]
)
def test_addresses_that_get_mail(address: str) -> None:
    assert _says(f'{{kind: mail, to: ["{address}"], from: "{address}"}}') == ""


@pytest.mark.parametrize(
    "address",
    ["-oQ/tmp", "", "a b", r"a@b\nBcc: c", r"root\n", "a,b", "|sh", "/etc/passwd", "a@b@c", "<a@b>", "ö@example.org"],
)
def test_what_is_no_address(address: str) -> None:
    assert "alerts[0].to[0]" in _says(f'{{kind: mail, to: ["{address}"]}}')
    assert "alerts[0].from" in _says(f'{{kind: mail, to: [root], from: "{address}"}}')


def test_a_mail_program_is_named_by_its_whole_path() -> None:
    assert "alerts[0].program" in _says("{kind: mail, to: [root], program: sendmail}")


@pytest.mark.parametrize("url", ["https://ntfy.sh/topic", "http://127.0.0.1:8080/push/my-topic_1/", "https://[::1]/t"])
def test_topics(url: str) -> None:
    assert _says(f'{{kind: ntfy, url: "{url}"}}') == ""


@pytest.mark.parametrize(
    "url",
    ["https://ntfy.sh", "https://ntfy.sh/", "https://ntfy.sh/a.b", "https://ntfy.sh/" + "x" * 65, "ntfy.sh/topic"],
)
def test_a_url_without_a_topic(url: str) -> None:
    assert "alerts[0].url" in _says(f'{{kind: ntfy, url: "{url}"}}')


def test_users() -> None:
    assert _says("{kind: desktop, users: [ann, _ml.user-1]}") == ""
    assert "alerts[0].users[0]" in _says("{kind: desktop, users: ['a b']}")
