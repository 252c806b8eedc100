"""Where the README, the docs and what is installed point to: pages, headings, addresses, keys of the config; and that no page is left alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints
from urllib.parse import urlsplit

import msgspec
import pytest

from moetuned.schema.config import Config

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
OTHERS = [
    path
    for directory in ("etc", "systemd", "scripts", "moetuned", "docs/man", ".ci")
    for path in sorted((ROOT / directory).rglob("*"))
    if path.is_file() and "__pycache__" not in path.parts
] + [ROOT / "Makefile", ROOT / "pyproject.toml"]
"""Files of ours that name pages of the docs or addresses."""


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def without_blocks(text: str) -> str:
    return re.sub(r"^ *```.*?^ *```", "", text, flags=re.MULTILINE | re.DOTALL)


def without_code(text: str) -> str:
    return re.sub(r"`[^`\n]*`", "", without_blocks(text))


def anchors(page: Path) -> set[str]:
    """The anchors GitHub makes of headings; the second of the same name gets a number."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ +(.+)$", without_blocks(page.read_text()), re.MULTILINE):
        said = re.sub(r"\[([^]]+)\]\([^)]*\)", r"\1", heading)
        anchor = re.sub(r"[^\w\- ]", "", said.lower()).replace(" ", "-")
        number = 0
        while (name := f"{anchor}-{number}" if number else anchor) in found:
            number += 1
        found.add(name)
    return found


def targets(text: str) -> list[str]:
    """Of links and pictures, Markdown's and HTML's."""
    text = without_code(text)
    return re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r"(?:src|srcset|href)=\"([^\"]+)\"", text)


def is_address(target: str) -> bool:
    return re.match(r"[a-z]+:", target) is not None


def problem_of(page: Path, target: str) -> str | None:
    """What is wrong with a link of a page to another; None: it leads somewhere."""
    path, _, anchor = target.partition("#")
    file = (page.parent / path).resolve() if path else page
    if ROOT not in file.parents:
        return f"{path} is outside"
    if not file.exists():
        return f"{path} is not there"
    return f"{target}: there is no such heading" if anchor and anchor not in anchors(file) else None


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    for target in targets(page.read_text()):
        assert is_address(target) or (problem := problem_of(page, target)) is None, f"{name_of(page)}: {problem}"


def test_a_link_to_nowhere_is_noticed() -> None:
    page = ROOT / "docs" / "status.md"
    assert problem_of(page, "no-such-page.md") is not None
    assert problem_of(page, "undo.md#no-such-heading") is not None
    assert problem_of(page, "#no-such-heading") is not None
    assert problem_of(page, "../../../etc/passwd") is not None
    assert problem_of(page, "undo.md#by-hand") is None


def test_what_is_installed_names_pages_that_are_there() -> None:
    """Python files aside: they name pages of llama.cpp and others, too."""
    named = {
        (name_of(path), named)
        for path in OTHERS
        if path.suffix != ".py"
        for named in re.findall(r"\bdocs/[\w/-]+\.md(?:#[\w-]+)?", path.read_text(errors="replace"))
    }
    assert named
    assert {said for said in named if problem_of(ROOT / "README.md", said[1]) is not None} == set()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_modules_that_a_page_names_are_there(page: Path) -> None:
    """`host/trusted_path.py` stands for moetuned/host/trusted_path.py; what has <name> in it is a pattern."""
    for named in re.findall(r"`((?:[a-z_]+/)+[a-z_0-9]+\.(?:py|sh))`", without_blocks(page.read_text())):
        assert (ROOT / named).is_file() or (ROOT / "moetuned" / named).is_file(), f"{name_of(page)}: {named}"


# Addresses


LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


def address_problem(address: str) -> str | None:
    """Why nobody should follow it; None when it is well-formed and https, or on this machine. It is not fetched."""
    if re.match(rf"http://(?:{'|'.join(map(re.escape, LOOPBACK))})(?:[:/]|$)", address):
        return None
    parts = urlsplit(address)
    if parts.scheme not in ("https", "mailto"):
        return f"{address} is not https"
    if parts.scheme == "https" and not re.fullmatch(r"(?:[a-z0-9-]+\.)+[a-z]{2,}", parts.hostname or ""):
        return f"{address} has no host"
    return f"{address} holds what no address does" if re.search(r"[\s<>\"{}|\\^`]", address) else None


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_addresses_in_pages_are_https(page: Path) -> None:
    bare = re.findall(r"(?<![(\w])\b[a-z]+://[^\s)>\]]+", without_code(page.read_text()))
    for address in [*bare, *(target for target in targets(page.read_text()) if is_address(target))]:
        assert address_problem(address.rstrip(".,;:")) is None, f"{name_of(page)}: {address}"


@pytest.mark.parametrize("address", ["http://example.org/", "https:///x", "https://exa mple.org", "ftp://example.org/"])
def test_a_wrong_address_is_noticed(address: str) -> None:
    assert address_problem(address) is not None


def test_what_is_installed_names_other_machines_by_https_only() -> None:
    for path in OTHERS:
        if path.suffix not in (".service", ".yaml", ".yml", ".env", ".1", ".5", ".8", ".sh"):
            continue
        for host in re.findall(r"\bhttp://(\[[^]]*\]|[^\s\"'):/]+)", path.read_text(errors="replace")):
            assert host.replace("\\", "") in (*LOOPBACK, "proxy"), f"{name_of(path)}: {host}"


# No page is alone


def linked_pages(page: Path) -> Iterator[Path]:
    for target in targets(page.read_text()):
        if not is_address(target) and target.partition("#")[0].endswith(".md"):
            yield (page.parent / target.partition("#")[0]).resolve()


def test_every_page_is_reached_from_the_readme() -> None:
    reached, waiting = set[Path](), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page not in reached and page.exists():
            reached.add(page)
            waiting += linked_pages(page)
    assert [name_of(page) for page in PAGES if page not in reached] == []


def test_the_index_has_every_page() -> None:
    """All but what a page of its own lists: alerts and decisions."""
    index = ROOT / "docs" / "README.md"
    listed = set(linked_pages(index))
    there = {page for page in PAGES if ROOT / "docs" in page.parents and page.parent.name not in ("alerts", "adr")}
    assert [name_of(page) for page in sorted(there - listed - {index})] == []
    assert ROOT / "docs" / "alerts.md" in listed
    assert ROOT / "docs" / "adr" / "README.md" in listed


# Keys of the config

SECTIONS = tuple(Config.__struct_fields__)


def keys_of(hint: Any, prefix: str = "") -> Iterator[str]:
    """Every key below a type, dotted; of a list those of its items; `prefix.*` where any word is a key."""
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        for name, inner in get_type_hints(hint).items():
            word = hint.__struct_encode_fields__[hint.__struct_fields__.index(name)]
            key = f"{prefix}.{word}" if prefix else word
            yield key
            yield from keys_of(inner, key)
    elif get_origin(hint) is dict or getattr(get_origin(hint), "__name__", "") == "Mapping":
        yield f"{prefix}.*"
    elif get_origin(hint) in (Union, UnionType, tuple, list):
        for inner in get_args(hint):
            yield from keys_of(inner, prefix)


KEYS = frozenset(keys_of(Config))


def is_key(name: str) -> bool:
    return name in KEYS or any(key.endswith(".*") and name.startswith(key[:-1]) for key in KEYS)


def named_keys(text: str) -> Iterator[str]:
    """Code in a text that looks like a key of the config: `relief.mode`, or `relief.mode: act`."""
    for code in re.findall(r"`([^`\n]+)`", without_blocks(text)):
        found = re.fullmatch(rf"((?:{'|'.join(SECTIONS)})(?:\.[a-z_]+)+)(?::.*)?", code)
        if found is not None and not found[1].endswith((".md", ".yaml", ".yml", ".py", ".jsonl", ".json")):
            yield found[1]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_keys_of_the_config_that_a_page_names_are_there(page: Path) -> None:
    wrong = {key for key in named_keys(page.read_text()) if not is_key(key)}
    assert wrong == set(), name_of(page)


def test_keys_are_found_and_a_wrong_one_is_noticed() -> None:
    assert {key for page in PAGES for key in named_keys(page.read_text())} >= {"relief.mode", "watch.interval"}
    assert list(named_keys("`relief.mod` and `tuning.sysctl.vm.swappiness`")) == [
        "relief.mod",
        "tuning.sysctl.vm.swappiness",
    ]
    assert not is_key("relief.mod")
    assert is_key("tuning.sysctl.vm.swappiness")
    assert is_key("backends.context.minimum")
