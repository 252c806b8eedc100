"""The picture of the house: it has every package, in the layers and of the kinds that the contracts in pyproject.toml have."""

from __future__ import annotations

import importlib.util
import tomllib
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree as ET

import pytest

ROOT = Path(__file__).resolve().parent.parent
BESIDE = {"data", "demo", "simulator", "xllamacpp_server"}
"""Directories of the package that are no part of the house."""


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


HOUSE = script("house_svg")


def contracts() -> list[dict[str, list[str]]]:
    return list(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"])


def test_every_package_is_in_it() -> None:
    there = {path.name for path in (ROOT / "moetuned").iterdir() if path.is_dir() and path.name != "__pycache__"}
    drawn = [name for row in HOUSE.layers() for name in row]
    assert sorted(drawn) == sorted(there - BESIDE)
    assert set(HOUSE.HOLDS) == set(drawn)


def test_kinds_are_those_of_the_contracts() -> None:
    pure = next(one["source_modules"] for one in contracts() if "pathlib" in one.get("forbidden_modules", ()))
    apart = [one["modules"][0] for one in contracts() if one.get("modules")]
    assert {f"moetuned.{name}" for name in HOUSE.PURE} == set(pure)
    assert {f"moetuned.{name}.*" for name in HOUSE.PLUG_INS} == set(apart)


def test_a_package_of_which_nothing_is_said_stops_it() -> None:
    with pytest.raises(KeyError):
        HOUSE.house_svg([["cli"], ["cellar"]])


@pytest.mark.parametrize("name", ["house.svg", "status.svg"])
def test_a_picture_is_well_formed_and_needs_nothing_from_elsewhere(name: str) -> None:
    text = (ROOT / "docs" / "pictures" / name).read_text()
    assert ET.fromstring(text).tag.endswith("svg")
    assert [word for word in ("<script", "<image", "url(http", "href", "@import", "@font-face") if word in text] == []


def test_the_page_says_the_same_in_words() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    assert 'src="pictures/house.svg"' in page
    assert all(f"`{name}`" in page for row in HOUSE.layers() for name in row)
