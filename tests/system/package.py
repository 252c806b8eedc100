"""Puts moetuned on a guest: one function knows how, all else only calls it."""

from __future__ import annotations

import fcntl
import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from machine import Image, Machine

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUILD = ROOT / "build" / "vm"
_PYTHON = {"bookworm": "3.11", "trixie": "3.13"}
_NOT_SOURCES = ("build", "dist", "*.egg-info", "__pycache__", ".*_cache", ".venv", ".hypothesis", "*.gguf")
CLONE = "/home/newcomer/moetuned"
WHEELS = "/usr/share/wheels"
INSTALL_SECONDS = 300.0
_packages: dict[Path, tuple[Path, Future[None]]] = {}
_begins = threading.Lock()
_builders = ThreadPoolExecutor(1)
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
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / "wheels-lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if directory.exists():
            return directory
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


def package_of(image: Image) -> Path:
    """Where the checkout's package for the image's release is kept while nothing changes, and who makes it in the background."""
    with _begins:
        if image.directory not in _packages:
            path = image.directory / "packages" / f"moetuned-{_sum_of_sources()}.deb"
            _packages[image.directory] = path, _builders.submit(_build_package, image, path)
        return _packages[image.directory][0]


def build_package(image: Image) -> Path:
    """The same; waits until it is there."""
    path = package_of(image)
    _packages[image.directory][1].result()
    return path


def _sum_of_sources() -> str:
    with tempfile.TemporaryDirectory(prefix="moetuned-vm-") as work:
        copy = sources(Path(work))
        sums = hashlib.sha256()
        for path in sorted(path for path in copy.rglob("*") if path.is_file()):
            sums.update(f"{path.relative_to(copy)} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
        return sums.hexdigest()[:16]


def _build_package(image: Image, package: Path) -> None:
    """`make deb` in the guest's release, but on this machine, which is faster."""
    package.parent.mkdir(exist_ok=True)
    with (package.parent / "lock").open("w") as lock:
        # Another lane may be at it.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not package.exists():
            _make_deb(image, package)


def _make_deb(image: Image, package: Path) -> None:
    began = time.monotonic()
    for older in package.parent.glob("*.deb"):
        older.unlink()
    root = image.directory / "builder"
    if not root.exists():
        subprocess.run(["bash", str(HERE / "build_builder.sh"), str(image.directory)], check=True, timeout=1800)
    for name in ("moetuned", "wheels"):
        shutil.rmtree(root / name, ignore_errors=True)
    shutil.copytree(wheels(image.release), root / "wheels")
    sources(root)
    # Mounts of its own, gone with it.
    script = f"mount -t proc proc {root}/proc && exec chroot {root} env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8"
    script += " WHEELS=/wheels BUILD=/build make -C /moetuned deb"
    said = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script], capture_output=True, text=True, check=False, timeout=1800
    )
    made = sorted((root / "moetuned" / "dist").glob("moetuned_*.deb"))
    assert said.returncode == 0, f"make deb: {said.stdout[-3000:]}{said.stderr[-3000:]}"
    assert len(made) == 1, f"make deb made {made}"
    shutil.move(made[0], package)
    shutil.rmtree(root / "moetuned")
    print(f"   package for {image.release}: {time.monotonic() - began:.0f} s, in the background", flush=True)


def install(machine: Machine) -> None:
    """moetuned on this guest, not enabled."""
    machine.put({"/root/moetuned.deb": build_package(machine.image)})
    install_file(machine, "/root/moetuned.deb")


def install_file(machine: Machine, path: str) -> None:
    """A package that is on this guest, over an older one: the upgrade."""
    machine.run(f"DEBIAN_FRONTEND=noninteractive apt-get -q -y install {path} && rm {path}", INSTALL_SECONDS)


def remove(machine: Machine) -> None:
    """All of it off again, config and state too."""
    machine.run("DEBIAN_FRONTEND=noninteractive apt-get -q -y purge moetuned", INSTALL_SECONDS)
