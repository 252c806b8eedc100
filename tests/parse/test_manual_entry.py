from hypothesis import given
from hypothesis import strategies as st

from moetuned.parse.manual_entry import manual_entry

HEADINGS = {"why": "Why:", "not_when": "Not when:"}


def test_paragraphs_by_their_headings():
    text = "One\n    sentence.\n\n    Not when: never\n    so.\n\n    Why: because.\n\n    Another."
    assert manual_entry(text, HEADINGS) == ("One sentence.", {"why": "because.", "not_when": "never so."})


def test_what_is_missing_is_empty():
    assert manual_entry("", HEADINGS) == ("", {"why": "", "not_when": ""})


@given(st.text())
def test_any_text_has_all_fields(text):
    summary, found = manual_entry(text, HEADINGS)
    assert set(found) == set(HEADINGS)
    assert "\n" not in summary
