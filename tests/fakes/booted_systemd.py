"""A systemd of the test's own as PID 1 of its own namespaces: no virtual machine, up in about a second, gone without a trace.

It has the machine's programs (/usr, read-only), Python and the project (read-only), and everything else of its own and in memory: /etc
with no unit in it, /run, /var, /tmp, a network with nothing but lo, an empty /dev. It shares the kernel, so /proc/sys and /sys are
read-only in it, and its cgroup is one below the machine's cgroup2 hierarchy, most often without controllers.
"""

from __future__ import annotations

import contextlib
import os
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
PYTHON_PATH = ":".join(dict.fromkeys((str(ROOT), *filter(os.path.isabs, os.environ.get("PYTHONPATH", "").split(":")))))
"""Where Python finds the project and what it needs, for units, too."""
UNITS_SEE = "BindReadOnlyPaths=" + " ".join(
    sorted({each for each in (str(ROOT), sys.prefix) if each.startswith(("/tmp/", "/var/tmp/"))})
)
"""For a drop-in: where the tests run from a checkout in /tmp, units with a /tmp of their own (PrivateTmp=) see it all the same."""
_PROGRAMS = ("unshare", "nsenter", "mount", "pivot_root", "systemctl")
_INIT = "/usr/lib/systemd/systemd"
_ETC = ("passwd", "group", "nsswitch.conf", "ld.so.cache", "alternatives")
_BOOT_SECONDS = 60
_CLI = "import sys; from moetuned.cli.main import run; sys.exit(run(sys.argv[1:]))"

# Sets IFF_UP of lo (SIOCSIFFLAGS of netdevice(7)).
_LOOPBACK = """
import fcntl, socket, struct
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
    fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh14x", b"lo", 1))
"""
_PREPARE = r"""
set -eu
"$PYTHON" -c "$LOOPBACK"
mount --make-rprivate /
mount -t tmpfs -o mode=755 tmpfs "$W"
R=$W/root
mkdir "$R" && mount -t tmpfs -o mode=755 tmpfs "$R"
mkdir "$R/usr" && mount --rbind /usr "$R/usr" && mount -o remount,bind,ro "$R/usr"
for name in bin sbin lib lib32 lib64 libx32; do
    if [ -L "/$name" ]; then cp -P "/$name" "$R/$name"
    elif [ -d "/$name" ]; then mkdir "$R/$name"; mount --rbind "/$name" "$R/$name"; fi
done
cd "$R"
mkdir -p etc/systemd/system proc sys dev run tmp var/lib root moetuned-test
chmod 1777 tmp
for name in $ETC; do [ ! -e "/etc/$name" ] || cp -a "/etc/$name" "etc/$name"; done
: >etc/fstab
echo 0123456789abcdef0123456789abcdef >etc/machine-id
printf 'ID=test\nNAME=test\n' >etc/os-release
# What the machine starts at boot is nobody's business here.
mkdir "$W/empty"
for directory in usr/lib/systemd/system-generators usr/lib/systemd/system-environment-generators usr/lib/systemd/system/*.wants; do
    [ ! -d "$directory" ] || mount --bind "$W/empty" "$directory"
done
for directory in $READABLE; do
    mkdir -p "$R$directory"
    mount --rbind "$directory" "$R$directory"
    mount -o remount,bind,ro "$R$directory"
done
mount -t proc proc proc
mount --bind proc/sys proc/sys && mount -o remount,bind,ro proc/sys
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs -o mode=755 tmpfs dev
mkdir dev/pts dev/shm
for node in null zero full random urandom tty; do : >"dev/$node"; mount --bind "/dev/$node" "dev/$node"; done
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
: >dev/console && mount --bind "$CONSOLE" dev/console
mount -t tmpfs -o mode=755 tmpfs run
: >moetuned-test/up && mount --bind "$UP" moetuned-test/up
cat >etc/systemd/system/moetuned-test.target <<'UNIT'
[Unit]
Wants=systemd-journald.service moetuned-test.service
After=systemd-journald.service moetuned-test.service
UNIT
cat >etc/systemd/system/moetuned-test.service <<'UNIT'
[Unit]
After=systemd-journald.service
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -c 'echo up >/moetuned-test/up'
UNIT
mkdir .old && pivot_root . .old && cd / && umount -l /.old && rmdir /.old
# In a container systemd leaves that to who made it; what it mounts for a service does not arrive there otherwise.
mount --make-rshared /
hostname moetuned-test
echo prepared >/moetuned-test/up
exec env -i container=moetuned-test PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C \
    /usr/lib/systemd/systemd --unit=moetuned-test.target --log-target=journal </dev/null >/dev/console 2>&1
"""


class BootedSystemd:
    """The machine. Its files are at `path("/etc/…")`, also for writing; programs run in it with `run`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def path(self, inside: str) -> Path:
        """A file of it, seen from here."""
        return Path(f"/proc/{self.pid}/root{inside}")

    def write(self, inside: str, text: str, mode: int = 0o644) -> None:
        """Make a file in it, with the directories above it."""
        path = self.path(inside)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)

    def run(
        self, *argv: str, check: bool = True, environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a program in it as root; AssertionError with what it said where it fails and `check` is true."""
        command = [
            "nsenter",
            f"--target={self.pid}",
            "--mount",
            "--uts",
            "--ipc",
            "--net",
            "--pid",
            "--cgroup",
            "--wd=/",
            "--",
            *argv,
        ]
        result = subprocess.run(
            command,
            env={"PATH": os.environ.get("PATH", os.defpath), "PYTHONPATH": PYTHON_PATH, **(environment or {})},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert not check or result.returncode == 0, (
            f"{shlex.join(argv)}: {result.returncode}\n{result.stdout}{result.stderr}"
        )
        return result

    def moetunectl(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run this checkout's moetunectl in it."""
        return self.run(sys.executable, "-c", _CLI, *arguments, check=check)

    def systemctl(self, *arguments: str, check: bool = True) -> str:
        """What systemctl prints, without the last line break."""
        return self.run("systemctl", *arguments, check=check).stdout.strip()

    def start_bus(self) -> None:
        """Start its D-Bus, for systemd-run that waits for what it runs; skips the test where no dbus-daemon is installed."""
        if not os.path.exists("/usr/lib/systemd/system/dbus.socket") or shutil.which("dbus-daemon") is None:
            pytest.skip("needs a dbus-daemon")
        self.systemctl("start", "dbus.socket", "dbus.service")

    def show(self, unit: str, name: str) -> str:
        """A property of a unit."""
        return self.systemctl("show", "--value", f"--property={name}", "--", unit)

    def journal(self, unit: str) -> str:
        """What a unit said."""
        return self.run("journalctl", "--no-pager", "--output=cat", f"--unit={unit}").stdout


def _hierarchy() -> str:
    """Where cgroup2 is mounted."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        if after.split()[0] == "cgroup2":
            return before.split()[4]
    pytest.skip("no cgroup2 hierarchy is mounted here, and systemd needs one")


def _readable() -> list[str]:
    """Python and the project, where they are not below /usr anyway."""
    wanted = {*PYTHON_PATH.split(":"), sys.prefix, sys.base_prefix, str(Path(sys.executable).resolve().parent.parent)}
    apart = [path for path in sorted(wanted) if path != "/usr" and not path.startswith("/usr/") and os.path.isdir(path)]
    return [path for path in apart if not any(path.startswith(f"{other}/") for other in apart if other != path)]


@contextlib.contextmanager
def booted(*joined: str) -> Iterator[BootedSystemd]:
    """Boots one, and ends all that runs in it. Skips the test where that cannot be done here, with the reason.

    `joined`: cgroups of other hierarchies that all of it is in, as the roots of its own view of them.
    """
    if os.geteuid() != 0:
        pytest.skip("needs root to boot a systemd")
    if missing := [name for name in _PROGRAMS if shutil.which(name) is None]:
        pytest.skip(f"needs {', '.join(missing)} to boot a systemd")
    if not os.access(_INIT, os.X_OK):
        pytest.skip(f"there is no {_INIT}")
    cgroup = f"{_hierarchy()}/moetuned-test-{os.getpid()}"
    try:
        os.mkdir(cgroup)
    except OSError as error:
        pytest.skip(f"cannot make a cgroup for systemd ({error.strerror})")
    with tempfile.TemporaryDirectory(prefix="moetuned-systemd-") as work:
        try:
            with _process(work, (cgroup, *joined)) as machine:
                yield machine
        finally:
            _remove(cgroup)


@contextlib.contextmanager
def _process(work: str, cgroups: tuple[str, ...]) -> Iterator[BootedSystemd]:
    up, console = f"{work}/up", f"{work}/console"
    os.mkfifo(up)
    Path(console).touch()
    os.mkdir(f"{work}/root")
    told = os.open(up, os.O_RDWR | os.O_NONBLOCK)
    join = " && ".join(f"echo $$ >{shlex.quote(each)}/cgroup.procs" for each in cgroups)
    script = f'{join} && exec unshare --pid --fork --kill-child --mount --uts --ipc --net --cgroup sh -c "$PREPARE"'
    process = subprocess.Popen(
        ["sh", "-c", script],
        env={
            "PATH": os.environ.get("PATH", os.defpath),
            "PREPARE": _PREPARE,
            "PYTHON": sys.executable,
            "LOOPBACK": _LOOPBACK,
            "W": f"{work}/root",
            "UP": up,
            "CONSOLE": console,
            "ETC": " ".join(_ETC),
            "READABLE": " ".join(_readable()),
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        _wait(told, process, "prepared")
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        init = int(children[0])
        with _held(init):
            _wait(told, process, "up", Path(console))
            yield BootedSystemd(init)
    finally:
        os.close(told)
        if process.poll() is None:
            process.kill()  # and with it, by --kill-child, its PID 1 and all below it
        process.wait()
        if process.stderr is not None:
            process.stderr.close()


@contextlib.contextmanager
def _held(init: int) -> Iterator[None]:
    """Ends PID 1, and with it all of its pid namespace, and waits for that."""
    handle = os.pidfd_open(init)
    try:
        yield
    finally:
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        select.select([handle], [], [], 30)
        os.close(handle)


def _wait(told: int, process: subprocess.Popen[bytes], word: str, console: Path | None = None) -> None:
    """Until the FIFO says the word. Skips where the namespaces cannot be made, fails where systemd does not come up."""
    ended = os.pidfd_open(process.pid)
    try:
        ready, _, _ = select.select([told, ended], [], [], _BOOT_SECONDS)
    finally:
        os.close(ended)
    said = os.read(told, 100).decode() if told in ready else ""
    if word in said:
        return
    if console is None:
        error = (
            process.stderr.read(500).decode() if ended in ready and process.stderr is not None else "it takes too long"
        )
        pytest.skip(f"cannot make the namespaces for a systemd here: {error.strip()}")
    raise AssertionError(f"systemd did not come up within {_BOOT_SECONDS} s: {console.read_text()[-2000:]}")


def _remove(cgroup: str) -> None:
    for directory, _, _ in os.walk(cgroup, topdown=False):
        os.rmdir(directory)
