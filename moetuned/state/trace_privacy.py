"""What of a backend may stand in a trace: everything that parsers read, and nothing that is only the business of who recorded it.

What goes in is redacted here before it is written; nothing else may write a trace's line. `anonymous` takes out names of people and
places as well: directories, units and containers, the backend's name in the config.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from moetuned.parse.redact_command import file_name, redact_arguments, redact_environment
from moetuned.parse.redact_files import CGROUP_ROOT, anonymous_cgroup, redact_file
from moetuned.parse.redact_http import redact_http
from moetuned.schema.sample import BackendIdentity, KeptCgroup, RawBackend, RawSample
from moetuned.state.trace import TraceBackend

ANONYMOUS_NAME = "backend"
ANONYMOUS_DIRECTORY = "/models"


class Privacy:
    """For one recording. Pure: the same text always becomes the same."""

    def __init__(self, identity: BackendIdentity, *, anonymous: bool = False) -> None:
        """`identity`: of the backend that is recorded."""
        self.anonymous = anonymous
        self.name = ANONYMOUS_NAME if anonymous else identity.name
        self._identity = identity
        own = [] if identity.cgroup_directory is None else [identity.cgroup_directory]
        self._places = {one: anonymous_cgroup(one) for one in (*own, *identity.limited_above)} if anonymous else {}
        if anonymous:
            self._places = {**_kept_places(identity.kept, self._places), **self._places}
        self.identity = msgspec.structs.replace(
            identity,
            name=self.name,
            url=_address(identity.url),
            cgroup_directory=self._place(identity.cgroup_directory),
            limited_above=tuple(self._places.get(one, one) for one in identity.limited_above),
            numbers=None,
            kept=tuple(
                msgspec.structs.replace(one, directory=self._places.get(one.directory, one.directory))
                for one in identity.kept
            ),
        )
        """The backend's identity as the trace has it: with the paths of `sample`."""

    def backend(self, backend: TraceBackend) -> TraceBackend:
        """The first line's `backend`. An address keeps host and port: a prefix may be secret."""
        model = backend.model
        if model is not None and model.path is not None:
            model = msgspec.structs.replace(model, path=self._model(model.path))
        return TraceBackend(self.name, backend.pid, _address(backend.url), model, self.identity, backend.facts)

    def static(
        self, texts: Mapping[str, str | None], argv: Sequence[str] | None, variables: Mapping[str, str]
    ) -> dict[str, str | None]:
        """The first line's `static`: texts of files, and the command line and environment as /proc would show them."""
        directory = f"/proc/{self._identity.pid}"
        kept = {path: redact_file(path, text) for path, text in texts.items()}
        if self.anonymous:
            kept.pop(f"{directory}/cgroup", None)
        told = None if argv is None else redact_arguments(argv, anonymous=self.anonymous)
        said = redact_environment(variables, anonymous=self.anonymous)
        kept[f"{directory}/cmdline"] = None if told is None else "".join(one + "\0" for one in told)
        kept[f"{directory}/environ"] = "".join(f"{name}={value}\0" for name, value in said.items())
        return kept

    def sample(self, raw: RawSample) -> RawSample:
        """A sample of this backend alone."""
        own = raw.backends.get(self._identity.name, RawBackend())
        files = {self._path(path): redact_file(path, text) for path, text in raw.files.items()}
        backend = RawBackend(redact_http(own.http, self._identity.dialect), own.residency)
        return RawSample(raw.t, raw.wall, files, {self.name: backend})

    def _model(self, path: str) -> str:
        shown = path.encode("utf-8", "replace").decode("utf-8")  # a file's name may hold bytes that are no UTF-8
        return f"{ANONYMOUS_DIRECTORY}/{file_name(shown)}" if self.anonymous else shown

    def _place(self, directory: str | None) -> str | None:
        return None if directory is None else self._places.get(directory, directory)

    def _path(self, path: str) -> str:
        directory, _, name = path.rpartition("/")
        place = self._places.get(directory)
        return path if place is None else f"{place}/{name}"


def _kept_places(kept: Iterable[KeptCgroup], places: Mapping[str, str]) -> dict[str, str]:
    """Anonymous names of cgroups that may be anybody's, below and above the same ones as they are."""
    found: dict[str, str] = {}
    for number, one in enumerate(sorted(kept, key=lambda each: each.directory), 1):
        if any(f"{each}/".startswith(f"{one.directory}/") for each in places):
            found[one.directory] = anonymous_cgroup(one.directory)
            continue
        known = {**places, **found}
        above = max((each for each in known if one.directory.startswith(f"{each}/")), key=len, default=None)
        found[one.directory] = f"{CGROUP_ROOT if above is None else known[above]}/kept{number}"
    return found


def _address(url: str | None) -> str | None:
    """Scheme, host and port."""
    return None if url is None else "/".join(url.split("/")[:3])
