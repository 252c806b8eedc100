"""Whether a request to tune means what the daemon uses."""

from __future__ import annotations

import pytest

from moetuned.daemon.asked_tuning import other_than_ours

OURS = ("/etc/mine.yaml", "/state/undo.jsonl", "moe-offload")


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"do": "apply"},
        {"config": "/etc/mine.yaml", "journal": "/state/undo.jsonl", "profile": "moe-offload"},
        {"config": "/etc/../etc/mine.yaml"},
        {"config": None, "journal": None, "profile": None},
    ],
)
def test_the_same(asked: dict[str, object]) -> None:
    assert other_than_ours(asked, *OURS) is None


def test_the_default_file_is_meant_where_the_daemon_names_none() -> None:
    assert other_than_ours({"config": "/etc/moetuned/moetuned.yaml"}, None, *OURS[1:]) is None


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"config": "/etc/yours.yaml"}, "the daemon uses /etc/mine.yaml, not /etc/yours.yaml; edit /etc/mine.yaml"),
        ({"journal": "/else"}, "the daemon's undo journal is /state/undo.jsonl, it knows nothing of /else"),
        ({"profile": "observe"}, "the daemon uses the profile moe-offload, not observe; edit /etc/mine.yaml"),
    ],
)
def test_what_is_another(asked: dict[str, object], said: str) -> None:
    assert (other_than_ours(asked, *OURS) or "").startswith(said)
