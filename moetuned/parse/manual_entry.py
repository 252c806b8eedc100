"""A plug-in's docstring as its manual entry: a first sentence, and paragraphs that begin with a heading."""

from __future__ import annotations

import inspect
from collections.abc import Mapping


def manual_entry(docstring: str, headings: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """The first paragraph without a heading, and for each field the text after its heading (`{"why": "Why:"}`); what is missing is empty."""
    found = dict.fromkeys(headings, "")
    summary = ""
    for paragraph in inspect.cleandoc(docstring).split("\n\n"):
        text = " ".join(paragraph.split())
        for field, heading in headings.items():
            if text.startswith(heading):
                found[field] = text.removeprefix(heading).strip()
                break
        else:
            summary = summary or text
    return summary, found
