"""KoboldCpp over HTTP: bodies are in http_bodies/; here what was not asked."""

from __future__ import annotations

from moetuned.parse.kobold_http import CONTEXT, PERFORMANCE, parse_kobold_http


def test_without_its_first_answer_nothing_is_known() -> None:
    assert parse_kobold_http({CONTEXT: '{"value": 4096}'}).health is None


def test_counts_of_the_last_request_are_none_of_the_running_one() -> None:
    said = parse_kobold_http({PERFORMANCE: '{"last_token_count": 220, "idle": 0}'})
    assert said.tokens_predicted_total is None
    assert said.requests_processing == 1
