"""Unit files: continuation, comments, what an empty value takes back, and the order of drop-ins."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moetuned.parse.unit_file import Line, UnitFile, merge_service, parse_unit_file, reading_order_with


def test_sections_assignments_and_what_is_neither() -> None:
    text = "\ufeff# top\n[Unit]\nDescription = a = b \n\n[Service]\r\n  ExecStart=/bin/x -c 1  \nrubbish\n=no\n; last\n[Broken\nType=exec\n"
    assert parse_unit_file(text) == (
        Line("Unit", "Description", "a = b"),
        Line("Service", "ExecStart", "/bin/x -c 1"),
        Line("Service", "Type", "exec"),
    )


def test_a_line_goes_on_past_comments_but_not_past_an_escaped_backslash() -> None:
    text = "[Service]\nExecStart=/bin/x \\\n  # why\n; and\n  -c 1 \\\n -np 2\nEnvironment=A=\\\\\nType=exec"
    assert [line.value for line in parse_unit_file(text)] == ["/bin/x    -c 1   -np 2", "A=\\\\", "exec"]


def test_a_file_that_ends_in_the_middle_of_a_line_says_what_it_has() -> None:
    assert parse_unit_file("[Service]\nExecStart=/bin/x \\\n# end") == (Line("Service", "ExecStart", "/bin/x"),)
    assert parse_unit_file("[Service]\nExecStart=/bin/x \\") == (Line("Service", "ExecStart", "/bin/x \\"),)


def test_drop_ins_add_to_lists_and_an_empty_value_takes_back() -> None:
    files = [
        UnitFile(
            "/u", "[Service]\nExecStart=/bin/a\nEnvironment=A=1\nEnvironmentFile=-/e1\nType=exec\nUnsetEnvironment=X\n"
        ),
        UnitFile(
            "/d/1",
            "[Service]\nExecStart=\nExecStart=/bin/b\nEnvironment=B=2\n[Unit]\nExecStart=/no\n[X-Moetuned]\ncontext=A\n",
        ),
        UnitFile("/d/2", "[Service]\nEnvironmentFile=/e2\nType=\n[X-Moetuned]\ncontext=B\nslots=C\n"),
    ]
    service = merge_service(files)
    assert service.commands == (("/d/1", "/bin/b"),)
    assert service.environment == (("/u", "A=1"), ("/d/1", "B=2"))
    assert service.environment_files == (("/u", "-/e1"), ("/d/2", "/e2"))
    assert (service.type, service.unset, service.own) == ("", (("/u", "X"),), (("context", "B"), ("slots", "C")))


def test_drop_ins_are_read_by_name_whatever_their_directory() -> None:
    there = ["/usr/lib/x.d/10-a.conf", "/etc/x.d/override.conf", "/run/x.d/zz-moetuned.conf"]
    assert reading_order_with(there, "/etc/x.d/zz-moetuned.conf") == (
        "/usr/lib/x.d/10-a.conf", "/etc/x.d/override.conf", "/etc/x.d/zz-moetuned.conf",
    )  # fmt: skip
    assert reading_order_with(["/etc/x.d/zzz.conf"], "/etc/x.d/zz.conf") == ("/etc/x.d/zz.conf", "/etc/x.d/zzz.conf")


@given(st.text(alphabet=st.sampled_from("[]=\\\n\r#; \tabAService\"'$%\ufeff")))
def test_no_text_is_too_much(text: str) -> None:
    for line in parse_unit_file(text):
        assert line.key == line.key.strip() != ""
        assert "\n" not in line.value


@given(
    st.lists(
        st.tuples(st.sampled_from(["ExecStart", "Environment", "Type"]), st.from_regex(r"[a-z]{0,4}", fullmatch=True))
    )
)
def test_what_was_written_is_read(lines: list[tuple[str, str]]) -> None:
    text = "[Service]\n" + "".join(f"{key} = {value}\n" for key, value in lines)
    assert [(line.key, line.value) for line in parse_unit_file(text)] == lines
