"""HTTP answers of every kind: cases with their bodies in http_bodies/, one file a dialect, and rubbish for each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from moetuned.parse.backend_http import parse_backend_http, paths_of
from moetuned.parse.redact_http import redact_http
from moetuned.schema.backend_abilities import Dialect, HttpPaths
from moetuned.schema.sample import BackendHttp, HttpNumbers

DIRECTORY = Path(__file__).with_name("http_bodies")
CASES = [
    pytest.param(Dialect(path.stem), case, id=f"{path.stem}: {case['about']}")
    for path in sorted(DIRECTORY.glob("*.yaml"))
    for case in yaml.safe_load(path.read_text())
]
TOLD = [dialect for dialect in Dialect if dialect is not Dialect.GENERIC]
NUMBERS = HttpNumbers("/health", "/metrics", "tokens (.*)", "prompt (.*)", "busy (.*)")


@pytest.mark.parametrize(("dialect", "case"), CASES)
def test_what_an_answer_says(dialect: Dialect, case: dict[str, Any]) -> None:
    assert case["source"].startswith(("Recorded", "Composed"))
    assert parse_backend_http(case["bodies"], dialect) == msgspec.convert(case["expect"], BackendHttp)


@pytest.mark.parametrize(("dialect", "case"), CASES)
def test_an_answer_without_its_words_says_the_same(dialect: Dialect, case: dict[str, Any]) -> None:
    redacted = redact_http(case["bodies"], dialect)
    assert parse_backend_http(redacted, dialect) == parse_backend_http(case["bodies"], dialect)
    assert not any(word in "".join(redacted.values()) for word in ("mistral", "html", "0.14.2"))


def test_there_are_cases_for_every_dialect() -> None:
    assert {path.stem for path in DIRECTORY.glob("*.yaml")} == {dialect.value for dialect in TOLD}


@pytest.mark.parametrize("dialect", TOLD)
def test_nothing_was_asked(dialect: Dialect) -> None:
    assert parse_backend_http({}, dialect) is None
    assert paths_of(dialect) is not None


def test_a_generic_one_without_a_word_on_its_paths_is_not_asked() -> None:
    assert paths_of(Dialect.GENERIC) is None
    assert parse_backend_http({"/health": "ok"}, Dialect.GENERIC) is None
    assert paths_of(Dialect.GENERIC, NUMBERS) == HttpPaths("/health", metrics="/metrics")
    assert redact_http({"/health": "ok", "/metrics": "tokens 5"}, Dialect.GENERIC) == {}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(("status", "idle", "queue", "value", "models", "context_length", "version", "n_decoded")),
            inner,
            max_size=3,
        )
    ),
)


@pytest.mark.parametrize("dialect", Dialect)
@given(data=st.data())
def test_rubbish_raises_nothing_and_gives_no_senseless_number(dialect: Dialect, data: st.DataObject) -> None:
    paths = paths_of(dialect, NUMBERS)
    assert paths is not None
    text = JSON.map(lambda value: msgspec.json.encode(value).decode(errors="replace")) | st.text(max_size=60)
    asked = [path for path in (paths.health, paths.props, paths.slots, paths.metrics) if path is not None]
    bodies = {path: data.draw(text) for path in asked}
    http = parse_backend_http(bodies, dialect, NUMBERS)
    assert http is not None
    assert http.health in ("ok", "loading", "busy", "unreachable", "error")
    numbers = (http.context_length, http.requests_processing, http.requests_deferred, http.tokens_predicted_total)
    assert all(number is None or 0 <= number < 1 << 53 for number in numbers)
    if dialect is not Dialect.GENERIC:
        assert parse_backend_http(redact_http(bodies, dialect), dialect) == http
