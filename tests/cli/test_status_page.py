from __future__ import annotations

from moetuned.cli.status_page import Page


def test_labels_have_a_column_of_their_own() -> None:
    page = Page(40, colour=False)
    page.field("why", "one two three four five six seven eight")
    page.field("empty", "")
    assert page.done() == "  why       one two three four five six\n            seven eight\n  empty     \n"


def test_items_are_broken_between_and_not_within() -> None:
    page = Page(41, colour=False)
    page.items(["▒ page cache 557 MiB", "░ free 16 KiB", "O others 1 GiB"])
    assert page.done().splitlines() == [
        "            ▒ page cache 557 MiB,",
        "            ░ free 16 KiB, O others 1 GiB",
    ]


def test_colour_is_only_where_it_is_wanted() -> None:
    for colour in (False, True):
        page = Page(40, colour)
        page.raw("red", "red", bold=True)
        page.raw("plain")
        assert ("\x1b[31m" in page.done()) is colour
        assert page.done().splitlines()[1] == "plain"


def test_what_does_not_fit_at_both_ends_is_no_line() -> None:
    page = Page(10, colour=False)
    assert page.ends("ab", "cd")
    assert not page.ends("abcdef", "ghijk")
    assert not page.ends("模模模", "ghi"), "seven characters, and ten columns without a blank between"
    assert page.done() == "ab      cd\n"


def test_a_whole_line_is_not_broken() -> None:
    page = Page(5, colour=False)
    page.text("a long line\x1b", whole=True)
    assert page.done() == "a long line?\n"


def test_a_bar_is_cut_at_its_whole() -> None:
    page = Page(60, colour=False)
    assert page.bar([("A", 50), ("B", 100)], 100, 28) == "A" * 10 + "B" * 10
    assert page.bar([("A", -5)], 100, 40) == "░" * 8
