"""The package's whole life with the real dpkg and a real systemd: installed, enabled, upgraded, refused, removed, purged, and nothing left."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from fakes.booted_systemd import BootedSystemd
from fakes.debian_package import field, with_version

pytestmark = pytest.mark.systemd

SERVER = """\
#!/bin/sh
exec sleep 1000
"""
UNIT = """\
[Service]
Type=exec
ExecStart=/usr/local/bin/llama-server --model /var/lib/model.gguf --ctx-size 4096 --parallel 1 --cache-ram 64
[Install]
WantedBy=multi-user.target
"""
STATE = r"""
find /etc /opt /root /run /var -xdev \( -path /run/systemd/units -o -path /run/log -o -path /run/systemd/journal -o -path '/var/lib/dpkg' \
    -o -path /run/moetuned-test -o -path '/var/tmp/*' -o -path /run/systemd/inaccessible -o -path /run/systemd/incoming -o -path /run/systemd/propagate \
    -o -path /run/systemd/unit-root \) -prune \
    -o ! -name '*-' ! -name .pwd.lock -printf '%p %y %m %l\n' | sort
cd /run/moetuned-test/up && find . ! -type d -printf '%p %y %m %l\n' | sort
ls -d /usr/*/moetuned* /usr/*/*/moetuned* 2>/dev/null
cat /etc/passwd /etc/group
systemctl list-units --all --plain --no-legend 'moetuned*' 'llama*' | cut -d' ' -f1
systemctl list-unit-files --plain --no-legend
find /sys/fs/cgroup -name 'moetuned*' ! -path '*moetuned-test*'
for file in /proc/sys/vm/*; do printf '%s ' "$file"; cat "$file" 2>/dev/null || echo; done | grep -v stat_refresh
cat /proc/swaps
"""


class Machine:
    """A systemd with a /usr of its own and a dpkg that knows what the package depends on."""

    def __init__(self, systemd: BootedSystemd, package: Path) -> None:
        self.systemd = systemd
        layers = "mkdir /run/moetuned-test && mount -t tmpfs tmpfs /run/moetuned-test && cd /run/moetuned-test && mkdir up work"
        overlay = "mount -t overlay overlay -o lowerdir=/usr,upperdir=/run/moetuned-test/up,workdir=/run/moetuned-test/work /usr"
        made = systemd.run("sh", "-c", f"{layers} && {overlay} || exit 77", check=False)
        if made.returncode == 77:
            pytest.skip(f"needs overlayfs, which this kernel or container does not allow: {made.stderr.strip()}")
        systemd.path("/usr/sbin/policy-rc.d").unlink(
            missing_ok=True
        )  # of containers: it forbids packages to restart anything
        names = {re.split(r"[ (:]", each.strip())[0] for each in re.split(r"[,|]", field(package, "Depends"))}
        known = subprocess.run(
            ["dpkg-query", "-s", *sorted(names)], capture_output=True, text=True, check=False
        ).stdout  # what is not here is an alternative
        systemd.write("/var/lib/dpkg/status", known)
        for name in names:
            systemd.write(f"/var/lib/dpkg/info/{name}.list", "/.\n")
        # Directories of this machine belong to other packages here, too.
        listing = subprocess.run(["dpkg-deb", "--contents", package], capture_output=True, text=True, check=True).stdout
        directories = [
            line.split()[-1].removeprefix(".").rstrip("/") for line in listing.splitlines() if line[0] == "d"
        ]
        there = [f"{path or '/.'}\n" for path in directories if os.path.isdir(path or "/")]
        systemd.write("/var/lib/dpkg/info/libudev1.list", "".join(there))
        systemd.path("/var/lib/dpkg/updates").mkdir()

    def dpkg(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run it."""
        return self.systemd.run("dpkg", *arguments, check=check)

    def give(self, package: Path) -> str:
        """Put a package into the machine; its path there."""
        target = self.systemd.path(f"/var/tmp/{package.name}")
        target.parent.mkdir(exist_ok=True)
        shutil.copyfile(package, target)
        return f"/var/tmp/{package.name}"

    def state(self) -> list[str]:
        """All that a package could leave behind."""
        return self.systemd.run("sh", "-c", STATE).stdout.splitlines()

    def ctl(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """The installed moetunectl."""
        return self.systemd.run("moetunectl", *arguments, check=check)


@pytest.fixture
def machine(booted_systemd: BootedSystemd, debian_package: Path) -> Machine:
    return Machine(booted_systemd, debian_package)


def test_its_whole_life(machine: Machine, debian_package: Path, tmp_path: Path) -> None:
    systemd = machine.systemd
    systemd.write("/usr/local/bin/llama-server", SERVER, 0o755)
    systemd.write("/etc/systemd/system/llama.service", UNIT)
    systemd.systemctl("daemon-reload")
    for directory in ("/opt", "/var/lib/systemd"):  # every machine has them
        systemd.path(directory).mkdir(exist_ok=True)
    for name in ("shadow", "gshadow"):
        systemd.write(f"/etc/{name}", "", 0)
    older, newer = (machine.give(with_version(debian_package, version, tmp_path)) for version in ("0.0.1", "9.9"))
    before = machine.state()

    # Beside a make install it is refused with what to do.
    systemd.write("/opt/moetuned/installed", "")
    refused = machine.dpkg("-i", older, check=False)
    assert refused.returncode != 0
    assert "sudo /opt/moetuned/uninstall.sh" in refused.stderr
    shutil.rmtree(systemd.path("/opt/moetuned"))
    machine.dpkg("--purge", "moetuned")
    assert set(machine.state()) ^ set(before) == set()

    # Neither enabled nor started, and its programs work.
    said = machine.dpkg("-i", older).stdout
    assert "systemctl enable --now moetuned" in said
    assert systemd.systemctl("is-enabled", "moetuned", check=False) == "disabled"
    assert systemd.systemctl("is-active", "moetuned", check=False) == "inactive"
    assert machine.ctl("config", "check").stdout.startswith("ok: ")
    compiled = [path.name for path in systemd.path("/usr/lib/moetuned/python/moetuned").rglob("*.pyc")]
    assert len(compiled) > 100
    assert len({name.split(".")[-2] for name in compiled}) == 1, "for one Python only"

    # What people do with it: a config of their own, their unit adopted, a backend of our unit, the service.
    systemd.write("/etc/moetuned/moetuned.yaml", "tuning: {profile: observe}\n")
    systemd.write("/etc/moetuned/conf.d/50-mine.yaml", "watch: {interval: 2s}\n")
    example = systemd.path("/etc/moetuned/backends/example.env").read_text()
    systemd.write("/etc/moetuned/backends/mine.env", example)
    machine.ctl("backend", "adopt", "llama.service", "--write")
    assert systemd.path("/etc/systemd/system/llama.service.d/zz-moetuned.conf").exists()
    systemd.systemctl("enable", "--now", "moetuned")
    systemd.systemctl("enable", "moetuned-backend@mine")
    first = systemd.show("moetuned.service", "MainPID")
    systemd.write("/run/systemd/system/serves.service", "[Service]\nSlice=moetuned.slice\nExecStart=sleep 1004\n")
    systemd.systemctl("daemon-reload")
    systemd.systemctl("start", "serves.service")
    serves = systemd.show("serves.service", "MainPID")

    # Upgrade: no old code runs on, everything of theirs is kept, backends in the slice do not notice.
    machine.dpkg("-i", newer)
    assert systemd.show("serves.service", "MainPID") == serves != "0"
    systemd.systemctl("stop", "serves.service")
    systemd.path("/run/systemd/system/serves.service").unlink()
    systemd.systemctl("daemon-reload")
    assert systemd.systemctl("is-active", "moetuned") == "active"
    assert systemd.systemctl("is-enabled", "moetuned") == "enabled"
    assert systemd.show("moetuned.service", "MainPID") not in (first, "0")
    assert systemd.path("/etc/moetuned/moetuned.yaml").read_text() == "tuning: {profile: observe}\n"
    assert systemd.path("/etc/systemd/system/llama.service.d/zz-moetuned.conf").exists()

    # While settings cannot be given back nothing is removed.
    systemd.systemctl("stop", "moetuned")
    systemd.write("/var/lib/moetuned/undo.jsonl", "broken\n")
    refused = machine.dpkg("--remove", "moetuned", check=False)
    assert refused.returncode != 0
    assert "nothing was removed" in refused.stderr
    assert machine.ctl("--version").stdout
    assert systemd.systemctl("is-enabled", "moetuned") == "enabled"
    for journal in systemd.path("/var/lib/moetuned").glob("undo.jsonl*"):
        journal.unlink()

    # Downgrade. One that is not running is not started by it.
    machine.dpkg("-i", older)
    assert systemd.systemctl("is-active", "moetuned", check=False) == "inactive"
    assert systemd.systemctl("is-enabled", "moetuned") == "enabled"
    systemd.systemctl("start", "moetuned")

    machine.dpkg("--remove", "moetuned")
    assert systemd.path("/etc/moetuned/moetuned.yaml").read_text() == "tuning: {profile: observe}\n"
    assert not systemd.path("/usr/lib/moetuned").exists()
    assert not systemd.path("/etc/systemd/system/llama.service.d").exists()
    assert systemd.systemctl("is-active", "moetuned", check=False) == "inactive"

    # Installed again it starts from what was kept.
    machine.dpkg("-i", newer)
    assert systemd.path("/etc/moetuned/moetuned.yaml").read_text() == "tuning: {profile: observe}\n"
    machine.dpkg("--remove", "moetuned")

    # What came by make install since then is not the package's to purge.
    systemd.write("/opt/moetuned/installed", "")
    systemd.write("/var/lib/moetuned/undo.jsonl", "")
    said = machine.dpkg("--purge", "moetuned").stdout
    assert "it belongs to the moetuned in /opt/moetuned now" in said
    assert systemd.path("/etc/moetuned/conf.d/50-mine.yaml").exists()
    assert systemd.path("/var/lib/moetuned/undo.jsonl").exists()
    systemd.path("/var/lib/moetuned/undo.jsonl").unlink()
    shutil.rmtree(systemd.path("/opt/moetuned"))

    # Installed again it is not enabled by that.
    machine.dpkg("-i", newer)
    assert systemd.path("/etc/moetuned/conf.d/50-mine.yaml").exists()
    assert systemd.systemctl("is-enabled", "moetuned", check=False) == "disabled"

    machine.dpkg("--purge", "moetuned")
    assert set(machine.state()) ^ set(before) == set()
