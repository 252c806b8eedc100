"""The package itself: an upgrade keeps what is the administrator's, and a purge leaves nothing."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from conftest import HERE, Start, Step
from machine import Image
from package import INSTALL_SECONDS, build_package, install, remove

pytestmark = [pytest.mark.vm, pytest.mark.timeout(900)]


def as_older(package: Path, directory: Path) -> Path:
    """The same package with a version before it."""
    unpacked, older = directory / "unpacked", directory / "older.deb"
    subprocess.run(["dpkg-deb", "-R", str(package), str(unpacked)], check=True)
    control = unpacked / "DEBIAN" / "control"
    lines = control.read_text().splitlines()
    control.write_text("".join(f"{'Version: 0.0.1-1' if line.startswith('Version:') else line}\n" for line in lines))
    subprocess.run(
        ["dpkg-deb", "--root-owner-group", "-Zgzip", "-b", str(unpacked), str(older)],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return older


def test_upgrade_and_removal(image: Image, start: Start, bare: Path, step: Step, tmp_path: Path) -> None:
    machine = start(bare)
    machine.put(
        {"/root/inventory.sh": HERE / "inventory.sh", "/root/older.deb": as_older(build_package(image), tmp_path)}
    )
    machine.run("bash /root/inventory.sh everything >/root/before")
    with step("an older version is installed, enabled and configured"):
        machine.run("DEBIAN_FRONTEND=noninteractive apt-get -q -y install /root/older.deb", INSTALL_SECONDS)
        machine.write(
            "/etc/moetuned/moetuned.yaml",
            "tuning: {profile: moe-offload, swap: {file: /var/lib/moetuned/swapfile, size: 64MiB}}",
        )
        machine.run("systemctl enable --now moetuned", 180)
        machine.until("grep -q swapfile /proc/swaps")
        before = machine.run("systemctl show -P MainPID moetuned")
    with step("upgraded: restarted, the config that was edited is kept, the kernel is tuned"):
        install(machine)
        assert "0.0.1" not in machine.run("dpkg-query -W -f '${Version}' moetuned")
        machine.until(f'systemctl is-active -q moetuned && [ "$(systemctl show -P MainPID moetuned)" != {before} ]')
        machine.run("grep -q 64MiB /etc/moetuned/moetuned.yaml && systemctl is-enabled moetuned")
        machine.until("moetunectl tune verify")
    with step("removed while it runs: files, users, groups, units, settings, swap and cgroups are as before"):
        remove(machine)
        left = machine.ask("bash /root/inventory.sh everything | diff /root/before -")
        assert left.output == ""
