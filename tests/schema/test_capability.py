from __future__ import annotations

import msgspec
import pytest

from moetuned.schema.capability import Action, Answer, BackendNeeds, Capabilities, Capability, RehearsalFacts


@pytest.mark.parametrize(
    ("by", "other"), [("process", False), ("systemd", True), ("docker", True), ("command", True), ("none", True)]
)
def test_only_a_child_of_the_daemon_is_surely_its_own_user_s(by: str, other: bool) -> None:
    assert BackendNeeds("glm", by).other_user is other


def test_it_goes_through_json_as_it_is() -> None:
    facts = RehearsalFacts(backends=(BackendNeeds("glm", "process"),), hook_directories=("/etc/moetuned/hooks.d",))
    assert msgspec.json.decode(msgspec.json.encode(facts), type=RehearsalFacts) == facts
    found = Capabilities("done", capabilities=(Capability("signals", "kill", (Action.PAUSE,), Answer.NO, "why"),))
    assert msgspec.json.decode(msgspec.json.encode(found), type=Capabilities) == found
