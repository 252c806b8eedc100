"""A dozen machines, one file each: what is asked there, what the defaults are, what will be done and what the config says then.

Each is planned a second time as it is after the first, and then there is nothing to do; and all of it can be taken back.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from moetuned.decide.setup_config import unit_of
from moetuned.decide.setup_plan import SERVICE, environment_file, make_plan, undo_deeds
from moetuned.decide.setup_questions import BACKEND, accept, chosen, default_answers, next_question
from moetuned.decide.unit_adoption import Adoption
from moetuned.parse.config_text import load
from moetuned.parse.persisted_file import Standing, standing
from moetuned.schema.config import Config
from moetuned.schema.setup import SetupFacts, SetupPlan, SetupRecord, Step, Way

CONFIG_PATH = "/etc/moetuned/conf.d/50-setup.yaml"
MACHINES = sorted((Path(__file__).parent / "setup_machines").glob("*.yaml"))


class Machine:
    """One of the files."""

    def __init__(self, path: Path) -> None:
        self.case: dict[str, Any] = yaml.safe_load(path.read_text())
        self.facts = msgspec.convert(
            {"config_path": CONFIG_PATH, "others": {}, "current": {}, **self.case["facts"]}, SetupFacts
        )
        self.adoptions = {unit: Adoption(f"/etc/{unit}.d", "text", (), ()) for unit in self.case.get("adopted", ())}

    def answers(self) -> tuple[dict[str, str], list[str]]:
        """All answers, and what was asked for them: all but what is given."""
        given = dict(self.case.get("given", {}))
        answers: dict[str, str] = {}
        asked = []
        while (question := next_question(self.facts, answers)) is not None:
            if question.key not in given:
                asked.append(question.key)
            answers[question.key] = accept(question, given.get(question.key, ""))
        return answers, asked

    def plan(self) -> tuple[dict[str, str], SetupPlan]:
        answers, _ = self.answers()
        return answers, make_plan(self.facts, answers, self.adoptions)


def carried_out(plan: SetupPlan) -> SetupRecord:
    """The record once everybody was told."""
    return msgspec.structs.replace(plan.record, pending=())


def written(plan: SetupPlan, path: str) -> str | None:
    return next((deed.after for deed in plan.deeds if deed.target == path), None)


def afterwards(facts: SetupFacts, answers: dict[str, str], plan: SetupPlan) -> SetupFacts:
    """The machine once the plan was carried out."""
    text = written(plan, CONFIG_PATH)
    others = yaml.safe_dump(msgspec.to_builtins(facts.others))
    current = load([("others", others), *([] if text is None else [("setup", text)])])
    own = {each.name: each for each in current.backends if each not in facts.others.backends}
    names = [each.name for each in chosen(facts, answers)]
    candidates = tuple(
        msgspec.structs.replace(each, entry=own.get(each.name), runs=True) if each.name in names else each
        for each in facts.candidates
    )
    units = tuple(unit_of(each.name) for each in chosen(facts, answers) if each.way is Way.CREATED)
    texts = {path: one for path in map(environment_file, names) if (one := written(plan, path)) is not None}
    service = msgspec.structs.replace(facts.service, enabled=facts.service.installed, active=facts.service.installed)
    return msgspec.structs.replace(
        facts, current=current, candidates=candidates, config_text=text, environment_texts=texts, service=service,
        enabled_units=units, active_units=units, directories_missing=(),
    )  # fmt: skip


@pytest.mark.parametrize("path", MACHINES, ids=lambda path: path.stem)
def test_machines(path: Path) -> None:
    machine = Machine(path)
    answers, asked = machine.answers()
    case = machine.case
    assert asked == case["asked"]
    assert answers == case["defaults"]
    plan = make_plan(machine.facts, answers, machine.adoptions)
    steps = [f"{deed.step.value} {deed.target}" for deed in plan.deeds]
    assert steps == case["steps"]
    text = written(plan, CONFIG_PATH)
    assert text is not None
    assert yaml.safe_load(text) == case["config"]
    others = yaml.safe_dump(msgspec.to_builtins(machine.facts.others))
    config = load([("others", others), ("setup", text)])
    assert config.tuning.profile.value == answers["profile"]
    assert [each.name for each in config.backends if each not in machine.facts.others.backends] == [
        each.name for each in chosen(machine.facts, answers) if not each.named_in_config
    ]
    said = " ".join(plan.notes)
    assert all(note in said for note in case.get("notes", ())), said


@pytest.mark.parametrize("path", MACHINES, ids=lambda path: path.stem)
def test_a_second_time_there_is_nothing_to_do(path: Path) -> None:
    machine = Machine(path)
    answers, plan = machine.plan()
    facts = afterwards(machine.facts, answers, plan)
    again = default_answers(facts)
    assert {key: value for key, value in again.items() if key in answers} == answers
    assert make_plan(facts, again, {}, carried_out(plan)).deeds == ()


@pytest.mark.parametrize("path", MACHINES, ids=lambda path: path.stem)
def test_all_of_it_is_taken_back(path: Path) -> None:
    machine = Machine(path)
    _, plan = machine.plan()
    texts = {deed.target: deed.after for deed in plan.deeds if deed.step is Step.WRITE and deed.after is not None}
    assert all(standing(text, "setup --undo") is Standing.OURS for text in texts.values())
    deeds, kept = undo_deeds(plan.record, texts, CONFIG_PATH, service_active=True)
    assert kept == ()
    assert {deed.target for deed in deeds if deed.step is Step.REMOVE} == set(texts)
    stopped = {deed.target for deed in deeds if deed.step is Step.STOP_BACKEND}
    assert stopped == {deed.target for deed in plan.deeds if deed.step in (Step.START_BACKEND, Step.START_SERVICE)}
    given_back = [deed.target for deed in deeds if deed.step is Step.GIVE_BACK]
    assert set(given_back) == set(machine.adoptions)
    assert [deed.target for deed in deeds[: len(given_back)]] == given_back, "what may be refused comes first"
    reloads = any(deed.step is Step.RELOAD_SERVICE for deed in deeds)
    assert reloads == (SERVICE not in stopped)


def test_a_machine_of_each_kind() -> None:
    assert len(MACHINES) >= 12


def created() -> tuple[SetupFacts, dict[str, str], SetupPlan]:
    machine = Machine(Path(__file__).parent / "setup_machines/too_large.yaml")
    answers, plan = machine.plan()
    return afterwards(machine.facts, answers, plan), answers, plan


def test_another_context_restarts_the_backend() -> None:
    facts, answers, plan = created()
    again = make_plan(facts, {**answers, "context small": "4096"}, {}, carried_out(plan))
    assert [deed.step for deed in again.deeds] == [Step.WRITE, Step.WRITE, Step.RESTART_BACKEND, Step.RELOAD_SERVICE]
    assert carried_out(again) == plan.record


def test_what_is_not_wanted_any_more_goes() -> None:
    facts, _, plan = created()
    again = make_plan(facts, default_answers(facts, {BACKEND: "none"}), {}, carried_out(plan))
    assert [(deed.step, deed.target) for deed in again.deeds] == [
        (Step.WRITE, CONFIG_PATH),
        (Step.REMOVE, environment_file("small")),
        (Step.STOP_BACKEND, unit_of("small")),
        (Step.RELOAD_SERVICE, SERVICE),
    ]


def test_a_config_that_would_say_nothing_is_removed() -> None:
    facts, _, plan = created()
    answers = default_answers(facts, {BACKEND: "none", "profile": "observe"})
    assert (Step.REMOVE, CONFIG_PATH) in [
        (deed.step, deed.target) for deed in make_plan(facts, answers, {}, carried_out(plan)).deeds
    ]


def test_files_that_were_edited_are_known() -> None:
    facts, answers, plan = created()
    assert facts.config_text is not None
    edited = msgspec.structs.replace(facts, config_text=facts.config_text + "# mine\n")
    (deed, *_) = make_plan(edited, answers, {}, carried_out(plan)).deeds
    assert (deed.target, deed.edited) == (CONFIG_PATH, True)
    deeds, kept = undo_deeds(plan.record, {CONFIG_PATH: edited.config_text or ""}, CONFIG_PATH, service_active=False)
    assert kept == (CONFIG_PATH,)
    assert Step.REMOVE not in [each.step for each in deeds]


def test_without_a_record_the_config_is_still_known_by_its_head() -> None:
    facts, _, _ = created()
    deeds, _ = undo_deeds(SetupRecord(), {CONFIG_PATH: facts.config_text or ""}, CONFIG_PATH, service_active=False)
    assert [(deed.step, deed.target) for deed in deeds] == [(Step.REMOVE, CONFIG_PATH)]


def test_a_service_that_is_not_enabled_yet_but_runs() -> None:
    facts, answers, plan = created()
    facts = msgspec.structs.replace(
        facts, service=msgspec.structs.replace(facts.service, enabled=False), config_text=None, current=Config()
    )
    steps = [deed.step for deed in make_plan(facts, answers, {}, carried_out(plan)).deeds]
    assert steps == [Step.WRITE, Step.START_SERVICE, Step.RELOAD_SERVICE]


def test_who_was_not_told_the_last_time_is_told_now() -> None:
    """A setup that ended between the files and the units: the files are as wanted, and what runs still has the old ones."""
    facts, answers, plan = created()
    again = make_plan(facts, {**answers, "context small": "4096"}, {}, carried_out(plan))
    path = environment_file("small")
    text = written(again, path)
    assert text is not None
    facts = msgspec.structs.replace(
        facts, config_text=written(again, CONFIG_PATH), environment_texts={**facts.environment_texts, path: text}
    )
    steps = [deed.step for deed in make_plan(facts, {**answers, "context small": "4096"}, {}, again.record).deeds]
    assert steps == [Step.RESTART_BACKEND, Step.RELOAD_SERVICE]
