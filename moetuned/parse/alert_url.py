"""Addresses of alert sinks as they may be shown: a path or a query is often what lets somebody in."""

from __future__ import annotations

import re

_HOST = re.compile(r"(https?://)(?:[^/?#@\s]*@)?([^/?#\s]{1,300})(.*)", re.DOTALL)


def shown_url(url: str) -> str:
    """Scheme, host and port of the URL, and "/…" in place of what follows; "?" for what is none.

    Hooks of chat services and topics of ntfy are secrets in the path.
    """
    match = _HOST.fullmatch(url)
    if match is None:
        return "?"
    return f"{match[1]}{match[2]}{'/…' if match[3].strip('/') else ''}"
