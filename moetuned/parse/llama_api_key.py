"""Where a llama-server has its API keys from: `--api-key`, LLAMA_API_KEY, `--api-key-file`; and one of them.

Several keys are separated by commas, or lines of the file, where a hash begins a comment (llama-server --help).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from moetuned.parse.spelled_flags import spelled_flags

VARIABLES = ("LLAMA_API_KEY", "LLAMA_ARG_API_KEY_FILE")
_SPELLINGS = {"--api-key": "key", "--api-key-file": "file"}
_LONGEST = 512


def api_key_source(arguments: Sequence[str], environ: Mapping[str, str]) -> tuple[str | None, str | None]:
    """The text with keys, and the path of the file with keys; None: not said."""
    said = spelled_flags(list(arguments), _SPELLINGS, frozenset())
    text = said.get("key", environ.get("LLAMA_API_KEY"))
    return text or None, said.get("file", environ.get("LLAMA_ARG_API_KEY_FILE")) or None


def first_key(text: str, separator: str) -> str | None:
    """The first key that can stand in a header; None: there is none."""
    for part in text.split(separator):
        key = part.strip()
        if key and not key.startswith("#") and key.isascii() and key.isprintable() and len(key) <= _LONGEST:
            return key
    return None
