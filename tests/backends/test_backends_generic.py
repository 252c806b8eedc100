"""The kind generic: nothing is one by its command line, and nothing is known of one but how it answers."""

from __future__ import annotations

from moetuned.backends import generic
from moetuned.schema.backend_abilities import Dialect


def test_no_command_line_is_one_by_itself() -> None:
    assert not generic.recognise(["generic"])


def test_its_address_must_be_said() -> None:
    said = generic.describe(["serve", "--port", "80"], {})
    assert (said.url, said.dialect) == (None, Dialect.GENERIC)
    assert "url" in (said.url_unknown or "")
