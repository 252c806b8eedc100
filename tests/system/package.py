"""Puts moetuned on a guest: one function knows how, all else only calls it."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from machine import Image, Machine

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "vm"
_PYTHON = {"bookworm": "3.11", "trixie": "3.13"}
_NOT_SOURCES = ("build", "dist", "*.egg-info", "__pycache__", ".*_cache", ".venv", ".hypothesis", "*.gguf")
CLONE = "/home/newcomer/moetuned"
WHEELS = "/usr/share/wheels"
INSTALL_SECONDS = 300.0
PYTHON = "env PYTHONPATH=/usr/lib/moetuned/python python3"
"""In the guest: a Python that knows the installed moetuned."""


def wheels(release: str) -> Path:
    """What moetuned is built on, for the release's Python, as its own pip would download it; kept while pyproject.toml is the same."""
    project = (ROOT / "pyproject.toml").read_text()
    wanted = re.search(r"^dependencies = \[(.*?)^\]", project, re.DOTALL | re.MULTILINE)
    assert wanted is not None, "pyproject.toml has no dependencies"
    needs = [*re.findall(r'"([^"]+)"', wanted[1]), "setuptools>=69", "wheel"]
    # It has no wheel; it is pure Python, so one that is built here fits everywhere.
    pure = [one for one in needs if one.startswith("sdnotify")]
    return fetch(release, [one for one in needs if one not in pure], pure)


def fetch(release: str, needs: list[str], pure: list[str]) -> Path:
    """A directory with wheels for the release's Python, `pure` built here; kept."""
    name = hashlib.sha256(repr((release, needs, pure)).encode()).hexdigest()[:12]
    directory = BUILD / f"wheels-{release}-{name}"
    if not directory.exists():
        fetched = directory.with_name(directory.name + ".new")
        shutil.rmtree(fetched, ignore_errors=True)
        pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
        if pure:
            subprocess.run([*pip, "wheel", "--no-deps", "--use-pep517", "--wheel-dir", str(fetched), *pure], check=True)
        choice = ["--python-version", _PYTHON[release], "--only-binary=:all:", "--dest", str(fetched)]
        subprocess.run([*pip, "download", *choice, *needs], check=True)
        fetched.rename(directory)
    return directory


def sources(directory: Path) -> Path:
    """The checkout as a clone would have it, below `directory`."""
    copy = directory / "moetuned"
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*_NOT_SOURCES, ".git", "tests"), symlinks=True)
    return copy


def bring_clone(machine: Machine) -> None:
    """A clone in newcomer's home, and a source of Python packages that needs no network: the one thing a real machine has otherwise."""
    with tempfile.TemporaryDirectory(prefix="moetuned-vm-") as staged:
        machine.put({CLONE: sources(Path(staged)), WHEELS: wheels(machine.image.release)})
    machine.write("/etc/pip.conf", f"[global]\nno-index = true\nfind-links = {WHEELS}\n")
    machine.run(f"chown -R newcomer: {CLONE}")


def build_package(image: Image) -> Path:
    """The checkout's package, made by `make deb` in the guest's release, but on this machine, which is faster. Kept while nothing changes."""
    with tempfile.TemporaryDirectory(prefix="moetuned-vm-") as work:
        copy = sources(Path(work))
        sums = hashlib.sha256(image.directory.name.encode())
        for path in sorted(path for path in copy.rglob("*") if path.is_file()):
            sums.update(f"{path.relative_to(copy)} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
        package = image.directory / "packages" / f"moetuned-{sums.hexdigest()[:16]}.deb"
        if not package.exists():
            shutil.rmtree(package.parent, ignore_errors=True)
            package.parent.mkdir()
            root = Path(work) / "root"
            root.mkdir()
            subprocess.run(["tar", "-xf", str(image.directory / "builder.tar"), "-C", str(root)], check=True)
            shutil.move(copy, root / "moetuned")
            shutil.copytree(wheels(image.release), root / "wheels")
            # Mounts of its own, gone with it.
            script = f"mount -t proc proc {root}/proc && exec chroot {root} env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8"
            script += " WHEELS=/wheels make -C /moetuned deb"
            said = subprocess.run(
                ["unshare", "--mount", "sh", "-c", script], capture_output=True, text=True, check=False, timeout=600
            )
            made = sorted((root / "moetuned" / "dist").glob("moetuned_*.deb"))
            assert said.returncode == 0, f"make deb: {said.stdout[-3000:]}{said.stderr[-3000:]}"
            assert len(made) == 1, f"make deb made {made}"
            shutil.move(made[0], package)
        return package


def install(machine: Machine) -> None:
    """moetuned on this guest, not enabled; over an older one: the upgrade."""
    machine.put({"/root/moetuned.deb": build_package(machine.image)})
    machine.run(
        "DEBIAN_FRONTEND=noninteractive apt-get -q -y install /root/moetuned.deb && rm /root/moetuned.deb",
        INSTALL_SECONDS,
    )


def remove(machine: Machine) -> None:
    """All of it off again, config and state too."""
    machine.run("DEBIAN_FRONTEND=noninteractive apt-get -q -y purge moetuned", INSTALL_SECONDS)
