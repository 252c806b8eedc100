"""Alert sinks of the configuration: what all of them have, and the keys of each kind.

A kind is the name of its module in `moetuned/alerts`. The sink `journal` has no entry here: it is always on.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from moetuned.schema.config_types import Duration
from moetuned.schema.event import EventName

Url = Annotated[
    str,
    Meta(
        pattern=r"^https?://(\[[0-9a-fA-F:.]{2,45}\]|[A-Za-z0-9_.-]{1,253})(:[0-9]{1,5})?(/[!-~]{0,1900})?$",
        extra={
            "allowed": "must be http:// or https://, a host, and where needed a port and a path, without user and password, "
            "e.g. https://alerts.example.org/hook"
        },
    ),
]
TopicUrl = Annotated[
    str,
    Meta(
        pattern=r"^https?://(\[[0-9a-fA-F:.]{2,45}\]|[A-Za-z0-9_.-]{1,253})(:[0-9]{1,5})?(/[!-~]{0,1900})?/[-_A-Za-z0-9]{1,64}/?$",
        extra={
            "allowed": "must be http:// or https://, a host and a topic of at most 64 letters, digits, hyphens and underscores, without user "
            "and password, e.g. https://ntfy.sh/a-name-that-nobody-guesses"
        },
    ),
]
MailAddress = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9_][A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{0,63}(@[A-Za-z0-9][A-Za-z0-9.:-]{0,252}|@\[[0-9A-Fa-f:.]{2,45}\])?$",
        extra={
            "allowed": "must be a user of this machine or a mail address, without a name, e.g. root or me@example.org"
        },
    ),
]
"""What no mail program takes for an option or for two addresses."""
UserName = Annotated[
    str,
    Meta(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,254}\$?$", extra={"allowed": "must be the name of a user, e.g. ann"}),
]
SecretFile = Annotated[
    str,
    Meta(
        pattern=r"^/[^\0\n]{1,1000}$",
        extra={"allowed": "must be an absolute path, e.g. /etc/moetuned/secrets/alerts"},
    ),
]
Ends = Annotated[
    bool,
    Meta(
        description="Also tell the end of what was told, such as thrash_end after thrash_begin, where on: does not name it. A sink of kind exec "
        "does so only where this says true."
    ),
]
Priority = Literal["min", "low", "default", "high", "urgent"]


class Sink(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="kind"):
    """What every sink has."""

    name: Annotated[
        Annotated[
            str,
            Meta(
                pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$",
                extra={
                    "allowed": "must be at most 63 letters, digits, points, hyphens and underscores, and begin with a letter or digit"
                },
            ),
        ]
        | None,
        Meta(
            description="Its name for moetunectl alerts; unset: its kind, with -2, -3, … from the second of a kind on."
        ),
    ] = None
    on: Annotated[
        list[EventName],
        Meta(
            description="Events to tell; unset or empty (on: []): all of them. backend_down stands for its kinds too: "
            "backend_oom_killed, backend_hung, backend_model_missing, backend_port_taken and backend_crash_loop."
        ),
    ] = []
    ends: Ends = True
    backends: Annotated[
        list[str],
        Meta(description="Only what is about these backends; unset or empty: all, and what is about the machine."),
    ] = []
    at_most: Annotated[
        Annotated[
            str,
            Meta(
                pattern=r"^[1-9]\d{0,2}/(h|d)$",
                extra={"allowed": "must be a number of alerts from 1 to 999 an hour or a day, e.g. 20/h or 50/d"},
            ),
        ]
        | None,
        Meta(
            description="Most alerts in a time, e.g. 20/h; how many were held back is told with the next. Unset: no limit."
        ),
    ] = None
    quiet_hours: Annotated[
        Annotated[
            str,
            Meta(
                pattern=r"^([01]\d|2[0-3]):[0-5]\d-([01]\d|2[0-3]):[0-5]\d$",
                extra={"allowed": "must be two local times of day, e.g. 22:00-07:00"},
            ),
        ]
        | None,
        Meta(
            description="Local time of day at which nothing is told, e.g. 22:00-07:00; what began then and is still so is told when it is "
            "over. Unset: none."
        ),
    ] = None
    loud: Annotated[list[EventName], Meta(description="Events that are told in quiet hours all the same.")] = []
    timeout: Annotated[Duration, Meta(description="A delivery that takes longer is ended, 100ms to 10m.")] = "10s"


class ExecAlert(Sink, frozen=True, tag="exec"):
    """Run every executable of a directory, facts in the environment and as JSON on standard input."""

    directory: Annotated[str, Meta(description="Directory owned by root and writable by nobody else.")] = (
        "/etc/moetuned/hooks.d"
    )
    ends: Ends = False


class WebhookAlert(Sink, frozen=True, tag="webhook"):
    """Send each event as JSON to a URL (POST)."""

    url: Annotated[Url, Meta(description="Where to send it.")]
    headers_file: Annotated[
        SecretFile | None,
        Meta(
            description="File with headers to send, one a line, e.g. Authorization: Bearer …; of root and readable by nobody else. Unset: none."
        ),
    ] = None
    proxy: Annotated[
        Url | None,
        Meta(description="HTTP proxy to go through; the environment's are never used. Unset: none."),
    ] = None


class AlertmanagerAlert(Sink, frozen=True, tag="alertmanager"):
    """Raise and resolve alerts in Prometheus Alertmanager (API v2)."""

    urls: Annotated[
        list[Url],
        Meta(min_length=1, max_length=8, description="Each Alertmanager of the cluster, e.g. [http://127.0.0.1:9093]."),
    ]
    labels: Annotated[dict[str, str], Meta(description="Labels to add to each alert, e.g. {team: ml}.")] = {}
    headers_file: Annotated[
        SecretFile | None,
        Meta(
            description="File with headers to send, one a line, e.g. Authorization: Bearer …; of root and readable by nobody else. Unset: none."
        ),
    ] = None


class NtfyAlert(Sink, frozen=True, tag="ntfy"):
    """Push to phones and browsers that subscribe to a topic of an ntfy server."""

    url: Annotated[TopicUrl, Meta(description="The topic's URL, e.g. https://ntfy.sh/a-name-that-nobody-guesses.")]
    token_file: Annotated[
        SecretFile | None,
        Meta(description="File with an access token; of root and readable by nobody else. Unset: none."),
    ] = None
    priority: Annotated[
        dict[EventName, Priority],
        Meta(
            description="Priority of events that are to have another than they have, e.g. {backend_down: urgent}: min, low, default, high or "
            "urgent."
        ),
    ] = {}
    click: Annotated[
        Url | None, Meta(description="Address to open when it is tapped, e.g. of a dashboard; unset: none.")
    ] = None


class DesktopAlert(Sink, frozen=True, tag="desktop"):
    """Show a notification on the desktop of users who are logged in."""

    users: Annotated[
        list[UserName], Meta(description="Only to these users; unset or empty: to all who are logged in to a desktop.")
    ] = []


class MailAlert(Sink, frozen=True, tag="mail"):
    """Send a mail with the sendmail program of this machine."""

    to: Annotated[
        list[MailAddress], Meta(min_length=1, max_length=16, description="Addresses to send it to, e.g. [root].")
    ]
    sender: Annotated[
        MailAddress | None, Meta(description="Address that it comes from; unset: what the mail program says.")
    ] = msgspec.field(default=None, name="from")
    program: Annotated[
        Annotated[
            str,
            Meta(pattern=r"^/[^\0\n]{1,1000}$", extra={"allowed": "must be an absolute path, e.g. /usr/sbin/sendmail"}),
        ],
        Meta(description="Program that takes the mail as sendmail does; of root and writable by nobody else."),
    ] = "/usr/sbin/sendmail"


Alert = ExecAlert | WebhookAlert | AlertmanagerAlert | NtfyAlert | DesktopAlert | MailAlert


JOURNAL = "journal"
"""Kind and name of the sink that is always on."""


class JournalAlert(Sink, frozen=True, tag=JOURNAL):
    """Every event in systemd's journal. No config names it."""


def kind_of_sink(sink: Sink) -> str:
    """Its kind, as the configuration writes it; the name of its module in `moetuned/alerts`."""
    return str(type(sink).__struct_config__.tag)


def sink_names(sinks: list[Alert]) -> list[str]:
    """What each is called: its own name, else its kind, with -2, -3, … from the second of a kind on. No two are the same."""
    names: list[str] = [sink.name or "" for sink in sinks]
    for index, sink in enumerate(sinks):
        kind, number = kind_of_sink(sink), 1
        while not names[index]:
            free = kind if number == 1 else f"{kind}-{number}"
            names[index] = free if free not in names else ""
            number += 1
    return names
