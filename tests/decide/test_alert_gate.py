"""What goes to a sink: as a table, and whatever happens in whatever order."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.decide.alert_gate import (
    MOST_HELD,
    MOST_TOLD,
    Gate,
    Moment,
    Rules,
    Told,
    after_boot,
    forget,
    hear,
    is_quiet,
    release,
)
from moetuned.schema.event import ENDS, Event, EventName, begun_by, general, has_end, is_wanted, may_close

N = EventName
NIGHT = Moment(1000.0, 23 * 60)
DAY = Moment(2000.0, 12 * 60)
QUIET = (22 * 60, 7 * 60)
NOTHING = Gate()


def event(name: EventName, backend: str | None = "glm", number: int = 0) -> Event:
    return Event(f"1-{number}", name, 0.0, 0.0, backend, f"{name} {number}")


def failure(name: EventName, number: int = 0) -> Event:
    """What tells how the restart that had begun failed."""
    return msgspec.structs.replace(event(name, number=number), ended=("1-begun",))


def play(rules: Rules, *steps: tuple[EventName, Moment], gate: Gate = NOTHING) -> tuple[Gate, list[str]]:
    going: list[Told] = []
    for number, (name, now) in enumerate(steps):
        gate, more = hear(gate, rules, event(name, number=number), now)
        going += more
    return gate, names(going)


def names(going: Iterable[Told]) -> list[str]:
    return [told.event.name.value + (f"+{told.held_back}" if told.held_back else "") for told in going]


def test_without_rules_all_goes_but_ends_without_a_begin() -> None:
    _, went = play(Rules(), (N.THRASH_END, DAY), (N.THRASH_BEGIN, DAY), (N.TUNING_DRIFTED, DAY), (N.THRASH_END, DAY))
    assert went == ["thrash_begin", "tuning_drifted", "thrash_end"]


def test_the_end_follows_its_begin_where_only_that_is_subscribed() -> None:
    steps = (N.THRASH_BEGIN, DAY), (N.THRASH_END, DAY), (N.MEMORY_NEAR_LIMIT, DAY), (N.MEMORY_RECOVERED, DAY)
    assert play(Rules(on=frozenset({N.THRASH_BEGIN})), *steps)[1] == ["thrash_begin", "thrash_end"]
    gate, went = play(Rules(on=frozenset({N.THRASH_BEGIN}), ends=False), *steps)
    assert (gate, went) == (Gate(), ["thrash_begin"])


def test_an_end_that_is_subscribed_without_its_begin_stands_for_itself() -> None:
    rules = Rules(on=frozenset({N.THRASH_END}), ends=False)
    assert play(rules, (N.THRASH_BEGIN, DAY), (N.THRASH_END, DAY))[1] == ["thrash_end"]


def test_kinds_of_down_are_one_begin() -> None:
    steps = (
        (N.BACKEND_OOM_KILLED, DAY),
        (N.BACKEND_CRASH_LOOP, DAY),
        (N.BACKEND_RECOVERED, DAY),
        (N.BACKEND_RECOVERED, DAY),
    )
    gate, went = play(Rules(on=frozenset({N.BACKEND_DOWN})), *steps)
    assert (gate, went) == (Gate(), ["backend_oom_killed", "backend_crash_loop", "backend_recovered"])
    assert play(Rules(on=frozenset({N.BACKEND_HUNG})), *steps)[1] == []


@pytest.mark.parametrize("name", [N.BACKEND_NOT_RESTARTED, N.BACKEND_OOM_KILLED, N.RELIEF_EXHAUSTED])
def test_a_failed_restart_ends_it_for_whom_its_begin_was_told(name: EventName) -> None:
    gate, _ = play(Rules(), (N.BACKEND_RESTARTING, DAY))
    gate, going = hear(gate, Rules(), failure(name), DAY)
    assert [told.event for told in going] == [failure(name)]
    assert ("glm", N.BACKEND_RESTARTING) not in gate.told
    assert play(Rules(), (N.BACKEND_RESTARTED, DAY), gate=gate)[1] == []


@pytest.mark.parametrize("name", [N.BACKEND_NOT_RESTARTED, N.BACKEND_OOM_KILLED, N.RELIEF_EXHAUSTED])
def test_who_only_wants_restarts_gets_how_that_came_out_and_nothing_that_waits_for_an_end(name: EventName) -> None:
    rules = Rules(on=frozenset({N.BACKEND_RESTARTING}))
    assert hear(Gate(), rules, failure(name), DAY) == (Gate(), []), "it saw no begin"
    gate, _ = play(rules, (N.BACKEND_RESTARTING, DAY))
    assert hear(gate, rules, event(name), DAY) == (gate, []), "a restart goes on"
    gate, going = hear(gate, rules, failure(name), DAY)
    assert (names(going), gate) == (["backend_not_restarted"], Gate())
    assert going[0].event.closes == (N.BACKEND_RESTARTING,)
    rules = Rules(on=frozenset({N.BACKEND_RESTARTING}), ends=False)
    gate, _ = play(rules, (N.BACKEND_RESTARTING, DAY))
    assert hear(gate, rules, failure(name), DAY) == (Gate(), [])


@pytest.mark.parametrize("name", [N.BACKEND_NOT_RESTARTED, N.BACKEND_DOWN, N.RELIEF_EXHAUSTED])
def test_who_saw_no_restart_begin_gets_no_end_of_it(name: EventName) -> None:
    for rules in (Rules(), Rules(on=frozenset({name}))):
        _, going = hear(Gate(), rules, failure(name), DAY)
        assert [told.event for told in going] == [event(name)]


def test_a_restart_that_failed_in_quiet_hours_is_told_after_them() -> None:
    rules = Rules(quiet=QUIET)
    gate, _ = play(rules, (N.BACKEND_RESTARTING, DAY))
    for name in (N.BACKEND_NOT_RESTARTED, N.BACKEND_DOWN):
        held, going = hear(gate, rules, failure(name), NIGHT)
        assert going == []
        after, going = release(held, rules, DAY)
        assert [told.event for told in going] == [failure(name)]
        assert ("glm", N.BACKEND_RESTARTING) not in after.told


def test_what_came_of_a_restart_is_told_also_where_it_is_up_again_meanwhile() -> None:
    rules = Rules(quiet=QUIET)
    gate, _ = play(rules, (N.BACKEND_RESTARTING, DAY))
    gate, _ = hear(gate, rules, failure(N.BACKEND_DOWN), NIGHT)
    gate, went = play(rules, (N.BACKEND_RECOVERED, NIGHT), gate=gate)
    assert went == []
    gate, going = release(gate, rules, DAY)
    assert (names(going), gate.told) == (["backend_not_restarted"], ())
    assert going[0].event.closes == (N.BACKEND_RESTARTING,)


def test_a_restart_that_begins_anew_in_quiet_hours_is_still_open() -> None:
    rules = Rules(quiet=QUIET)
    gate, _ = play(rules, (N.BACKEND_RESTARTING, DAY))
    gate, _ = hear(gate, rules, failure(N.BACKEND_DOWN), NIGHT)
    gate, _ = play(rules, (N.BACKEND_RESTARTING, NIGHT), gate=gate)
    gate, going = release(gate, rules, DAY)
    assert names(going) == ["backend_down+1"]
    assert going[0].event.closes == ()
    assert ("glm", N.BACKEND_RESTARTING) in gate.told


def test_other_backends_are_left_out() -> None:
    rules = Rules(backends=frozenset({"qwen"}))
    gate, going = hear(Gate(), rules, event(N.THRASH_BEGIN, "glm"), DAY)
    assert (gate, going) == (Gate(), [])
    assert hear(Gate(), rules, event(N.TUNING_DRIFTED, None), DAY)[1] == []
    assert names(hear(Gate(), rules, event(N.THRASH_BEGIN, "qwen"), DAY)[1]) == ["thrash_begin"]


def test_two_backends_do_not_end_each_other() -> None:
    gate, _ = hear(Gate(), Rules(), event(N.THRASH_BEGIN, "glm"), DAY)
    assert hear(gate, Rules(), event(N.THRASH_END, "qwen"), DAY) == (gate, [])


def test_a_begin_in_quiet_hours_goes_after_them_if_it_is_still_true() -> None:
    rules = Rules(quiet=QUIET)
    gate, went = play(rules, (N.THRASH_BEGIN, NIGHT), (N.TUNING_DRIFTED, NIGHT))
    assert went == []
    assert release(gate, rules, NIGHT) == (gate, [])
    gate, going = release(gate, rules, DAY)
    assert names(going) == ["thrash_begin+1"]
    assert play(rules, (N.THRASH_END, DAY), gate=gate)[1] == ["thrash_end"]


def test_a_begin_in_quiet_hours_that_is_over_never_goes_and_is_counted() -> None:
    steps = (N.THRASH_BEGIN, NIGHT), (N.THRASH_END, NIGHT), (N.THRASH_BEGIN, DAY), (N.THRASH_END, DAY)
    assert play(Rules(quiet=QUIET), *steps)[1] == ["thrash_begin+1", "thrash_end"]


def test_an_end_in_quiet_hours_goes_after_them() -> None:
    rules = Rules(quiet=QUIET)
    gate, went = play(rules, (N.THRASH_BEGIN, DAY), (N.THRASH_END, NIGHT))
    assert went == ["thrash_begin"]
    gate, going = release(gate, rules, DAY)
    assert (names(going), gate.told, gate.held) == (["thrash_end"], (), ())


def test_what_ends_and_begins_again_in_quiet_hours_is_no_news() -> None:
    rules = Rules(quiet=QUIET)
    steps = (N.THRASH_BEGIN, DAY), (N.THRASH_END, NIGHT), (N.THRASH_BEGIN, NIGHT)
    gate, went = play(rules, *steps)
    assert went == ["thrash_begin"]
    assert release(gate, rules, DAY)[1] == []
    assert play(rules, (N.THRASH_END, DAY), gate=gate)[1] == ["thrash_end+2"]


def test_loud_events_go_in_quiet_hours_with_their_ends() -> None:
    rules = Rules(quiet=QUIET, loud=frozenset({N.BACKEND_DOWN}))
    steps = (N.BACKEND_HUNG, NIGHT), (N.THRASH_BEGIN, NIGHT), (N.BACKEND_RECOVERED, NIGHT)
    assert play(rules, *steps)[1] == ["backend_hung", "backend_recovered"]


def test_the_rate_limit_holds_back_and_tells_how_many() -> None:
    rules = Rules(at_most=(2, 3600.0))
    at = [Moment(1000.0 + second, 600) for second in range(5)]
    steps = (N.TUNING_DRIFTED, at[0]), (N.THRASH_BEGIN, at[1]), (N.TUNING_DRIFTED, at[2]), (N.THRASH_END, at[3])
    gate, went = play(rules, *steps)
    assert went == ["tuning_drifted", "thrash_begin"]
    gate, going = release(gate, rules, Moment(1000.0 + 3599.9, 600))
    assert going == []
    assert names(release(gate, rules, Moment(1000.0 + 3600.0, 600))[1]) == ["thrash_end+1"]


def test_a_clock_that_is_set_back_holds_nothing_up() -> None:
    rules = Rules(at_most=(1, 3600.0))
    gate, _ = hear(Gate(), rules, event(N.TUNING_DRIFTED), Moment(5000.0, 0))
    assert names(hear(gate, rules, event(N.TUNING_DRIFTED), Moment(4000.0, 0))[1]) == ["tuning_drifted"]


def test_of_what_is_told_again_that_is_said() -> None:
    gate, first = hear(Gate(), Rules(), event(N.BACKEND_DOWN), DAY)
    _, second = hear(gate, Rules(), event(N.BACKEND_CRASH_LOOP), DAY)
    assert [told.again for told in first + second] == [False, True]


def test_a_begin_that_never_arrived_has_no_end() -> None:
    gate, _ = play(Rules(), (N.THRASH_BEGIN, DAY), (N.MEMORY_NEAR_LIMIT, DAY))
    gate = forget(gate, event(N.THRASH_BEGIN))
    assert play(Rules(), (N.THRASH_END, DAY), (N.MEMORY_RECOVERED, DAY), gate=gate)[1] == ["memory_recovered"]


def test_after_a_boot_nothing_is_held() -> None:
    gate, _ = play(Rules(quiet=QUIET), (N.THRASH_BEGIN, NIGHT))
    gate = after_boot(gate)
    assert release(gate, Rules(), DAY)[1] == []
    assert gate.held_back == 1


def test_what_a_new_config_does_not_want_is_let_go() -> None:
    gate, _ = play(Rules(quiet=QUIET), (N.THRASH_BEGIN, NIGHT))
    gate, going = release(gate, Rules(on=frozenset({N.BACKEND_DOWN})), DAY)
    assert (going, gate.held, gate.held_back) == ([], (), 1)


def test_quiet_hours() -> None:
    assert not is_quiet(None, 0)
    assert [is_quiet(QUIET, minute) for minute in (21 * 60 + 59, 22 * 60, 0, 7 * 60 - 1, 7 * 60)] == [
        False, True, True, True, False,
    ]  # fmt: skip
    assert [is_quiet((60, 120), minute) for minute in (59, 60, 119, 120)] == [False, True, True, False]


_MINUTES = st.integers(0, 1439)
_RULES = st.builds(
    Rules,
    on=st.frozensets(st.sampled_from(EventName), max_size=4),
    ends=st.booleans(),
    backends=st.frozensets(st.sampled_from(["glm", "qwen"])),
    at_most=st.none() | st.tuples(st.integers(1, 4), st.sampled_from([3600.0, 86400.0])),
    quiet=st.none() | st.tuples(_MINUTES, _MINUTES),
    loud=st.frozensets(st.sampled_from(EventName), max_size=2),
)
_RESTARTS = [N.BACKEND_RESTARTING, N.BACKEND_RESTARTED, N.BACKEND_NOT_RESTARTED, N.BACKEND_DOWN, N.BACKEND_RECOVERED]
_STEPS = st.lists(
    st.tuples(
        st.none()
        | st.sampled_from([name for name in EventName if name is not EventName.TEST])
        | st.sampled_from(_RESTARTS),
        st.sampled_from(["glm", "qwen", None]),
        st.integers(1, 20_000),
        _MINUTES,
    ),
    max_size=60,
)


class Failures:
    """Says of every other event that may do so that it tells how the restart under way failed, as the announcer does."""

    def __init__(self) -> None:
        self.begun: dict[str | None, str] = {}

    def __call__(self, one: Event) -> Event:
        if one.name is N.BACKEND_RESTARTING:
            self.begun[one.backend] = one.id
        elif one.name is N.BACKEND_RESTARTED or (may_close(one.name) and int(one.id[2:]) % 2):
            begun = self.begun.pop(one.backend, None)
            return msgspec.structs.replace(one, ended=() if begun is None else (begun,))
        return one


@given(_RULES, _STEPS)
def test_whatever_happens(rules: Rules, steps: list[tuple[EventName | None, str | None, int, int]]) -> None:
    """None for a name: time goes by."""
    gate, wall = Gate(), 0.0
    fails = Failures()
    going: list[tuple[float, int, Told]] = []
    heard: list[Event] = []
    for number, (name, backend, later, minute) in enumerate(steps):
        wall += later
        now = Moment(wall, minute)
        if name is None:
            gate, more = release(gate, rules, now)
        else:
            heard.append(fails(event(name, backend, number)))
            gate, more = hear(gate, rules, heard[-1], now)
        going += [(wall, minute, told) for told in more]
        assert len(gate.held) <= MOST_HELD
        assert len(gate.told) <= MOST_TOLD
        assert len(set(gate.told)) == len(gate.told)
    events = [told.event for _, _, told in going]
    assert len({each.id for each in events}) == len(events), "each goes once"
    open_pairs: set[tuple[str | None, EventName]] = set()
    for wall_seconds, minute, told in going:
        pairs = {(told.event.backend, name) for name in begun_by(told.event.name)}
        if told.event.name in ENDS:
            if any(is_wanted(name, rules.on) for name in EventName if general(name) in ENDS[told.event.name]):
                assert pairs & open_pairs, "an end goes only to whom its begin went"
            open_pairs -= pairs
        elif has_end(told.event.name):
            open_pairs |= pairs
        if told.event.closes:
            assert (told.event.backend, N.BACKEND_RESTARTING) in open_pairs, "an end goes only to whom its begin went"
            open_pairs.remove((told.event.backend, N.BACKEND_RESTARTING))
        elif told.event.name not in ENDS:
            assert is_wanted(told.event.name, rules.on) or told.event.name is N.BACKEND_NOT_RESTARTED
        if rules.backends:
            assert told.event.backend in rules.backends
        if is_quiet(rules.quiet, minute):
            assert rules.loud
        if rules.at_most is not None:
            count, seconds = rules.at_most
            assert sum(0 <= wall_seconds - at < seconds for at, _, _ in going if at <= wall_seconds) <= count
    told_back = sum(told.held_back for _, _, told in going) + gate.held_back
    assert len(events) + told_back + len(gate.held) <= len(heard), "nothing is counted twice"


@given(_STEPS)
def test_once_nothing_holds_it_back_the_sink_knows_what_is_true(
    steps: list[tuple[EventName | None, str | None, int, int]],
) -> None:
    rules, gate, wall, fails = Rules(quiet=QUIET, at_most=(3, 3600.0)), Gate(), 0.0, Failures()
    true: set[tuple[str | None, EventName]] = set()
    believed: set[tuple[str | None, EventName]] = set()

    def believe(going: list[Told]) -> None:
        for told in going:
            pairs = {(told.event.backend, name) for name in begun_by(told.event.name)}
            if told.event.name in ENDS:
                believed.difference_update(pairs)
            elif has_end(told.event.name):
                believed.update(pairs)
            believed.difference_update((told.event.backend, closed) for closed in told.event.closes)

    for number, (name, backend, later, minute) in enumerate(steps):
        wall += later
        if name is None:
            gate, more = release(gate, rules, Moment(wall, minute))
        else:
            one = fails(event(name, backend, number))
            pairs = {(backend, begun) for begun in begun_by(name)}
            if name in ENDS:
                true -= pairs
            elif has_end(name):
                true |= pairs
            true -= {(backend, closed) for closed in one.closes}
            gate, more = hear(gate, rules, one, Moment(wall, minute))
        believe(more)
    for _ in range(MOST_HELD):
        wall += 86400.0
        gate, more = release(gate, rules, Moment(wall, 12 * 60))
        believe(more)
    assert believed == true
    assert gate.held == ()


@given(_RULES, _STEPS)
def test_it_is_the_same_after_it_was_kept_on_disk(
    rules: Rules, steps: list[tuple[EventName | None, str | None, int, int]]
) -> None:
    gate, fails = Gate(), Failures()
    for number, (name, backend, later, minute) in enumerate(steps):
        if name is not None:
            gate, _ = hear(gate, rules, fails(event(name, backend, number)), Moment(float(later), minute))
    assert msgspec.json.decode(msgspec.json.encode(gate), type=Gate) == gate
