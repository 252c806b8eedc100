from moetuned.parse.config_problem import ConfigError, Problem, any_of, key_path, shown


def test_a_problem_names_file_line_key_value_and_cure():
    problem = Problem("/etc/m.yaml", "watch.interval", "'x'", "is no duration", 3)
    assert str(problem) == "/etc/m.yaml:3: watch.interval: 'x': is no duration"
    assert str(Problem("/etc/m.yaml", "", None, "is no regular file")) == "/etc/m.yaml: is no regular file"


def test_an_error_lists_all_problems():
    error = ConfigError([Problem("a", "x", None, "one"), Problem("b", "y", None, "two")])
    assert str(error) == "a: x: one\nb: y: two"
    assert len(error.problems) == 2


def test_values_from_outside_are_escaped_and_cut():
    assert shown("a\x1b[31m\nb") == r"'a\x1b[31m\nb'"
    assert len(shown("x" * 10_000)) == 60


def test_key_paths_and_alternatives_read_as_people_write_them():
    assert key_path(["backends", 0, "supervise", "command", 2]) == "backends[0].supervise.command[2]"
    assert key_path([]) == ""
    assert [any_of([]), any_of(["a"]), any_of(["a", "b", "c"])] == ["", "a", "a, b or c"]
