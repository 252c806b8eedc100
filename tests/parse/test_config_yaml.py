import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from moetuned.parse import config_yaml
from moetuned.parse.config_problem import ConfigError
from moetuned.parse.config_yaml import ListNode, MapNode, ScalarNode, is_null, merged, read_tree


def _plain(node):
    """The tree as plain values, all scalars text, null None."""
    if isinstance(node, MapNode):
        return {key: _plain(value) for key, value in node.entries.items()}
    if isinstance(node, ListNode):
        return [_plain(item) for item in node.items]
    return None if is_null(node) else node.text


def _problems(text):
    with pytest.raises(ConfigError) as caught:
        read_tree("f", text)
    return [str(problem) for problem in caught.value.problems]


def test_keys_and_plain_scalars_stay_text():
    tree = read_tree("f", "on: off\nno: 010\n1: 1:30\nq: 'on'\n~: x\n")
    assert _plain(tree) == {"on": "off", "no": "010", "1": "1:30", "q": "on", "~": "x"}
    assert tree.entries["on"] == ScalarNode("off", True, "f", 1)
    assert tree.entries["q"] == ScalarNode("on", False, "f", 4)


def test_lines_of_keys_are_kept():
    tree = read_tree("f", "a: 1\n\nb:\n  c:\n    - x\n    - y\n")
    assert tree.lines == {"a": 1, "b": 3}
    inner = tree.entries["b"]
    assert isinstance(inner, MapNode)
    items = inner.entries["c"]
    assert isinstance(items, ListNode)
    assert [item.line for item in items.items] == [5, 6]


@pytest.mark.parametrize("text", ["", "\n", "# only words\n", "---\n", "~", "\ufeff"])
def test_an_empty_file_is_an_empty_map(text):
    assert _plain(read_tree("f", text)) == {}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: 1\nb: 2\na: 3\n", "f:3: a: given twice in this file (first in line 1)"),
        ("a:\n  - x: 1\n    x: 2\n", "f:3: a[0].x: given twice"),
        ("a: &x 1\nb: *x\n", "f:2: b: *x: aliases are not supported"),
        ("a: {<<: 1}\n", "f:1: a.<<: merge keys are not supported"),
        ("a: !!python/object/apply:os.system [id]\n", "tags are not supported"),
        ("a: !!int '3'\n", "tags are not supported"),
        ("- a\n- b\n", "must be keys with values"),
        ("just words\n", "must be keys with values"),
        ("a: 1\n---\nb: 2\n", "a second document begins here"),
        ("? [a]\n: b\n", "a key must be a word"),
        ("a:\n\tb: 1\n", "indent with spaces, not tabs"),
        ("a: {model}}\n", "is not YAML"),
        ("a: [x, {model}.gguf]", 'put placeholders in quotes, e.g. "{model}"'),
        ("a: \x00", "is not YAML"),
        ("x: " + "[" * 17 + "]" * 17, "nested deeper than 16 levels"),
        ("[" * 100_000, "nest"),
        ("{a: " * 100_000, "nest"),
        ("x" * (1 << 20) + "y", "larger than 1 MiB"),
    ],
    ids=range(18),
)  # fmt: skip
def test_what_a_config_must_not_hold(text, expected):
    assert any(expected in problem for problem in _problems(text)), _problems(text)


def test_several_duplicates_are_all_reported_but_not_without_end():
    assert len(_problems("a: 1\na: 2\nb: 1\nb: 2\n")) == 2
    assert len(_problems("a: 1\n" * 5000)) == 100


def test_the_pure_python_loader_gives_the_same_tree(monkeypatch):
    text = 'a: [1, "2", {b: ~}]\nc:\n  d: |\n    x\n    y\n'
    fast = read_tree("f", text)
    monkeypatch.setattr(config_yaml, "_LOADER", yaml.SafeLoader)
    assert read_tree("f", text) == fast
    with pytest.raises(ConfigError, match=r"nested deeper|is not YAML"):
        read_tree("f", "[" * 20_000)


def test_later_files_overlay_earlier_ones():
    first = read_tree("1", "a: {x: 1, y: [1, 2]}\nb: 1\nc: [1]\n")
    second = read_tree("2", "a: {y: [3], z: 4}\nb: {q: 1}\nc:\n")
    tree = merged([first, second])
    assert _plain(tree) == {"a": {"x": "1", "y": ["3"], "z": "4"}, "b": {"q": "1"}, "c": ["1"]}
    inner = tree.entries["a"]
    assert isinstance(inner, MapNode)
    assert [inner.entries[key].file for key in "xyz"] == ["1", "2", "2"]


def test_nothing_merged_is_nothing():
    assert _plain(merged([])) == {}


_VALUES = st.recursive(
    st.text("ab:-#'\"{}[]% é\u4e2d\U0001f600\t", max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", min_size=1, max_size=3), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.text("abcxyz", min_size=1, max_size=4), _VALUES, max_size=4))
def test_what_yaml_writes_is_read_back(data):
    text = yaml.safe_dump(data, allow_unicode=True, default_style='"')
    assert _plain(read_tree("f", text)) == data


@given(st.text() | st.text("{}[]:-,&*!|>'\"#%@` \n\tabc<?", max_size=60))
@example("a: b: c")
@example("%YAML 9.9\n---\n")
@example("\ud800")
def test_any_text_is_a_tree_or_a_config_error(text):
    problems = ()
    try:
        read_tree("f", text)
    except ConfigError as error:
        problems = error.problems
        if not problems:
            raise
    assert all(problem.file == "f" and problem.hint for problem in problems)
