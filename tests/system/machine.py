"""A virtual machine of the system tests: QEMU without KVM, started from frozen memory, driven through an agent in the guest.

A machine is frozen into a directory (`disk.qcow2`, `memory`) and any number of machines are started from it, each in a second or two and
with a disk of its own that is thrown away. What is frozen fits only a QEMU with the same arguments, so there is one set of them. KVM is never
asked for: where it is nested it may be broken, and figures of a run should not depend on it.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

QEMU = "qemu-system-x86_64"
MEMORY_MIB = 1024
PAYLOAD_BYTES = 128 << 20
DATA_BYTES = 1 << 30
# Without cx16: QEMU 7.2 gets cmpxchg16b wrong with several processors, and guests die in the allocator.
CPU = "Nehalem,-cx16"
BOOT_SECONDS = 240.0
PATIENCE = 3.0
"""Times given below are enough on an idle machine; all are stretched by this for one that is busy. They only end what would hang."""
_KERNEL = (
    "console=ttyS0 quiet loglevel=4 panic=-1 oops=panic tsc=reliable no_timer_check psi=1 mitigations=off audit=0"
    " systemd.show_status=0 random.trust_cpu=1 root=/dev/vda rw"
)


class GuestError(AssertionError):
    """The guest did not answer, or a script in it failed."""


@dataclass(frozen=True)
class Answer:
    """What a script in the guest ended with: its exit status, and its output with stderr in it."""

    status: int
    output: str


@dataclass(frozen=True)
class Image:
    """Files of a guest that build_image.sh made."""

    directory: Path
    release: str
    kernel: str


@dataclass
class _Lines:
    """JSON objects, one a line, over a socket."""

    connection: socket.socket
    rest: bytes = b""

    def send(self, message: dict[str, Any]) -> None:
        self.connection.settimeout(60)
        self.connection.sendall(json.dumps(message).encode() + b"\n")

    def receive(self, until: float) -> dict[str, Any]:
        while b"\n" not in self.rest:
            left = until - time.monotonic()
            if left <= 0:
                raise GuestError("no answer in time")
            self.connection.settimeout(left)
            try:
                chunk = self.connection.recv(1 << 16)
            except TimeoutError:
                raise GuestError("no answer in time") from None
            if not chunk:
                raise GuestError("QEMU has ended")
            self.rest += chunk
        line, self.rest = self.rest.split(b"\n", 1)
        answer: dict[str, Any] = json.loads(line)
        return answer


class Machine:
    """A running guest. Its disk is `disk` (written to), its console goes to `out`/console.log."""

    def __init__(
        self,
        image: Image,
        out: Path,
        frozen: Path | None,
        *,
        data: Path | None = None,
        mglru: bool = True,
        cpu: str | None = None,
    ) -> None:
        """`cpu`: another processor than CPU; it boots from the frozen disk then, for memory fits only the one that it was frozen with."""
        self.out = out
        self._cpu = cpu or CPU
        self.image = image
        self._mglru = mglru
        self._number = 0
        self._used_seconds = 0.0
        self._work = Path(tempfile.mkdtemp(prefix="moetuned-vm-"))
        self.disk = self._work / "disk.qcow2"
        out.mkdir(parents=True, exist_ok=True)
        below, kind = (image.directory / "root.ext4", "raw") if frozen is None else (frozen / "disk.qcow2", "qcow2")
        _make_disk(self.disk, ["-b", str(below), "-F", kind])
        _make_disk(self._work / "data", [str(DATA_BYTES)] if data is None else ["-b", str(data), "-F", "raw"])
        with (self._work / "payload").open("wb") as file:
            file.truncate(PAYLOAD_BYTES)
        incoming = [] if frozen is None or cpu is not None else ["-incoming", f"exec:cat {frozen / 'memory'}"]
        # It ends with the run, also one that is killed. What QEMU says is kept: it is all there is when it does not start.
        with (out / "qemu.log").open("ab") as log:
            self._qemu = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *self._arguments(), *incoming],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            self._control = _Lines(self._connect("qmp"))
            self._control.receive(time.monotonic() + 30)
            self.control("qmp_capabilities")
            self._agent = _Lines(self._connect("agent"))
            if not incoming:
                self.wait_for_boot()
            else:
                self.settle()
        except BaseException:
            self.end()
            raise

    def _arguments(self) -> list[str]:
        work = self._work
        arguments = [
            QEMU,
            "-M",
            "q35",
            "-accel",
            "tcg,thread=multi,tb-size=512",
            "-cpu",
            self._cpu,
            "-smp",
            "2",
            "-m",
            str(MEMORY_MIB),
        ]
        arguments += ["-nodefaults", "-no-user-config", "-display", "none"]
        arguments += [
            "-kernel",
            str(self.image.directory / "vmlinuz"),
            "-initrd",
            str(self.image.directory / "initrd.gz"),
        ]
        arguments += ["-append", _KERNEL, "-serial", f"file:{self.out / 'console.log'}"]
        arguments += ["-qmp", f"unix:{work / 'qmp'},server=on,wait=off"]
        arguments += [
            "-device",
            "virtio-serial-pci",
            "-chardev",
            f"socket,id=agent,path={work / 'agent'},server=on,wait=off",
        ]
        arguments += ["-device", "virtserialport,chardev=agent,name=moetuned.agent"]
        arguments += ["-object", "rng-random,id=rng,filename=/dev/urandom", "-device", "virtio-rng-pci,rng=rng"]
        for name, path, kind in (
            ("root", self.disk, "qcow2"),
            ("payload", work / "payload", "raw"),
            ("data", work / "data", "qcow2"),
        ):
            arguments += ["-drive", f"file={path},format={kind},if=none,id={name},cache=unsafe"]
            arguments += ["-device", f"virtio-blk-pci,drive={name},serial={name},id=disk-{name}"]
        return arguments

    def _connect(self, name: str) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX)
        until = time.monotonic() + 30
        while True:
            try:
                connection.connect(str(self._work / name))
            except (FileNotFoundError, ConnectionRefusedError):
                if self._qemu.poll() is not None or time.monotonic() > until:
                    raise GuestError(f"QEMU did not start: {(self.out / 'qemu.log').read_text()[-2000:]}") from None
                time.sleep(0.05)
            else:
                return connection

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def control(self, command: str, **arguments: object) -> Any:
        """A command of QEMU's machine protocol; GuestError with its answer where it fails."""
        self._control.send({"execute": command, "arguments": arguments})
        while True:
            answer = self._control.receive(time.monotonic() + 60)
            if "error" in answer:
                raise GuestError(f"{command}: {answer['error']}")
            if "return" in answer:
                return answer["return"]

    def wait_for_boot(self) -> None:
        """Until the agent of a boot that has begun is there, and systemd has done what it does at boot."""
        until = time.monotonic() + BOOT_SECONDS * PATIENCE
        while "hello" not in self._agent.receive(until):
            pass
        self.settle()
        self.run("until systemctl is-system-running | grep -Eq 'running|degraded'; do sleep 0.3; done", BOOT_SECONDS)

    def settle(self) -> None:
        """Give the guest what is not in its memory or disk: the time, and the choice of MGLRU."""
        self.run(
            f"date -s @{time.time():.0f} >/dev/null;"
            f" [ ! -e /sys/kernel/mm/lru_gen/enabled ] || echo {'y' if self._mglru else 'n'} >/sys/kernel/mm/lru_gen/enabled",
            60,
        )

    def ask(self, script: str, timeout: float = 120.0) -> Answer:
        """Run a script with bash as root; status 124 where it takes longer."""
        timeout *= PATIENCE
        self._number += 1
        self._agent.send({"id": self._number, "script": script, "timeout": timeout})
        until = time.monotonic() + timeout + 60
        while (answer := self._agent.receive(until)).get("id") != self._number:
            if "hello" in answer:
                raise GuestError("the guest has started again by itself (see console.log)")
        return Answer(answer["status"], answer["output"])

    def run(self, script: str, timeout: float = 120.0) -> str:
        """The same, and its output; GuestError with it where the script fails."""
        answer = self.ask(script, timeout)
        if answer.status:
            raise GuestError(f"{script}\nended with {answer.status}:\n{answer.output}")
        return answer.output.rstrip("\n")

    def until(self, condition: str, timeout: float = 60.0) -> None:
        """Wait in the guest for a condition of bash; GuestError where it does not become true."""
        answer = self.ask(f"until {{ {condition}\n}} >/dev/null 2>&1; do sleep 0.3; done", timeout)
        if answer.status:
            raise GuestError(f"not within {timeout:.0f} s: {condition}")

    def put(self, files: dict[str, Path]) -> None:
        """Copy files of the host to paths of the guest (the directories above them are made)."""
        with tempfile.TemporaryDirectory(prefix="moetuned-vm-") as staged:
            for target, source in files.items():
                place = Path(staged + target)
                place.parent.mkdir(parents=True, exist_ok=True)
                if source.is_dir():
                    shutil.copytree(source, place)
                else:
                    shutil.copy2(source, place)
            archive = self._work / "archive"
            subprocess.run(
                [
                    "tar",
                    "--owner=0",
                    "--group=0",
                    "--format=gnu",
                    "--exclude=__pycache__",
                    "-cf",
                    archive,
                    "-C",
                    staged,
                    ".",
                ],
                check=True,
            )
        size = archive.stat().st_size
        assert size <= PAYLOAD_BYTES, f"{size} bytes do not fit on the disk that carries files into the guest"
        # In place: QEMU has the file open.
        with archive.open("rb") as packed, (self._work / "payload").open("r+b") as carrier:
            shutil.copyfileobj(packed, carrier)
        archive.unlink()
        blocks = (size + (1 << 20) - 1) >> 20
        self.run(
            "blockdev --flushbufs /dev/disk/by-id/virtio-payload;"
            f" dd if=/dev/disk/by-id/virtio-payload bs=1M count={blocks} iflag=direct status=none"
            " | tar --no-overwrite-dir -xf - -C /",
            120,
        )

    def write(self, path: str, text: str, mode: str = "0644") -> None:
        """A small file of the guest."""
        assert "\nEND-OF-FILE\n" not in text
        newline = "" if text.endswith("\n") else "\n"
        self.run(
            f"mkdir -p $(dirname {path}) && cat >{path} <<'END-OF-FILE'\n{text}{newline}END-OF-FILE\nchmod {mode} {path}"
        )

    def throttle(self, disk: str, bytes_per_second: int) -> None:
        """How fast a disk (root, data) reads; 0: as fast as it can."""
        limits = dict.fromkeys(("bps", "bps_wr", "iops", "iops_rd", "iops_wr"), 0)
        self.control(
            "block_set_io_throttle",
            id=f"/machine/peripheral/disk-{disk}/virtio-backend",
            bps_rd=bytes_per_second,
            **limits,
        )

    def reset(self) -> None:
        """Power off and on at once: what was only in memory is lost. Returns when it has booted."""
        self._agent.rest = b""
        self.control("system_reset")
        self.wait_for_boot()

    def reboot(self) -> None:
        """The guest's own reboot, with everything stopped in order."""
        self._number += 1
        self._agent.send({"id": self._number, "script": "systemctl --no-block reboot", "timeout": 30})
        self.wait_for_boot()

    def cpu_seconds(self) -> float:
        """Processor time that its processors, which are emulated, have used so far: it hardly depends on what else this machine does."""
        if self._qemu.poll() is not None:
            return self._used_seconds
        words = Path(f"/proc/{self._qemu.pid}/stat").read_text().rpartition(")")[2].split()
        # utime and stime (proc(5)).
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    def freeze(self, directory: Path) -> None:
        """Keep it, disk and memory, for machines to start from; it has ended afterwards."""
        directory.mkdir(parents=True)
        self.run("sync")
        self.control("migrate-set-parameters", **{"max-bandwidth": 8 << 30})
        self.control("migrate", uri=f"exec:cat > {directory / 'memory'}")
        while (state := self.control("query-migrate")["status"]) not in ("completed", "failed"):
            time.sleep(0.1)
        if state == "failed":
            raise GuestError("memory could not be kept")
        with contextlib.suppress(GuestError):
            self.control("quit")
        self._qemu.wait(30)
        shutil.move(self.disk, directory / "disk.qcow2")
        self.end()

    def keep(self) -> None:
        """Write what helps to understand a failure into `out`."""
        with contextlib.suppress(GuestError, OSError):
            (self.out / "journal.txt").write_text(
                self.ask("journalctl -b --no-pager -o short-precise | tail -4000", 60).output
            )
            (self.out / "state.txt").write_text(
                self.ask(
                    "systemctl --failed --no-pager; systemctl status moetuned --no-pager -l; ps axo pid,ppid,rss,stat,args;"
                    " free -m; cat /proc/swaps; cat /etc/moetuned/moetuned.yaml; ls -la /var/lib/moetuned /run/moetuned;"
                    " head -c 20000 /var/lib/moetuned/undo.jsonl; timeout 30 moetunectl status",
                    90,
                ).output
            )

    def end(self) -> None:
        """Power off."""
        if self._qemu.poll() is None:
            self._used_seconds = self.cpu_seconds()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._qemu.pid, signal.SIGKILL)
        self._qemu.wait()
        shutil.rmtree(self._work, ignore_errors=True)


def _make_disk(path: Path, what: list[str]) -> None:
    """`what`: a size, or the disk below it, which is not written to."""
    below, size = (what, []) if what[0] == "-b" else ([], what)
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", *below, str(path), *size], check=True)


def cpu_seconds() -> float:
    """Processor time of this process and of what it has waited for."""
    used = (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)


@contextlib.contextmanager
def kept_on_failure(machine: Machine) -> Iterator[Machine]:
    """A machine whose journal and state are written down where the body fails."""
    try:
        yield machine
    except BaseException:
        machine.keep()
        raise
    finally:
        machine.end()
