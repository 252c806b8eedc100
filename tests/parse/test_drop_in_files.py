from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moetuned.parse.drop_in_files import reading_order


def test_files_are_read_by_name_whatever_the_directory() -> None:
    listings = [("/etc/x.d", ["90-b.conf", "10-a.conf"]), ("/usr/lib/x.d", ["50-c.conf"])]
    assert reading_order(listings, ".conf") == ("/etc/x.d/10-a.conf", "/usr/lib/x.d/50-c.conf", "/etc/x.d/90-b.conf")


def test_a_file_in_a_more_important_directory_replaces_its_namesake() -> None:
    listings = [("/etc/x.d", ["a.conf"]), ("/run/x.d", ["a.conf"]), ("/usr/lib/x.d", ["a.conf", "b.conf"])]
    assert reading_order(listings, ".conf") == ("/etc/x.d/a.conf", "/usr/lib/x.d/b.conf")


def test_other_endings_are_left_out() -> None:
    assert reading_order([("/e", ["README", "a.conf.bak", ".conf", "a.conf~"])], ".conf") == ()


@given(st.lists(st.tuples(st.sampled_from(["/e", "/r", "/u"]), st.lists(st.sampled_from(["a.c", "b.c", "c.c", "d"])))))
def test_each_name_is_read_once_and_in_order(listings: list[tuple[str, list[str]]]) -> None:
    names = [path.rpartition("/")[2] for path in reading_order(listings, ".c")]
    assert names == sorted({name for _, listed in listings for name in listed if name.endswith(".c")})
