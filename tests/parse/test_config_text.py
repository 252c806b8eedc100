import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.parse.config_sample import sample_config
from moetuned.parse.config_text import ConfigError, Problem, load, load_with_warnings
from moetuned.schema.config import Config, Mode, Profile
from moetuned.schema.supervise import SuperviseProcess


def problems(*texts, known=None):
    with pytest.raises(ConfigError) as caught:
        load([(f"{number}.yaml", text) for number, text in enumerate(texts, 1)], known)
    return [str(problem) for problem in caught.value.problems]


def test_no_file_and_empty_files_are_the_default_config_which_changes_nothing():
    assert load([]) == load([("a", ""), ("b", "# nothing\n"), ("c", "tuning:\nbackends:\nrelief:\n")]) == Config()
    assert Config().tuning.profile is Profile.OBSERVE
    assert Config().relief.mode is Mode.OBSERVE


def test_a_whole_config_is_read():
    config = load(
        [
            (
                "a",
                """
tuning: {profile: moe-offload, sysctl: {vm.vfs_cache_pressure: 50}}
backends:
  - name: glm
    kind: llama-server
    model: /models/glm.gguf
    supervise: {by: process, command: [llama-server, -m, "{model}", -c, "{context}", --port, 8080]}
    url: http://127.0.0.1:8080
    context: {preferred: 16384, minimum: 2048}
limits: {near: 8%, critical: 512MiB}
relief: {mode: act, at_most: 3/h}
alerts: [{kind: exec, on: [thrash_begin]}]
api: {listen: off}
""",
            )
        ]
    )
    supervise = config.backends[0].supervise
    assert isinstance(supervise, SuperviseProcess)
    assert supervise.command == ["llama-server", "-m", "{model}", "-c", "{context}", "--port", "8080"]
    assert config.tuning.sysctl == {"vm.vfs_cache_pressure": 50}
    assert config.api.listen is False


def test_later_files_overlay_earlier_ones_and_errors_name_the_file_that_said_it():
    first = "watch: {interval: 1s, discover: false}\nalerts: [{kind: exec}]\n"
    config = load([("1", first), ("2", "watch: {interval: 2s}\nalerts: []\n")])
    assert (config.watch.interval, config.watch.discover, config.alerts) == ("2s", False, [])
    found = problems(first, "watch:\n  interval: 2 parsec\n", "api: {sokcet: /x}\n")
    assert found == [
        "2.yaml:2: watch.interval: '2 parsec' is no duration; write e.g. 500ms, 1s, 5m, 2h",
        "3.yaml:1: api.sokcet: unknown key; did you mean socket?",
    ]


def test_types_cross_checks_and_broken_files_are_reported_together():
    found = problems(
        "relief: {mode: nct}\nlimits: {near: 1%}\nbackends:\n  - {name: a}\n  - {name: a}\nbogus: 1\n",
        "watch: [\n",
    )
    assert [problem.split(": ")[1] for problem in found[:4]] == [
        "relief.mode",
        "limits.near",
        "backends[1].name",
        "bogus",
    ]
    assert [problem.split(":")[1] for problem in found[:4]] == ["1", "2", "5", "6"]
    assert found[4].startswith("2.yaml:")
    assert "is not YAML" in found[4]


def test_a_key_with_dots_is_found_in_its_line():
    found = problems(
        "tuning:\n  profile: moe-offload\n  sysctl:\n    vm.x: 1\n    vm.dirty_ratoi: 2\n", known={"vm.dirty_ratio"}
    )
    assert [problem.split(":")[1] for problem in found] == ["4", "5"]


def test_a_cross_check_of_a_default_names_the_section_that_was_written():
    (found,) = problems("limits:\n  critical: 50%\n")
    assert found.startswith("1.yaml:1: limits.near: '8%': must be more headroom than limits.critical (50%)")


def test_warnings_come_with_the_config_and_with_their_place():
    config, warnings = load_with_warnings([("a", "tuning: {thp: never}\n")])
    assert config.tuning.thp == "never"
    assert [str(warning).split(": ")[0] for warning in warnings] == ["a:1"]
    assert warnings[0].severity == "warning"


def test_further_checks_are_placed_like_all_others_and_see_what_could_be_read():
    seen = []

    def further(config):
        seen.append(config.watch.interval)
        yield Problem("", "watch.interval", None, "is unlucky", severity="warning")
        if config.watch.interval == "3s":
            yield Problem("", "watch.interval", "'3s'", "is refused")

    _, warnings = load_with_warnings([("a", "\nwatch: {interval: 2s}\n")], further=[further])
    assert [str(warning) for warning in warnings] == ["a:2: watch.interval: is unlucky"]
    with pytest.raises(ConfigError) as caught:
        load_with_warnings([("a", "watch: {interval: 3s}\n")], further=[further])
    assert [str(problem) for problem in caught.value.problems] == ["a:1: watch.interval: '3s': is refused"]
    assert [str(warning) for warning in caught.value.warnings] == ["a:1: watch.interval: is unlucky"]
    with pytest.raises(ConfigError) as caught:
        load_with_warnings([("a", "watch: {interval: 3s, bogus: 1}\n")], further=[further])
    assert [problem.path for problem in caught.value.problems] == ["watch.bogus", "watch.interval"]
    assert caught.value.warnings == ()
    assert seen == ["2s", "3s", "3s"]


_KEYS = st.sampled_from([*Config.__struct_fields__, "name", "by", "kind", "mode", "interval", "command", "on"])
_TREE = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 5) | st.sampled_from(["act", "process", "exec", "1s", "8%", "{model}"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(_KEYS, _TREE, max_size=4))
def test_any_tree_is_a_config_or_a_config_error_with_places(tree):
    import json

    found = ()
    try:
        load([("f", json.dumps(tree))])
    except ConfigError as error:
        found = error.problems
        if not found:
            raise
    assert all(problem.file == "f" and problem.hint for problem in found)


@given(st.integers(0, 4000), st.integers(0, 60), st.text("ab:{}[]-\n #\"'", max_size=4))
def test_a_damaged_sample_never_ends_in_anything_but_a_config_error(at, cut, insert):
    text = sample_config()
    damaged = text[:at] + insert + text[at + cut :]
    message = ""
    try:
        load([("f", damaged)])
    except ConfigError as error:
        message = str(error)
        if not message:
            raise
    assert message == "" or message.startswith("f")
