"""make dist: the sdist holds all of the project, the wheel built from it is the same as one from the checkout, and it works offline."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from moetuned import __version__

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if importlib.util.find_spec("build") is None:
        pytest.skip("needs the Python package build (make test installs it)")
    target = tmp_path_factory.mktemp("dist")
    result = subprocess.run(
        ["sh", ROOT / "scripts/build_dist.sh", sys.executable],
        env={**os.environ, "DIST": str(target)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if "Could not find a version" in result.stdout + result.stderr:
        pytest.skip("pip cannot get setuptools here")
    assert result.returncode == 0, result.stdout + result.stderr
    return target


@pytest.fixture(scope="module")
def wheel(made: Path) -> Path:
    return made / f"moetuned-{__version__}-py3-none-any.whl"


def test_the_sdist_holds_what_the_project_is_made_of(made):
    with tarfile.open(made / f"moetuned-{__version__}.tar.gz") as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    for name in (
        "Makefile", "CHANGELOG.md", "README.md", "LICENSE", "pyproject.toml", "etc/moetuned.yaml", "etc/hooks.d/10-log-line",
        "systemd/moetuned.service", "docs/man/moetunectl.1", "docs/install.md", "scripts/install.sh", "scripts/debian/control",
        "tests/conftest.py", "tests/test_install.py", "moetuned/data/completion.json",
    ):  # fmt: skip
        assert name in names, name
    assert not [name for name in names if "__pycache__" in name or name.startswith(("build", ".venv"))]


def test_the_wheel_from_the_sdist_is_that_of_the_checkout(wheel):
    with zipfile.ZipFile(wheel) as archive:
        held = {name: archive.read(name) for name in archive.namelist()}
    package = {name: content for name, content in held.items() if name.startswith("moetuned/")}
    sources = {
        str(path.relative_to(ROOT)): path.read_bytes()
        for path in (ROOT / "moetuned").rglob("*")
        if path.is_file() and path.parent.name != "__pycache__"
    }
    assert package == sources
    data = f"moetuned-{__version__}.data/data/share"
    for path in (ROOT / "docs/man").iterdir():
        assert held[f"{data}/man/man{path.suffix[1:]}/{path.name}"] == path.read_bytes()
    for shell in (
        "bash-completion/completions/moetunectl",
        "zsh/site-functions/_moetunectl",
        "fish/vendor_completions.d/moetunectl.fish",
    ):
        assert f"{data}/{shell}" in held


def test_it_installs_into_an_empty_venv_without_an_index(wheel, tmp_path):
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    install = [venv / "bin/python", "-m", "pip", "install", "--quiet", "--no-index"]
    subprocess.run([*install, "--no-deps", wheel], env=clean, check=True, capture_output=True)
    assert (venv / "share/man/man1/moetunectl.1").exists()
    assert (venv / "share/bash-completion/completions/moetunectl").exists()
    # Its dependencies are those of this Python.
    place = subprocess.run(
        [venv / "bin/python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True, text=True, check=True, env=clean,
    ).stdout.strip()  # fmt: skip
    import click

    (Path(place) / "others.pth").write_text(f"{Path(click.__file__).parent.parent}\n")
    result = subprocess.run(
        [venv / "bin/moetunectl", "--version"], cwd=tmp_path, env=clean, capture_output=True, text=True, check=False
    )
    assert result.stdout == f"moetunectl {__version__}\n", result.stderr
