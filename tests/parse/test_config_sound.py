import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.parse.config_sound import sound_config
from moetuned.parse.config_text import ConfigError, load, load_with_warnings
from moetuned.parse.config_yaml import read_tree
from moetuned.schema.config import Config
from moetuned.schema.supervise import SuperviseNone, SuperviseProcess


def sound(text):
    return sound_config(read_tree("f", text))


def said(text):
    with pytest.raises(ConfigError) as caught:
        load_with_warnings([("f", text)], known_kinds={"llama-server"})
    return [problem.path for problem in caught.value.problems]


def test_a_good_config_is_sound_as_a_whole():
    text = "watch: {interval: 2s}\nbackends: [{name: a}]\nlimits: {near: 9%}\nalerts: [{kind: exec}]\n"
    assert sound(text) == load([("f", text)])


def test_the_other_keys_of_a_section_are_kept():
    watch = sound("watch: {interval: 2s, discover: 3, bogus: 1}\n").watch
    assert (watch.interval, watch.discover) == ("2s", True)


def test_keys_that_are_compared_are_kept_together_or_not_at_all():
    assert sound("limits: {near: 2%, critical: [1]}\n") == Config()
    assert said("limits: {near: 2%, critical: [1]}\n") == ["limits.critical"]


def test_backends_keep_their_places_and_what_could_be_read():
    config = sound("backends:\n  - 5\n  - {name: a, url: x, kind: k}\n  - {name: A/B, kind: j}\n")
    assert [backend.kind for backend in config.backends] == [None, "k", "j"]
    assert len({backend.name for backend in config.backends}) == 3
    assert config.backends[1].name == "a"


def test_a_command_is_not_judged_without_what_it_uses():
    command = "supervise: {by: process, command: [s, -m, '{model}', -c, '{context}']}"
    broken = sound(f"backends: [{{name: a, model: [1], {command}}}]\n")
    assert isinstance(broken.backends[0].supervise, SuperviseNone)
    assert said(f"backends: [{{name: a, model: [1], {command}}}]\n") == ["backends[0].model"]
    kept = sound(f"backends: [{{name: a, model: /m, url: x, {command}}}]\n")
    assert isinstance(kept.backends[0].supervise, SuperviseProcess)


def test_alerts_keep_their_places():
    text = "alerts:\n  - {kind: nope}\n  - {kind: exec, directory: hooks}\n  - {kind: nope}\n"
    assert [alert.directory for alert in sound(text).alerts][1] == "hooks"
    assert said(text) == ["alerts[0].kind", "alerts[1].directory", "alerts[2].kind"]


_BREAKS = st.sampled_from(["watch", "warm", "api", "relief", "tuning"])


@given(st.sets(_BREAKS, min_size=1))
def test_a_broken_section_hides_no_problem_of_another(broken):
    text = "".join(f"{section}: {{bogus: 1}}\n" for section in sorted(broken))
    paths = said(text + "backends: [{name: a, kind: x}, {name: a}]\nlimits: {near: 1%}\n")
    expected = {f"{section}.bogus" for section in broken} | {"backends[0].kind", "backends[1].name", "limits.near"}
    assert set(paths) == expected


@given(st.dictionaries(st.sampled_from(Config.__struct_fields__), st.sampled_from(["5", "[1]", "[{}]", "{a: 1}", "x"])))
def test_nothing_that_cannot_be_read_gets_in(values):
    config = sound("".join(f"{key}: {value}\n" for key, value in values.items()))
    config = msgspec.structs.replace(config, backends=[], alerts=[])
    assert config == Config()
