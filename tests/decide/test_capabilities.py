from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from moetuned.decide.capabilities import TOLD, lines_of, refused, rehearsal_facts, turned_off, why_not, with_allowed
from moetuned.decide.tuning_plan import without_refused
from moetuned.schema.capability import Action, Answer, Capability
from moetuned.schema.config import Config
from moetuned.schema.tunable import Cell, Codec, Place, PlannedStep, StepKind, TunableSpec, Wanted

PATH = "/proc/sys/vm/swappiness"


def config_of(**given: object) -> Config:
    return msgspec.convert(given, Config)


def step(kind: StepKind, path: str = PATH, *, blocked: bool = False, unit: str | None = None) -> PlannedStep:
    spec = TunableSpec(path.rpartition("/")[2], "tuning.x", Place(path, Codec.INTEGER, unit=unit), {})
    return PlannedStep(Wanted(spec, Cell(path, "1"), "x"), kind, Cell(path, "0"), "x", blocked)


def test_an_empty_config_needs_little() -> None:
    facts = rehearsal_facts(Config(), "/s", "/r")
    assert (facts.backends, facts.settings, facts.swap_file, facts.zram) == ((), (), None, False)
    assert (facts.acts, facts.pauses, facts.protects) == (False, False, False)


def test_each_way_to_supervise_names_what_it_needs() -> None:
    command = ["llama-server", "--slot-save-path", "slots"]
    ways = {
        "own": {"by": "process", "command": command, "directory": "/srv"},
        "unit": {"by": "systemd", "unit": "llama.service"},
        "box": {"by": "docker", "container": "box", "run": ["x"], "engine": "podman"},
        "script": {"by": "command", "restart": ["/usr/local/bin/again", "{context}"]},
        "seen": {"by": "none"},
    }
    config = config_of(backends=[{"name": name, "supervise": way} for name, way in ways.items()])
    found = rehearsal_facts(config, "/s", "/r", cgroups={"unit": "/sys/fs/cgroup/x"}).backends
    assert [(one.by, one.target, one.cgroup) for one in found] == [
        ("process", None, None),
        ("systemd", "llama.service", "/sys/fs/cgroup/x"),
        ("docker", "podman", None),
        ("command", "/usr/local/bin/again", None),
        ("none", None, None),
    ]
    assert found[0].slot_directory == "/srv/slots"
    assert found[0].scope


def test_the_slot_directory_is_found_in_one_word_too_and_at_the_end_is_none() -> None:
    for command, said in ((["x", "--slot-save-path=/s"], "/s"), (["x", "--slot-save-path"], None)):
        own = {"by": "process", "command": command}
        (found,) = rehearsal_facts(config_of(backends=[{"name": "a", "supervise": own}]), "/s", "/r").backends
        assert found.slot_directory == said


def test_relief_swap_and_hooks() -> None:
    config = config_of(
        tuning={"profile": "moe-offload", "swap": {"file": "/var/swap", "zram": "1GiB"}},
        relief={"mode": "act"},
        warm={"protect": "auto", "prompts": "/etc/p.yaml"},
        alerts=[{"kind": "exec", "directory": "/h"}, {"kind": "exec", "directory": "/h", "name": "b"}],
        metrics={"textfile": "/m/x.prom"},
    )
    facts = rehearsal_facts(config, "/s", "/r")
    assert (facts.acts, facts.pauses, facts.protects, facts.prompts) == (True, True, True, "/etc/p.yaml")
    assert (facts.swap_file, facts.zram) == ("/var/swap", True)
    assert (facts.hook_directories, facts.metric_file) == (("/h",), "/m/x.prom")
    quiet = msgspec.structs.replace(
        config, relief=msgspec.convert({"mode": "act", "pause": False}, type(config.relief))
    )
    assert not rehearsal_facts(quiet, "/s", "/r").pauses


def test_settings_that_the_plan_leaves_alone_need_nothing_and_those_it_may_not_write_do() -> None:
    steps = [
        step(StepKind.WRITE),
        step(StepKind.SKIPPED, "/sys/a"),
        step(StepKind.SKIPPED, "/sys/b", blocked=True),
        step(StepKind.ALREADY, "/sys/c", unit="llama.service"),
    ]
    found = rehearsal_facts(Config(), "/s", "/r", steps).settings
    assert [(one.path, one.unit) for one in found] == [(PATH, None), ("/sys/b", None), ("/sys/c", "llama.service")]


def test_what_is_turned_off_stays_among_what_is_rehearsed() -> None:
    steps = (step(StepKind.WRITE), step(StepKind.WRITE, "/sys/b"), step(StepKind.ALREADY, "/sys/c"))
    left = without_refused(steps, {PATH: "turned off: read-only", "/sys/c": "x"})
    assert [(one.kind, one.reason) for one in left] == [
        (StepKind.SKIPPED, "turned off: read-only"),
        (StepKind.WRITE, "x"),
        (StepKind.ALREADY, "x"),
    ]
    before, after = (rehearsal_facts(Config(), "/s", "/r", each) for each in (steps, left))
    assert before == after


def capability(action: Action, answer: Answer = Answer.NO, **more: object) -> Capability:
    given = {"rehearsal": "r", "subject": "s", "why": "refused", "cure": "allow it", **more}
    return Capability(actions=(action,), answer=answer, **given)  # type: ignore[arg-type]


@given(
    st.lists(
        st.builds(
            Capability,
            rehearsal=st.just("r"),
            subject=st.sampled_from(["s", "t"]),
            actions=st.lists(st.sampled_from(list(Action)), max_size=3).map(tuple),
            answer=st.sampled_from(list(Answer)),
            why=st.just("refused"),
            backend=st.sampled_from([None, "a", "b"]),
            other_user=st.booleans(),
        )
    )
)
def test_only_a_refusal_turns_off_and_every_refusal_does(found: list[Capability]) -> None:
    off = turned_off(found)
    refused = {
        (action, one.backend) for one in found if one.answer is Answer.NO for action in one.actions if action in TOLD
    }
    assert {(one.action, one.backend) for one in off} == refused
    for action, backend in refused:
        subject = next(one.subject for one in off if (one.action, one.backend) == (action, backend))
        assert why_not(off, action, backend, other_user=True, subject=subject) is not None
    assert len(lines_of(off)) <= len(off)


def test_conversations_that_a_restart_would_lose_are_told_before_it() -> None:
    (off,) = turned_off([capability(Action.SAVE_CONVERSATIONS, backend="glm", subject="/home/me/slots")])
    assert off.text == "save the conversations of glm (/home/me/slots): refused; allow it"


def test_a_refusal_of_one_backend_leaves_the_others_alone() -> None:
    off = turned_off([capability(Action.RESTART, backend="glm")])
    assert why_not(off, Action.RESTART, "glm") == "turned off: refused; allow it"
    assert why_not(off, Action.RESTART, "other") is None
    assert why_not(off, Action.PAUSE, "glm") is None


def test_what_only_concerns_processes_of_others_turns_off_nothing_for_ours_nor_where_that_is_not_known() -> None:
    off = turned_off([capability(Action.PAUSE, other_user=True)])
    assert why_not(off, Action.PAUSE, "glm", other_user=True) is not None
    assert why_not(off, Action.PAUSE, "glm", other_user=False) is None
    assert why_not(off, Action.PAUSE, "glm") is None
    both = turned_off([capability(Action.PAUSE, other_user=True), capability(Action.PAUSE, why="for everybody")])
    assert why_not(both, Action.PAUSE, "glm") == "turned off: for everybody; allow it"


def test_settings_are_turned_off_one_by_one_and_told_in_one_line_where_the_reason_is_one() -> None:
    refused = [capability(Action.CHANGE_SETTING, subject=path, why="read-only") for path in ("/a", "/b", "/c")]
    off = turned_off(refused)
    assert why_not(off, Action.CHANGE_SETTING, subject="/b") is not None
    assert why_not(off, Action.CHANGE_SETTING, subject="/d") is None
    assert lines_of(off) == ("change a setting (/a): read-only; allow it (and 2 more)",)


def test_a_line_says_what_of_whom_and_why() -> None:
    off = turned_off([capability(Action.RESTART, backend="glm", subject="glm.service", why="access denied")])
    assert lines_of(off) == ("restart glm (glm.service): access denied; allow it",)
    off = turned_off([capability(Action.PAUSE, other_user=True, cure="")])
    assert lines_of(off) == ("pause backends of other users (s): refused",)


_TRIED = st.builds(
    Capability,
    st.sampled_from(("a", "b")),
    st.sampled_from(("x", "y")),
    st.sampled_from(((Action.PAUSE,), (Action.OBSERVE,), (Action.RESTART, Action.SAVE_CONVERSATIONS))),
    st.sampled_from(Answer),
    other_user=st.booleans(),
)


@given(st.lists(_TRIED, max_size=6, unique_by=lambda one: one.tried), st.data())
def test_trying_again_only_ever_allows_more(known: list[Capability], data: st.DataObject) -> None:
    """Exactly what was refused and is now answered with yes is another than before."""
    asked = refused(known)
    assert set(asked) == {one.tried for one in known if one.answer is Answer.NO and one.actions != (Action.OBSERVE,)}
    assert bool(asked) == bool(turned_off(known))
    answers = [data.draw(st.sampled_from(Answer)) for _ in asked]
    by_tried = {one.tried: one for one in known}
    again = [
        msgspec.structs.replace(by_tried[each], answer=answer) for each, answer in zip(asked, answers, strict=True)
    ]
    now = with_allowed(known, again)
    assert [one.tried for one in now] == [one.tried for one in known]
    mended = {one.tried for one in again if one.answer is Answer.YES}
    assert set(refused(now)) == set(asked) - mended
    assert [one for one in now if one.tried not in mended] == [one for one in known if one.tried not in mended]
