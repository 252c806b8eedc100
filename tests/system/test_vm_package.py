"""The package itself: an upgrade keeps what is the administrator's, and a purge leaves nothing."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from conftest import Start, Step
from machine import Image
from package import build_package, install_file, remove
from serving import take_model_away, view

pytestmark = [pytest.mark.vm, pytest.mark.timeout(900)]


def as_newer(package: Path, directory: Path) -> Path:
    """The same package with a version after it."""
    unpacked, newer = directory / "unpacked", directory / "newer.deb"
    subprocess.run(["dpkg-deb", "-R", str(package), str(unpacked)], check=True)
    control = unpacked / "DEBIAN" / "control"
    lines = control.read_text().splitlines()
    control.write_text("".join(f"{'Version: 99-1' if line.startswith('Version:') else line}\n" for line in lines))
    subprocess.run(
        ["dpkg-deb", "--root-owner-group", "-Zgzip", "-b", str(unpacked), str(newer)],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return newer


def test_upgrade_and_removal(
    image: Image, start: Start, serving: Path, models: Path, step: Step, tmp_path: Path
) -> None:
    machine = start(serving, models)
    backend = view(machine)["pid"]
    main = "systemctl show -P MainPID moetuned"
    with step("upgraded: restarted, the config that was edited is kept, the kernel is tuned, the backend went on"):
        machine.write(
            "/etc/moetuned/moetuned.yaml",
            "tuning: {profile: moe-offload, swap: {file: /var/lib/moetuned/swapfile, size: 64MiB}}",
        )
        before = machine.run(main)
        machine.put({"/root/newer.deb": as_newer(build_package(image), tmp_path)})
        install_file(machine, "/root/newer.deb")
        assert machine.run("dpkg-query -W -f '${Version}' moetuned") == "99-1"
        machine.until(f'systemctl is-active -q moetuned && [ "$({main})" != {before} ]')
        machine.run("grep -q 64MiB /etc/moetuned/moetuned.yaml && systemctl is-enabled moetuned")
        machine.until("grep -q swapfile /proc/swaps && moetunectl tune verify")
        assert view(machine)["pid"] == backend
    with step("removed while it runs: files, users, groups, units, settings, swap and cgroups are as before"):
        remove(machine)
        take_model_away(machine)
        left = machine.ask("bash /root/inventory.sh everything | diff /root/before -")
        assert left.output == ""
