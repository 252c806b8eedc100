"""Which path answers what: one request and the last Snapshot in, one answer out. Knows nothing of sockets."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar
from urllib.parse import parse_qsl

import msgspec

from moetuned.api.wire import Answer, Request
from moetuned.schema.capability import Capabilities
from moetuned.schema.event import KeptEvents
from moetuned.schema.explanation import Explanation, Explanations
from moetuned.schema.history import HISTORY_SECONDS, Histories
from moetuned.schema.relief import ReliefPlan, ReliefPlans
from moetuned.schema.snapshot import Snapshot
from moetuned.schema.supervision import BackendDo
from moetuned.schema.unicode_text import unicode_json

if TYPE_CHECKING:  # the daemon makes one only when somebody asks
    from moetuned.schema.alert_view import AlertsAnswer

log = logging.getLogger(__name__)

_JSON = "application/json"
_TEXT = "text/plain; charset=utf-8"
_LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
_WHOLE = re.compile(r"[0-9]{1,4}")
_GET_PATHS = (
    "/",
    "/healthz",
    "/metrics",
    "/v1/alerts",
    "/v1/capabilities",
    "/v1/events",
    "/v1/explain",
    "/v1/history",
    "/v1/relief",
    "/v1/status",
)
_QUERY_KEYS = {
    "/v1/events": ("since",),
    "/v1/explain": ("backend",),
    "/v1/history": ("backend", "seconds"),
    "/v1/relief": ("backend",),
}

_Told = TypeVar("_Told", Explanation, ReliefPlan)

Handler = Callable[[str, Mapping[str, object]], tuple[int, object]]
"""`handler(action, payload)` carries out a POST in the loop and returns an HTTP status and what to send as JSON."""

Remember = Callable[[int, str | None], Histories]
"""`remember(seconds, backend)`: the last seconds (1 to 600) of one backend, None: of all."""


class ReloadRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Payload of POST /v1/reload: nothing."""


class WarmRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Payload of POST /v1/warm: which backend's model to warm now."""

    backend: str


class AlertTestRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Payload of POST /v1/alerts/test: which sink to try (null: all)."""

    sink: str | None = None


class TuneDo(StrEnum):
    """What is to be done about the kernel settings."""

    APPLY = "apply"
    ROLLBACK = "rollback"


class TuneRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Payload of POST /v1/tune. `config`, `profile` and `journal` are what the caller means; others than the daemon's are refused."""

    do: TuneDo
    config: str | None = None
    profile: str | None = None
    journal: str | None = None


class BackendRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Payload of POST /v1/backend. `context`: tokens, for a restart only; `now`: do not wait for requests; `dry_run`: only say."""

    backend: str
    do: BackendDo
    context: Annotated[int, msgspec.Meta(ge=256, le=1 << 24)] | None = None
    now: bool = False
    dry_run: bool = False


ACTIONS: dict[str, type[msgspec.Struct]] = {
    "alerts/test": AlertTestRequest,
    "backend": BackendRequest,
    "reload": ReloadRequest,
    "tune": TuneRequest,
    "warm": WarmRequest,
}
"""What POST /v1/<name> takes."""


class Caller(msgspec.Struct, frozen=True):
    """Who asks: over which transport, and whether its credentials allow actions."""

    transport: Literal["unix", "tcp"]
    may_act: bool = False
    group: str = "moetuned"
    host_names: frozenset[str] = _LOCAL_NAMES


class Refusal(Exception):  # noqa: N818  an answer, not a fault of ours
    """A request that gets an error answer of one sentence."""

    def __init__(self, status: int, sentence: str, headers: tuple[tuple[str, str], ...] = ()) -> None:
        super().__init__(sentence)
        self.status = status
        self.headers = headers


class Routes:
    """Answers requests from the last Snapshot. What is costly to render is rendered once a Snapshot.

    `snapshot` returns the last Snapshot, None before the first tick; `events` returns the kept events after an id or a Unix time
    (None: all of them), oldest first; `alerts` returns how the alert sinks are; `explain` returns why the verdicts are what they are,
    `relief` what relief would do now, both worked out at each call; `history` returns the last seconds of one backend or of all (None);
    `capabilities` what the self-test found.
    """

    def __init__(
        self,
        snapshot: Callable[[], Snapshot | None],
        events: Callable[[str | float | None], KeptEvents],
        handler: Handler,
        explain: Callable[[], Explanations] = Explanations,
        relief: Callable[[], ReliefPlans] = ReliefPlans,
        alerts: Callable[[], AlertsAnswer] | None = None,
        history: Remember = lambda _seconds, _backend: Histories(),
        capabilities: Callable[[], Capabilities] = Capabilities,
    ) -> None:
        self._alerts = alerts
        self._capabilities = capabilities
        self._explain = explain
        self._history = history
        self._relief = relief
        self._snapshot = snapshot
        self._events = events
        self._handler = handler
        self._rendered: tuple[Snapshot | None, dict[str, Answer]] = (None, {})

    def answer(self, request: Request, caller: Caller) -> Answer:
        """The answer to any request; never raises."""
        try:
            return self._route(request, caller)
        except Refusal as refusal:
            return error_answer(refusal.status, str(refusal), refusal.headers)
        except Exception:
            log.exception("request %s %.100s failed", request.method, request.target)
            return error_answer(500, "The daemon failed to answer this; its log says why.")

    def _route(self, request: Request, caller: Caller) -> Answer:
        _check_host(request, caller)
        _check_origin(request)
        path, query = _split_target(request.target)
        if request.method == "POST":
            if caller.transport != "unix":
                raise Refusal(405, "This port only answers GET; actions go over the Unix socket.", _allow("GET, HEAD"))
            return self._post(path, query, request, caller)
        if request.method not in ("GET", "HEAD"):
            raise Refusal(405, f"The method {request.method[:20]} is not known here.", _allow("GET, HEAD, POST"))
        if path not in _GET_PATHS:
            if path.removeprefix("/v1/") in ACTIONS:
                raise Refusal(405, f"{path} wants POST, over the Unix socket.", _allow("POST"))
            raise Refusal(404, f"There is no {_shown(path)}; GET / names the paths there are.")
        unknown = [key for key in query if key not in _QUERY_KEYS.get(path, ())]
        if unknown:
            raise Refusal(400, f"{path} takes no query {_shown(unknown[0])}.")
        return self._get(path, query, request.headers.get("accept"))

    def _get(self, path: str, query: dict[str, str], accept: str | None) -> Answer:
        match path:
            case "/":
                names = ", ".join((*_GET_PATHS[1:], *(f"POST /v1/{name}" for name in sorted(ACTIONS))))
                return Answer(200, _TEXT, f"moetuned answers at {names}\n".encode())
            case "/healthz":
                self._last()
                return Answer(200, _TEXT, b"ok\n")
            case "/v1/alerts":
                return _json(200, {"sinks": []} if self._alerts is None else self._alerts())
            case "/v1/capabilities":
                return _json(200, self._capabilities())
            case "/v1/events":
                return _json(200, self._events(_since(query.get("since"))))
            case "/v1/explain":
                self._last()
                return _json(200, Explanations(_of_backend(self._explain().backends, query.get("backend"))))
            case "/v1/history":
                asked = _known([one.name for one in self._last().backends], query.get("backend"))
                return _json(200, self._history(_seconds(query.get("seconds")), asked))
            case "/v1/relief":
                self._last()
                return _json(200, ReliefPlans(_of_backend(self._relief().backends, query.get("backend"))))
            case _:
                return self._render(path, self._last(), openmetrics=path == "/metrics" and _prefers_openmetrics(accept))

    def _last(self) -> Snapshot:
        snapshot = self._snapshot()
        if snapshot is None:
            raise Refusal(503, "The daemon is starting and has not looked yet; ask again in a second.")
        return snapshot

    def _render(self, path: str, snapshot: Snapshot, *, openmetrics: bool) -> Answer:
        if self._rendered[0] is not snapshot:
            self._rendered = (snapshot, {})
        kept, key = self._rendered[1], f"{path} openmetrics" if openmetrics else path
        if key not in kept:
            kept[key] = _json(200, snapshot) if path == "/v1/status" else _metrics(snapshot, openmetrics=openmetrics)
        return kept[key]

    def _post(self, path: str, query: dict[str, str], request: Request, caller: Caller) -> Answer:
        name = path.removeprefix("/v1/")
        if not path.startswith("/v1/") or name not in ACTIONS:
            if path in _GET_PATHS:
                raise Refusal(405, f"{path} only answers GET.", _allow("GET, HEAD"))
            raise Refusal(404, f"There is no action {_shown(path)}; GET / names the paths there are.")
        if not caller.may_act:
            raise Refusal(403, f"Only root and members of the group {caller.group} may do this.")
        if query:
            raise Refusal(400, f"{path} takes no query; send JSON in the body.")
        try:
            payload = msgspec.json.decode(request.body or b"{}", type=ACTIONS[name])
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Refusal(400, f"The body of POST {path} is not right: {error}.") from error
        status, result = self._handler(name, msgspec.to_builtins(payload))
        return _json(status, result)


def error_answer(status: int, sentence: str, headers: tuple[tuple[str, str], ...] = ()) -> Answer:
    """An error as JSON: {"error": sentence}."""
    return Answer(status, _JSON, unicode_json({"error": sentence}) + b"\n", headers)


def _json(status: int, value: object) -> Answer:
    return Answer(status, _JSON, unicode_json(value) + b"\n")


def _allow(methods: str) -> tuple[tuple[str, str], ...]:
    return (("Allow", methods),)


def _shown(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:77] + "...")


def _of_backend(found: tuple[_Told, ...], backend: str | None) -> tuple[_Told, ...]:
    if backend is None:
        return found
    _known([one.backend for one in found], backend)
    return tuple(one for one in found if one.backend == backend)


def _known(names: Sequence[str], backend: str | None) -> str | None:
    if backend is not None and backend not in names:
        raise Refusal(404, f"There is no backend {_shown(backend)}; there are: {', '.join(names) or 'none'}.")
    return backend


def _seconds(text: str | None) -> int:
    if text is None:
        return HISTORY_SECONDS
    if not _WHOLE.fullmatch(text) or not 1 <= int(text) <= HISTORY_SECONDS:
        raise Refusal(400, f"seconds={_shown(text)} is no whole number from 1 to {HISTORY_SECONDS}.")
    return int(text)


def _since(text: str | None) -> str | float | None:
    if text is None:
        return None
    from moetuned.parse.event_since import event_since  # few ask so, and its expressions take memory

    try:
        return event_since(text)
    except ValueError as error:
        raise Refusal(400, f"since={_shown(text)} {error}.") from error


def _split_target(target: str) -> tuple[str, dict[str, str]]:
    """Path and query. Paths are compared as they come: none of ours needs percent-encoding."""
    if not target.startswith("/"):
        raise Refusal(400, f"The target {_shown(target)} is no path.")
    path, _, text = target.partition("?")
    try:
        pairs = parse_qsl(text, keep_blank_values=True, strict_parsing=bool(text), max_num_fields=8)
    except ValueError as error:
        raise Refusal(400, f"The query {_shown(text)} cannot be read: {error}.") from error
    query = dict(pairs)
    if len(query) != len(pairs):
        raise Refusal(400, f"The query {_shown(text)} names a key twice.")
    return path, query


# The catalogue reads the text of every signal; a daemon that nobody scrapes does without what follows.


def _prefers_openmetrics(accept: str | None) -> bool:
    from moetuned.parse.accept_header import prefers_openmetrics

    return prefers_openmetrics(accept)


def _metrics(snapshot: Snapshot, *, openmetrics: bool) -> Answer:
    from moetuned.api.metrics import CONTENT_TYPE, OPENMETRICS_CONTENT_TYPE, render

    kind = OPENMETRICS_CONTENT_TYPE if openmetrics else CONTENT_TYPE
    return Answer(200, kind, render(snapshot, openmetrics=openmetrics))


def _check_host(request: Request, caller: Caller) -> None:
    """On TCP the Host must be a name of this machine's loopback: a foreign one means that a web page on the internet
    has pointed its own name at 127.0.0.1 (DNS rebinding). Any port will do, so that ssh -L works.
    """
    host = request.headers.get("host")
    if caller.transport != "tcp" or host is None:  # HTTP/1.0 without Host: no browser sends that
        return
    name = re.sub(r":\d*$", "", host.strip().lower())
    if name not in caller.host_names:
        raise Refusal(421, f"The Host {_shown(host)} is not this machine's loopback; use localhost or 127.0.0.1.")


def _check_origin(request: Request) -> None:
    """Refuse what a script of another site sends (Fetch Metadata, W3C); following a link to us stays possible."""
    origin, host = request.headers.get("origin"), request.headers.get("host", "")
    if origin is not None and origin.lower() != f"http://{host.strip().lower()}":
        raise Refusal(403, "Requests from other origins are not answered.")
    if request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and (
        request.headers.get("sec-fetch-mode") != "navigate" or request.headers.get("sec-fetch-dest") != "document"
    ):
        raise Refusal(403, "Requests from other sites are not answered.")
