"""HTTP answers of every kind of backend: what each is asked, and what its answers say."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from moetuned.parse import kobold_http, ollama_http
from moetuned.parse.kobold_http import parse_kobold_http
from moetuned.parse.llama_http import parse_llama_http
from moetuned.parse.llama_python_http import PAGE, parse_llama_python_http
from moetuned.parse.numbers_http import numbers_paths, parse_numbers_http
from moetuned.parse.ollama_http import parse_ollama_http, parse_ollama_runner_http
from moetuned.schema.backend_abilities import Dialect, HttpPaths
from moetuned.schema.sample import BackendHttp, HttpNumbers

LLAMA_PATHS = HttpPaths("/health", "/props", "/slots", "/metrics")
_PATHS = {
    Dialect.LLAMA: LLAMA_PATHS,
    Dialect.LLAMA_PYTHON: HttpPaths(PAGE),
    Dialect.OLLAMA: HttpPaths(ollama_http.VERSION, metrics=ollama_http.LOADED),
    Dialect.OLLAMA_RUNNER: HttpPaths(ollama_http.HEALTH),
    Dialect.KOBOLD: HttpPaths(kobold_http.PERFORMANCE, metrics=kobold_http.CONTEXT),
}
_PARSERS: dict[Dialect, Callable[[Mapping[str, str]], BackendHttp | None]] = {
    Dialect.LLAMA: parse_llama_http,
    Dialect.LLAMA_PYTHON: parse_llama_python_http,
    Dialect.OLLAMA: parse_ollama_http,
    Dialect.OLLAMA_RUNNER: parse_ollama_runner_http,
    Dialect.KOBOLD: parse_kobold_http,
}


def paths_of(dialect: Dialect, numbers: HttpNumbers | None = None) -> HttpPaths | None:
    """What a backend that answers so is asked; None: nothing can be asked. `numbers`: of the dialect "generic"."""
    return _PATHS.get(dialect) if dialect is not Dialect.GENERIC else numbers_paths(numbers)


def parse_backend_http(
    bodies: Mapping[str, str], dialect: Dialect = Dialect.LLAMA, numbers: HttpNumbers | None = None
) -> BackendHttp | None:
    """What the bodies by path say; None when nothing was asked."""
    if not bodies:
        return None
    if dialect is Dialect.GENERIC:
        return None if numbers is None else parse_numbers_http(bodies, numbers)
    return _PARSERS[dialect](bodies)
