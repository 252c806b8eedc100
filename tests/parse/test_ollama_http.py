"""Ollama over HTTP: bodies are in http_bodies/; here what is too much or was not asked."""

from __future__ import annotations

from moetuned.parse.ollama_http import MOST_LOADED, parse_ollama_http, parse_ollama_runner_http


def test_more_models_than_any_machine_has_are_none() -> None:
    body = '{"models":[' + ",".join(["{}"] * (MOST_LOADED + 1)) + "]}"
    assert parse_ollama_http({"/api/version": "{}", "/api/ps": body}).sleeping is None


def test_what_was_not_asked_is_unknown() -> None:
    assert parse_ollama_http({"/api/ps": '{"models":[]}'}).health is None
    assert parse_ollama_runner_http({"/other": "{}"}).health is None
    assert parse_ollama_runner_http({"/health": "!timeout"}).health == "busy"
