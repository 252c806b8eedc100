"""The questions as a state machine: whatever is answered it comes to an end, and what it takes for an answer makes a config that holds."""

from __future__ import annotations

import msgspec
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from moetuned.decide.setup_config import config_text
from moetuned.decide.setup_plan import make_plan
from moetuned.decide.setup_questions import (
    ALERT,
    BACKEND,
    NTFY_URL,
    PROFILE,
    RELIEF,
    Question,
    WrongAnswer,
    accept,
    chosen,
    default_answers,
    default_backends,
    next_question,
)
from moetuned.parse.config_text import load
from moetuned.schema.alert import MailAlert, NtfyAlert
from moetuned.schema.config import Config, Mode, Profile
from moetuned.schema.setup import Candidate, ServiceState, SettingChange, SetupFacts, Way

NAMES = st.sampled_from(["glm", "0", "1", "2", "qwen-3.5", "GLM", "a" * 48, "on", "null", "1e3", "exec"])
PATHS = st.text("Az09 _'\"$%{}#:.-", min_size=1, max_size=30).map(lambda name: f"/{name}")
CANDIDATES = st.builds(
    Candidate,
    name=NAMES,
    way=st.sampled_from(Way).filter(lambda way: way is not Way.KEPT),
    about=st.text(max_size=20),
    unit=st.just("llama.service"),
    kind=st.just("llama-server"),
    url=st.sampled_from(["http://127.0.0.1:8080", None]),
    model=PATHS,
    size_bytes=st.integers(0, 1 << 40),
    runs=st.booleans(),
    fits=st.sampled_from([True, False, None]),
    context=st.sampled_from([None, 1, 300, 4096, 1 << 20, 1 << 30]),
    longest=st.sampled_from([None, 8192]),
    trained=st.sampled_from([None, 1, 2048, 1 << 17]),
    slots=st.sampled_from([None, 1, 4]),
    prompt_cache_mib=st.sampled_from([None, 0, 512]),
    program=st.just("/usr/bin/llama-server"),
    problem=st.sampled_from([None, None, "no"]),
)
FACTS = st.builds(
    SetupFacts,
    config_path=st.just("/etc/moetuned/conf.d/50-setup.yaml"),
    others=st.sampled_from([Config(), Config(alerts=[MailAlert(to=["root", "ann"])])]),
    current=st.sampled_from(
        [Config(), Config(alerts=[MailAlert(to=["root", "ann"]), NtfyAlert(url="https://ntfy.sh/a")])]
    ),
    systemd=st.booleans(),
    service=st.builds(ServiceState, st.booleans(), st.booleans(), st.booleans(), st.booleans()),
    candidates=st.lists(CANDIDATES, max_size=4, unique_by=lambda each: each.name.lower()).map(
        lambda found: tuple(
            msgspec.structs.replace(
                each, unit=f"{each.name}.service", url=each.url and f"http://127.0.0.1:{8080 + number}"
            )
            for number, each in enumerate(found)
        )
    ),
    settings=st.lists(
        st.builds(SettingChange, st.just("vm.swappiness"), st.just("60"), st.just("10")), max_size=12
    ).map(tuple),
    has_main_config=st.booleans(),
    hooks_directory=st.booleans(),
    mail_program=st.booleans(),
)


def is_good(question: Question, answer: str) -> bool:
    return accept(question, answer) == answer


@settings(max_examples=60)
@given(FACTS, st.data())
def test_whatever_is_typed_it_ends_and_makes_a_config_that_holds(facts: SetupFacts, data: st.DataObject) -> None:
    answers: dict[str, str] = {}
    rounds = 0
    said: list[str] = []
    while (question := next_question(facts, answers)) is not None:
        rounds += 1
        assert rounds < 40
        assert question.key not in answers
        typed = data.draw(
            st.one_of(
                st.just(""),
                st.integers(-2, 20000).map(str),
                st.sampled_from([each.value for each in question.choices] or ["root"]),
                st.text(max_size=12),
                st.sampled_from(["all", "none", "1,2", "https://ntfy.sh/topic", "yes"]),
            )
        )
        try:
            answer = accept(question, typed)
        except WrongAnswer as error:
            said.append(str(error))
            answer = "https://ntfy.sh/topic" if question.key == NTFY_URL else accept(question, "")
        assert is_good(question, answer)
        answers[question.key] = answer
    assert all(sentence and "\n" not in sentence for sentence in said)
    plan = make_plan(facts, answers, {})
    text = config_text(facts, answers)
    others = yaml.safe_dump(msgspec.to_builtins(facts.others))
    config = load([("others", others), *([] if text is None else [("setup", text)])])
    assert config.tuning.profile.value == answers[PROFILE]
    assert config.relief.mode.value == answers.get(RELIEF, Mode.OBSERVE.value)
    assert {each.name for each in config.backends} == {each.name for each in chosen(facts, answers)}
    assert all(deed.target for deed in plan.deeds)


@settings(max_examples=60)
@given(FACTS)
def test_every_default_is_an_answer(facts: SetupFacts) -> None:
    answers = default_answers(facts)
    assert next_question(facts, answers) is None
    assert all(each.problem is None for each in chosen(facts, answers))


def test_what_somebody_else_has_a_hand_in_is_no_default() -> None:
    """Neither a model nor a server by hand, which does not displace another default either; both can be named."""
    own = Candidate("own", Way.CREATED, "a model", model="/models/own.gguf", fits=True, size_bytes=5)
    theirs = Candidate("theirs", Way.CREATED, "a model", fits=True, size_bytes=9, doubt="/srv/x belongs to bob")
    server = Candidate("server", Way.PROCESS, "process 7", runs=True, doubt="bob started it")
    facts = SetupFacts("/x", Config(), Config(), candidates=(server, theirs, own))
    assert default_backends(facts) == (own,)
    question = next_question(facts, {})
    assert question is not None
    assert "only taken where you name it: /srv/x belongs to bob" in question.choices[1].about
    assert accept(question, "theirs,server") == "server theirs"
    plan = make_plan(facts, default_answers(facts, {BACKEND: "theirs"}), {})
    assert "theirs: /srv/x belongs to bob, so others decide what it is" in plan.notes
    assert default_backends(msgspec.structs.replace(facts, candidates=(server, theirs))) == ()


SIMPLE = SetupFacts(
    "/x",
    Config(),
    Config(),
    candidates=(
        Candidate("glm", Way.UNIT, "a unit", unit="llama.service", runs=True),
        Candidate("qwen", Way.CREATED, "a model", model="/models/qwen.gguf", fits=True, size_bytes=5, longest=9000),
        Candidate("bad", Way.CREATED, "a model", model="/models/bad.gguf", problem="it is cut short"),
    ),
)


def first() -> Question:
    question = next_question(SIMPLE, {})
    assert question is not None
    return question


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        ("", "glm"), ("1", "glm"), ("1, 2", "glm qwen"), ("2 1", "glm qwen"), ("llama", "glm"), ("llama.service", "glm"),
        ("/models/qwen.gguf", "qwen"), ("GLM", "glm"), ("all", "glm qwen"), ("none", "none"), ("4", "none"), ("1,1", "glm"),
    ],
)  # fmt: skip
def test_how_backends_may_be_named(typed: str, answer: str) -> None:
    assert accept(first(), typed) == answer


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (
            "5",
            "5 is none of them; write a number from 1 to 4, or glm, qwen, bad or none, several with commas between them",
        ),
        ("0", "0 is none of them"),
        ("bad", "bad cannot be taken: it is cut short"),
        ("none,1", "none and glm do not go together"),
        ("x" * 500, "…"),
        ("a\x1b[31m", "'a\\x1b[31m' is none of them"),
    ],
)
def test_what_is_wrong_is_said(typed: str, said: str) -> None:
    with pytest.raises(WrongAnswer) as caught:
        accept(first(), typed)
    assert said in str(caught.value)


def question_of(key: str, **given_answers: str) -> Question:
    answers: dict[str, str] = {}
    while (question := next_question(SIMPLE, answers)) is not None:
        if question.key == key:
            return question
        answers[question.key] = accept(question, given_answers.get(question.key.replace(" ", "_"), ""))
    raise AssertionError(f"{key} is not asked")


def test_numbers_have_limits() -> None:
    question = question_of("minimum qwen", backend="qwen", context_qwen="4096")
    assert (question.least, question.most, question.default) == (256, 4096, "2048")
    assert accept(question, "0512") == "512"
    for typed in ("255", "4097", "-1", "1e3", "²", "9" * 30):
        with pytest.raises(WrongAnswer, match="no whole number from 256 to 4096"):
            accept(question, typed)
    assert "Up to 9000 tokens" in question_of("context qwen", backend="qwen").help[0]


def test_a_yes_is_understood_where_it_means_something() -> None:
    assert accept(question_of(RELIEF), "yes") == "act"
    assert accept(question_of(PROFILE), "n") == "observe"
    with pytest.raises(WrongAnswer, match="mail cannot be taken: there is no"):
        accept(question_of(ALERT), "mail")


def test_a_topic_has_no_default() -> None:
    question = question_of(NTFY_URL, alert="ntfy")
    for typed in ("", "ntfy.sh/x", "https://user:secret@ntfy.sh/x"):
        with pytest.raises(WrongAnswer, match="must be http"):
            accept(question, typed)
    assert accept(question, " https://ntfy.sh/abc ") == "https://ntfy.sh/abc"


def test_what_was_chosen_before_is_the_default() -> None:
    from moetuned.schema.config import Backend

    entry = Backend("qwen")
    facts = msgspec.structs.replace(
        SIMPLE,
        config_text="",
        current=Config(tuning=msgspec.structs.replace(Config().tuning, profile=Profile.OBSERVE)),
        candidates=(SIMPLE.candidates[0], msgspec.structs.replace(SIMPLE.candidates[1], entry=entry)),
    )
    assert [each.name for each in default_backends(facts)] == ["qwen"]
    assert default_answers(facts)[PROFILE] == "observe"
    none = msgspec.structs.replace(facts, candidates=(SIMPLE.candidates[0],))
    assert default_answers(none)[BACKEND] == "none"
