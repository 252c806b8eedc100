"""Fixtures of the system tests: an image, a machine that has booted, one with moetuned on it, one that runs it, each frozen.

`make test-system` runs them. They need root, QEMU and what builds an image; without, they are skipped and say what to install. RELEASE, KERNEL and
MGLRU choose the guest; FULL=1 adds what takes longer; MIRROR is Debian's mirror for the image.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import inspect
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from machine import Image, Machine, cpu_seconds
from package import BUILD, ROOT, install, package_of
from serving import bring_model, set_up

HERE = Path(__file__).parent
OUT = BUILD / "out"
_NEEDED = {
    "qemu-system-x86_64": "qemu-system-x86",
    "qemu-img": "qemu-utils",
    "mmdebstrap": "mmdebstrap",
    "mkfs.ext4": "e2fsprogs",
    "cpio": "cpio",
    "xz": "xz-utils",
}
FULL = os.environ.get("FULL", "") not in ("", "0")
RELEASE = os.environ.get("RELEASE") or ("bookworm" if os.environ.get("KERNEL") == "6.1" else "trixie")
KERNEL = os.environ.get("KERNEL") or "newest"
MGLRU = os.environ.get("MGLRU", "on") != "off"
TAKEN = os.environ.get("TAKEN")
"""Where lanes.py runs several: a directory in which each says which tests it runs."""
LONG = ("test_upgrade_and_removal", "test_killed_and_hung", "test_reboot")

Step = Callable[[str], AbstractContextManager[None]]


@pytest.fixture
def step(request: pytest.FixtureRequest) -> Step:
    """One check of a test: `with step("what holds"):` prints a line at once, ok or not, and the seconds."""

    @contextlib.contextmanager
    def checked(what: str) -> Iterator[None]:
        began = time.monotonic()

        verdict = "not ok"
        try:
            yield
            verdict = "ok"
        finally:
            print(f"{verdict} {request.node.name}: {what} ({time.monotonic() - began:.1f} s)", flush=True)

    return checked


def say(what: str) -> None:
    """A line about the set-up (pytest runs with -s)."""
    print(f"   {what}", flush=True)


@contextlib.contextmanager
def to_be_made(directory: Path) -> Iterator[bool]:
    """Whether the body has to make it; no other lane makes anything meanwhile."""
    if directory.exists():
        yield False
        return
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield not directory.exists()


def build_image(release: str, kernel: str) -> Image:
    """The image, built from nothing unless one with the same inputs is there."""
    missing = [package for program, package in _NEEDED.items() if shutil.which(program) is None]
    if os.geteuid() != 0:
        pytest.skip("needs root: it makes a root file system (nothing of this machine is changed)")
    if missing:
        pytest.skip(f"apt install --no-install-recommends {' '.join(sorted(missing))}")
    inputs = [HERE / "build_image.sh", *sorted(path for path in (HERE / "guest").rglob("*") if path.is_file())]
    sums = hashlib.sha256(f"{release} {kernel}".encode())
    for path in inputs:
        sums.update(path.read_bytes())
    directory = BUILD / f"image-{release}-{kernel}-{sums.hexdigest()[:12]}"
    with to_be_made(directory) as missing_yet:
        if missing_yet:
            began = time.monotonic()
            new = directory.with_name(directory.name + ".new")
            subprocess.run(["bash", str(HERE / "build_image.sh"), str(new), release, kernel], check=True, timeout=1800)
            new.rename(directory)
            say(f"image of {release}, kernel {kernel}: {time.monotonic() - began:.0f} s")
    return Image(directory, release, kernel)


def booted(image: Image) -> Path:
    """A guest that has just booted, frozen; kept with its image."""
    frozen = image.directory / f"booted-{_qemu_version()}"
    with to_be_made(frozen) as missing:
        if missing:
            began = time.monotonic()
            new = image.directory / "booted.new"
            shutil.rmtree(new, ignore_errors=True)
            machine = Machine(image, OUT / "boot", None)
            try:
                machine.run("echo 3 >/proc/sys/vm/drop_caches")
                machine.freeze(new)
            except BaseException:
                machine.keep()
                machine.end()
                raise
            new.rename(frozen)
            say(f"booted and frozen: {time.monotonic() - began:.0f} s")
    return frozen


def _qemu_version() -> str:
    said = subprocess.run(["qemu-system-x86_64", "--version"], capture_output=True, text=True, check=True).stdout
    return hashlib.sha256(said.encode()).hexdigest()[:8]


def prepare(image: Image, frozen: Path, name: str, act: Callable[[Machine], None], data: Path | None = None) -> Path:
    """A machine that `act` has changed, frozen as `name`. It is kept while the package and what is done to it are the same."""
    # When the disk below was made, too: one that is made again is another, whatever its name.
    made = (frozen / "disk.qcow2").stat().st_mtime_ns
    sums = hashlib.sha256(f"{frozen.name} {made} {package_of(image).name} {MGLRU} {inspect.getsource(act)}".encode())
    # What `act` calls; a service that only runs needs nothing of the backend.
    for file in ("inventory.sh",) if data is None else ("inventory.sh", "serving.py"):
        sums.update((HERE / file).read_bytes())
    directory = image.directory / f"{name}-{sums.hexdigest()[:12]}"
    with to_be_made(directory) as missing:
        if missing:
            for older in image.directory.glob(f"{name}-*"):
                shutil.rmtree(older)
            began = time.monotonic()
            machine = Machine(image, OUT / name, frozen, data=data, mglru=MGLRU)
            new = image.directory / f"{name}.new"
            shutil.rmtree(new, ignore_errors=True)
            try:
                act(machine)
                used = machine.cpu_seconds()
                machine.freeze(new)
            except BaseException:
                machine.keep()
                raise
            finally:
                machine.end()
            new.rename(directory)
            say(f"{name}: {time.monotonic() - began:.0f} s, {used:.0f} s of the guest's processors")
    return directory


@pytest.fixture(scope="session", autouse=True)
def accounting() -> Iterator[None]:
    """What the run cost, as its last line."""
    began = time.monotonic()
    yield
    say(
        f"{time.monotonic() - began:.0f} s, {cpu_seconds():.0f} s of processor time; outputs of failures: {OUT.relative_to(ROOT)}"
    )


@pytest.fixture(scope="session")
def image(accounting: None) -> Image:
    """The guest that RELEASE and KERNEL choose; its package is built while it boots."""
    made = build_image(RELEASE, KERNEL)
    package_of(made)
    return made


@pytest.fixture(scope="session")
def bare(image: Image) -> Path:
    """Frozen: booted, without moetuned."""
    return booted(image)


@pytest.fixture(scope="session")
def installed(image: Image, bare: Path) -> Path:
    """Frozen: moetuned installed, never started; /root/inventory.sh, and in /root/before all that was there before it."""
    return prepare_installed(image, bare)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What needs no package comes first, as that is built meanwhile, then what takes longest, so that no lane is left with it at the end."""
    items.sort(
        key=lambda item: (
            "installed" in getattr(item, "fixturenames", ()),
            item.get_closest_marker("skipif") is not None,
            item.name not in LONG,
        )
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """The lane that comes to a test first runs it."""
    if TAKEN is None:
        return None
    try:
        Path(TAKEN, hashlib.sha256(item.nodeid.encode()).hexdigest()).touch(exist_ok=False)
    except FileExistsError:
        # What the test before left set up for this one (its module, say) may not be what the next needs; pytest leaves that to the test.
        item.session._setupstate.teardown_exact(nextitem)
        return True
    return None


@pytest.fixture(scope="session")
def models(accounting: None) -> Path:
    """A disk for guests with /glm.gguf of 240 MiB on it: few and small layers, for a slow processor."""
    disk = BUILD / "models.ext4"
    with to_be_made(disk) as missing:
        if missing:
            staged = BUILD / "models"
            staged.mkdir(parents=True, exist_ok=True)
            size = ["--size", "240M", "--embd", "512", "--ff", "512", "--layers", "8"]
            subprocess.run(
                [sys.executable, "-m", "moetuned.simulator", "make-model", str(staged / "glm.gguf"), *size],
                check=True,
                stdout=subprocess.DEVNULL,
                cwd=ROOT,
            )
            subprocess.run(
                ["mkfs.ext4", "-q", "-F", "-m", "0", "-L", "models", "-d", str(staged), f"{disk}.new", "1G"], check=True
            )
            shutil.rmtree(staged)
            Path(f"{disk}.new").rename(disk)
    return disk


@pytest.fixture(scope="session")
def serving(image: Image, installed: Path, models: Path) -> Path:
    """Frozen: `moetunectl setup --yes` has been run: the package's unit of a backend serves (the stand-in), and moetuned watches it."""
    return prepare_serving(image, installed, models)


def prepare_serving(image: Image, installed: Path, models: Path) -> Path:
    """The same for any image."""

    def act(machine: Machine) -> None:
        bring_model(machine)
        set_up(machine)

    return prepare(image, installed, "serving", act, models)


def prepare_installed(image: Image, bare: Path) -> Path:
    """moetuned installed, never started; /root/inventory.sh, and in /root/before all that was there before it."""

    def act(machine: Machine) -> None:
        machine.put({"/root/inventory.sh": HERE / "inventory.sh"})
        machine.run(
            "bash /root/inventory.sh everything >/root/before; bash /root/inventory.sh settings >/root/settings"
        )
        install(machine)

    return prepare(image, bare, "installed", act)


Start = Callable[..., Machine]


@pytest.fixture
def start(image: Image, request: pytest.FixtureRequest) -> Iterator[Start]:
    """Start a machine from something frozen; ended with the test, and what it had to say is kept where the test fails."""
    machines: list[Machine] = []

    def begin(
        frozen: Path, data: Path | None = None, of: Image | None = None, mglru: bool = MGLRU, cpu: str | None = None
    ) -> Machine:
        out = OUT / request.node.name / str(len(machines))
        machines.append(Machine(of or image, out, frozen, data=data, mglru=mglru, cpu=cpu))
        return machines[-1]

    yield begin
    failed = getattr(request.node, "failed_call", False)
    for machine in machines:
        say(f"{request.node.name}: {machine.cpu_seconds():.0f} s of the guest's processors")
        if failed:
            machine.keep()
        machine.end()
        if not failed:
            shutil.rmtree(machine.out, ignore_errors=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Leave word for `start` whether the test failed."""
    report = yield
    if report.when == "call" and report.failed:  # type: ignore[attr-defined]
        item.failed_call = True  # type: ignore[attr-defined]
    return report
