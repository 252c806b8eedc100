"""The Debian package, built as `make deb` builds it; once a session, for that takes half a minute."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
_PROGRAMS = ("dpkg-deb", "dpkg-buildpackage", "dh", "make")
_NO_NETWORK = "pip could not get"


def make_deb(work: Path, *variables: str) -> subprocess.CompletedProcess[str]:
    """Run `make deb`, with all that it makes below `work`."""
    environment = {
        key: value
        for key, value in os.environ.items()
        if key not in ("VERSION", "WHEELS", "MAKEFLAGS", "PYTHONPATH", "SOURCE_DATE_EPOCH")
    }
    return subprocess.run(
        ["make", "--no-print-directory", "deb", f"BUILD={work}/build", f"DIST={work}/dist", *variables],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip


def build(work: Path) -> Path:
    """The package's path. Skips where it cannot be built here, with the reason."""
    if missing := [name for name in _PROGRAMS if shutil.which(name) is None]:
        pytest.skip(f"needs {', '.join(missing)} to build a package (Debian's packages dpkg-dev, debhelper)")
    result = make_deb(work)
    if _NO_NETWORK in result.stderr:
        pytest.skip("pip cannot get moetuned's dependencies here")
    if "building a package needs" in result.stderr:
        pytest.skip(result.stderr.strip())
    assert result.returncode == 0, result.stdout + result.stderr
    (package,) = (work / "dist").glob("moetuned_*.deb")
    return package


def with_version(package: Path, version: str, work: Path) -> Path:
    """The same package with another version, as one that was built earlier or later would be."""
    tree = work / version
    subprocess.run(["dpkg-deb", "--raw-extract", package, tree], check=True)
    control = tree / "DEBIAN" / "control"
    lines = [
        f"Version: {version}" if line.startswith("Version:") else line for line in control.read_text().splitlines()
    ]
    control.write_text("\n".join(lines) + "\n")
    other = work / f"moetuned_{version}.deb"
    subprocess.run(
        ["dpkg-deb", "--root-owner-group", "-Znone", "--build", tree, other], check=True, capture_output=True
    )
    shutil.rmtree(tree)
    return other


def field(package: Path, name: str) -> str:
    """A field of the package's control file."""
    return subprocess.run(
        ["dpkg-deb", "--field", package, name], capture_output=True, text=True, check=True
    ).stdout.strip()
