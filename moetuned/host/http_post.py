"""One POST to a server that an administrator named, for alert sinks in a process of their own: http and ssl are large.

The certificate is judged by the system's CA store. No proxy of the environment is used; no redirect to another host is followed; of the
answer only the beginning is read.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

import msgspec

from moetuned import __version__
from moetuned.parse.alert_url import shown_url
from moetuned.parse.post_answer import judge_status

if TYPE_CHECKING:
    from http.client import HTTPResponse

ANSWER_LIMIT_BYTES = 64 << 10
_MOST_REDIRECTS = 3
_KEEP_METHOD = (307, 308)


class Posted(msgspec.Struct, frozen=True):
    """What came of it. `status` None: no answer. `detail`: one sentence without secrets. `body`: the beginning of the answer.

    `retry`: the same request may go well later; `retry_after_seconds`: no sooner than that.
    """

    ok: bool
    detail: str
    retry: bool
    status: int | None = None
    retry_after_seconds: float | None = None
    body: bytes = b""


def post(url: str, body: bytes, headers: Mapping[str, str], seconds: float, proxy: str | None = None) -> Posted:
    """Send `body` to the URL, within `seconds` altogether. Never raises for what the other side does, or for a URL that is none.

    In the main thread only: its time is kept by SIGALRM.
    """
    import http.client

    try:
        with _within(seconds):
            return _post(url, body, headers, seconds, proxy)
    except (OSError, http.client.HTTPException, ValueError) as error:
        return Posted(False, f"{shown_url(url)}: {_why(error)}", retry=not isinstance(error, ValueError))


@contextlib.contextmanager
def _within(seconds: float) -> Iterator[None]:
    """Raise TimeoutError in here after so long: a socket's own limit begins anew with each byte that comes."""

    def late(_number: int, _frame: object) -> None:
        raise TimeoutError

    before, began = signal.signal(signal.SIGALRM, late), time.monotonic()
    left, _ = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if left:  # by which this process ends itself
            signal.setitimer(signal.ITIMER_REAL, max(0.001, left - (time.monotonic() - began)))


def _post(url: str, body: bytes, headers: Mapping[str, str], seconds: float, proxy: str | None) -> Posted:
    for _ in range(_MOST_REDIRECTS + 1):
        posted, location = _post_once(url, body, headers, seconds, proxy)
        if location is None:
            return posted
        further = urljoin(url, location)
        if urlsplit(further)[:2] != urlsplit(url)[:2]:
            detail = (
                f"{posted.detail}: it sends on to {shown_url(further)}, which is not followed; write that as its url"
            )
            return msgspec.structs.replace(posted, detail=detail)
        url = further
    return msgspec.structs.replace(posted, detail=f"{shown_url(url)} sends on without end")


def _beginning(answer: HTTPResponse) -> bytes:
    """What it says, as far as it comes: what was answered is known, and stays so where the rest breaks off or never ends."""
    import http.client

    said = b""
    with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
        while len(said) < ANSWER_LIMIT_BYTES and (more := answer.read1(ANSWER_LIMIT_BYTES - len(said))):
            said += more
    return said


def _why(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    text = getattr(error, "verify_message", None) or getattr(error, "strerror", None)
    if text is None:
        text = "it closed the connection without an answer" if not str(error) else "its answer is not HTTP"
    return str(text)


def _post_once(
    url: str, body: bytes, headers: Mapping[str, str], seconds: float, proxy: str | None
) -> tuple[Posted, str | None]:
    """What came of it, and where it wants the same request to be sent to."""
    import http.client

    parts = urlsplit(url)
    target = f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}"
    if parts.hostname is None:
        raise ValueError("this is no URL")
    connection: http.client.HTTPConnection
    via = urlsplit(proxy or url)
    port = via.port or (443 if via.scheme == "https" else 80)
    if parts.scheme == "https":
        import ssl

        connection = http.client.HTTPSConnection(
            via.hostname or "", port, timeout=seconds, context=ssl.create_default_context()
        )
        if proxy is not None:
            connection.set_tunnel(parts.hostname, parts.port or 443)
    else:
        connection = http.client.HTTPConnection(via.hostname or "", port, timeout=seconds)
        if proxy is not None:
            target = f"http://{parts.netloc}{target}"
    try:
        connection.request(
            "POST", target, body, {"User-Agent": f"moetuned/{__version__}", "Connection": "close", **headers}
        )
        answer = connection.getresponse()
        judged = judge_status(answer.status, answer.reason, answer.getheader("Retry-After"), time.time())
        posted = Posted(
            judged.ok,
            f"{shown_url(url)} {judged.detail}",
            judged.retry,
            answer.status,
            judged.retry_after_seconds,
            b"" if judged.ok else _beginning(answer),
        )
        moved = 300 <= answer.status < 400 and (
            answer.status in _KEEP_METHOD or answer.getheader("Location") is not None
        )
        location = answer.getheader("Location") if moved else None
        if location is not None and answer.status not in _KEEP_METHOD:
            further = shown_url(urljoin(url, location))
            return msgspec.structs.replace(
                posted, detail=f"{posted.detail}: it sends on to {further}; correct its url"
            ), None
        return posted, location
    finally:
        connection.close()
