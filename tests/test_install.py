"""make install and make uninstall for real: into a DESTDIR, and as root onto this machine inside a private mount namespace."""

import os
import re
import shutil
import stat
import subprocess
from pathlib import Path

import msgspec
import pytest

from moetuned.host.fs import RealFS
from moetuned.schema.tunable import Cell, Codec, Place
from moetuned.state.undo_journal import read_boot_id
from moetuned.state.undo_records import Yielded

ROOT = Path(__file__).resolve().parent.parent
OVERLAID = ("etc", "opt", "usr/local", "var/lib", "run")
NO_NETWORK = "pip could not install"


def make(target, *variables, prefix=(), check=True, **environment):
    """Run make in the checkout; skips the test where pip cannot reach an index."""
    settings = {
        key: value for key, value in os.environ.items() if key not in ("DESTDIR", "PREFIX", "PYTHON", "MAKEFLAGS")
    }
    result = subprocess.run(
        [*prefix, "make", "--no-print-directory", target, *variables],
        cwd=ROOT, env={**settings, "PIP_NO_CACHE_DIR": "0", **environment}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if NO_NETWORK in result.stderr:
        pytest.skip(f"pip cannot get moetuned's dependencies here: {result.stderr.strip().splitlines()[0]}")
    if check:
        assert result.returncode == 0, result.stdout + result.stderr
    return result


@pytest.fixture(scope="module")
def staged(tmp_path_factory):
    directory = tmp_path_factory.mktemp("stage") / "root"
    make("install", f"DESTDIR={directory}")
    return directory


def test_files_are_where_they_belong(staged):
    for name in (
        "opt/moetuned/bin/moetuned", "opt/moetuned/bin/moetunectl", "opt/moetuned/installed", "opt/moetuned/uninstall.sh",
        "etc/moetuned/moetuned.yaml", "etc/moetuned/conf.d", "etc/moetuned/hooks.d/10-log-line",
        "usr/local/lib/systemd/system/moetuned.service", "usr/local/lib/systemd/system/moetuned-backend@.service",
        "etc/moetuned/backends/example.env", "opt/moetuned/share/example.env",
        "usr/local/share/man/man1/moetunectl.1", "usr/local/share/man/man1/moetunectl-tune.1",
        "usr/local/share/man/man5/moetuned.yaml.5", "usr/local/share/man/man8/moetuned.8",
        "usr/local/share/bash-completion/completions/moetunectl", "usr/local/share/bash-completion/completions/moetuned",
        "usr/local/share/zsh/site-functions/_moetunectl", "usr/local/share/fish/vendor_completions.d/moetuned.fish",
        "opt/moetuned/share/prometheus/moetuned.rules.yml", "opt/moetuned/share/grafana/moetuned.json",
    ):  # fmt: skip
        assert (staged / name).exists(), name
    for name in ("moetuned", "moetunectl"):
        assert os.readlink(staged / "usr/local/bin" / name) == f"/opt/moetuned/bin/{name}"


def test_the_stage_is_named_nowhere_in_it(staged):
    scripts = [path for path in (staged / "opt/moetuned/bin").iterdir() if path.is_file() and not path.is_symlink()]
    assert len(scripts) > 2
    for path in [*scripts, staged / "opt/moetuned/pyvenv.cfg"]:
        assert str(staged).encode() not in path.read_bytes(), path
    assert (staged / "opt/moetuned/bin/moetunectl").read_text().startswith("#!/opt/moetuned/bin/python")


def test_nobody_else_may_write_what_was_installed(staged):
    for path in staged.rglob("*"):
        status = path.lstat()
        assert path.is_symlink() or not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH), path
        assert status.st_uid == os.geteuid()


def test_the_installed_program_runs_and_likes_its_own_config(staged):
    code = "import sys; from moetuned.cli.main import run; sys.exit(run(sys.argv[1:]))"
    command = [staged / "opt/moetuned/bin/python", "-c", code, "config", "check", staged / "etc/moetuned/moetuned.yaml"]
    result = subprocess.run(command, cwd="/", capture_output=True, text=True, check=False)
    assert result.stdout.startswith("ok: "), result.stdout + result.stderr


def test_the_package_in_it_is_a_copy(staged):
    code = "import moetuned; print(moetuned.__file__)"
    output = subprocess.run(
        [staged / "opt/moetuned/bin/python", "-c", code], cwd="/", capture_output=True, text=True, check=True
    )
    assert output.stdout.startswith(str(staged))


def test_an_edited_config_survives_a_second_installation_and_the_removal(staged, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(staged, copy, symlinks=True)
    config, hook = copy / "etc/moetuned/moetuned.yaml", copy / "etc/moetuned/hooks.d/20-tell-user"
    config.write_text("watch: {interval: 2s}\n")
    hook.unlink()
    again = make("install", f"DESTDIR={copy}")
    assert config.read_text() == "watch: {interval: 2s}\n"
    assert not hook.exists()
    assert "moetuned:" in again.stdout
    removed = make("uninstall", f"DESTDIR={copy}")
    assert f"kept {config}: it was edited" in removed.stdout
    left = sorted(str(path.relative_to(copy)) for path in copy.rglob("*"))
    assert left == ["etc", "etc/moetuned", "etc/moetuned/moetuned.yaml"]
    assert "nothing to remove" in make("uninstall", f"DESTDIR={copy}").stdout


def test_an_installation_and_a_removal_that_were_killed_are_repeated(staged, tmp_path):
    there = tmp_path / "killed"
    shutil.copytree(staged, there, symlinks=True)
    (there / "opt/moetuned").rename(there / "opt/moetuned.old")  # between the two renames
    work = tmp_path / "bin"
    work.mkdir()
    (work / "rmdir").write_text("#!/bin/sh\nkill -9 $PPID\n")  # the first directory of the list
    (work / "rmdir").chmod(0o755)
    path = {"PATH": f"{work}:{os.environ['PATH']}"}
    assert make("uninstall", f"DESTDIR={there}", check=False, **path).returncode != 0
    assert (there / "opt/moetuned/installed").exists()
    assert not (there / "usr/local/bin/moetunectl").is_symlink()
    make("uninstall", f"DESTDIR={there}")
    assert [path for path in there.rglob("*") if not path.is_dir()] == []
    assert not (there / "opt").exists()
    assert not (there / "etc").exists()


def test_what_somebody_else_put_there_is_never_replaced(tmp_path):
    theirs = tmp_path / "usr/local/bin/moetunectl"
    theirs.parent.mkdir(parents=True)
    theirs.write_text("theirs")
    result = make("install", f"DESTDIR={tmp_path}", check=False)
    assert result.returncode != 0
    assert "move it away first" in result.stderr
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["moetunectl"]
    assert theirs.read_text() == "theirs"


@pytest.mark.parametrize("variable", ["DESTDIR=relative", "PREFIX=relative"])
def test_relative_directories_are_refused(tmp_path, variable):
    result = make("install", variable, *([f"DESTDIR={tmp_path}"] if variable.startswith("PREFIX") else []), check=False)
    assert result.returncode != 0
    assert "absolute directory" in result.stderr


def test_a_python_that_is_too_old_is_named(tmp_path):
    old = tmp_path / "python-old"
    old.write_text('#!/bin/sh\n[ "$1" = -V ] && echo Python 3.9.2 && exit 0\nexit 1\n')
    old.chmod(0o755)
    result = make("install", f"DESTDIR={tmp_path}/d", f"PYTHON={old}", check=False)
    assert result.returncode != 0
    assert f"needs Python 3.11 or newer; {old} is Python 3.9.2" in result.stderr


def test_a_missing_python3_venv_is_named_with_the_cure(tmp_path):
    poor = tmp_path / "python-poor"
    poor.write_text('#!/bin/sh\ncase "$2" in *ensurepip*) exit 1 ;; esac\nexit 0\n')
    poor.chmod(0o755)
    result = make("install", f"DESTDIR={tmp_path}/d", f"PYTHON={poor}", check=False)
    assert result.returncode != 0
    assert "sudo apt install python3-venv" in result.stderr


def _namespace(tmp_path, script):
    """Run a shell script as root with private, writable copies of the directories that an installation touches."""
    layers = tmp_path / "layers"
    layers.mkdir()
    lines = ["set -eu", f"mount -t tmpfs tmpfs {layers}"]
    for name in OVERLAID:
        upper, work = layers / "up" / name, layers / "work" / name
        lines.append(f"mkdir -p {upper} {work}")
        lines.append(f"mount -t overlay overlay -o lowerdir=/{name},upperdir={upper},workdir={work} /{name} || exit 77")
    return subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "sh", "-c", "\n".join([*lines, script])],
        cwd=ROOT, env={**os.environ, "PIP_NO_CACHE_DIR": "0"}, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_both_ways_to_remove_it_take_the_same_with_them():
    """What a purge of the package removes is removed here, but /etc/moetuned with what was edited there, and logs."""
    purge = (ROOT / "scripts/debian/postrm").read_text()
    own = (ROOT / "scripts/uninstall.sh").read_text()
    paths = set(re.findall(r"(?:/var/lib|/run)/[^\s:]+", purge.partition("rm -f ")[0]))
    assert len(paths) == 6
    assert {path for path in paths if path not in own} == set()


@pytest.mark.kernel
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: installs in a private mount namespace")
@pytest.mark.skipif(Path("/opt/moetuned").exists(), reason="moetuned is installed on this machine")
def test_removal_leaves_the_machine_as_it_was(tmp_path):
    path = "/proc/sys/vm/vfs_cache_pressure"
    theirs = Yielded(
        boot_id=read_boot_id(RealFS()), seq=1, tunable="vm.vfs_cache_pressure", place=Place(path, Codec.INTEGER),
        value=Cell(path, "77"), intended=Cell(path, "50"),
    )  # fmt: skip
    script = f"""
    rm -rf /run/moetuned /var/lib/moetuned  # only what is seen in here: a daemon or a demo may run on the machine
    list() {{ find {" ".join("/" + name for name in OVERLAID)} -xdev ! -name '*-' ! -name .pwd.lock | sort; cat /etc/group; }}
    mkdir -p /var/lib/private /run/systemd/system.control  # systemd's own
    list >{tmp_path}/before
    make --no-print-directory install
    test "$(stat -c %U /opt/moetuned)" = root
    getent group moetuned
    moetunectl --version
    moetunectl config check
    mkdir -p -m 700 /var/lib/moetuned /run/moetuned
    if flock /var/lib/moetuned make --no-print-directory uninstall; then echo "removed beside a daemon"; exit 1; fi
    echo broken >/var/lib/moetuned/undo.jsonl
    if make --no-print-directory uninstall; then echo "removed in spite of a broken journal"; exit 1; fi
    grep broken /var/lib/moetuned/undo.jsonl*
    moetunectl config check
    rm /var/lib/moetuned/undo.jsonl*
    echo '{msgspec.json.encode(theirs).decode()}' >/var/lib/moetuned/undo.jsonl  # nothing is held: no reason to stay
    mkdir -p /var/lib/private/moetuned-backends/glm /run/systemd/system.control/moetuned.slice.d
    ln -s private/moetuned-backends /var/lib/moetuned-backends
    echo conversation >/var/lib/moetuned-backends/glm/slot.kv
    : >/run/systemd/system.control/moetuned.slice.d/50-MemoryLow.conf
    /opt/moetuned/uninstall.sh
    find /run/systemd/system.control /run/systemd/transient -name 'moetuned*' 2>/dev/null >{tmp_path}/noted || true
    list >{tmp_path}/after
    """
    result = _namespace(tmp_path, script)
    if result.returncode == 77:
        pytest.skip("needs overlayfs, which this kernel or container does not allow")
    if NO_NETWORK in result.stderr:
        pytest.skip("pip cannot get moetuned's dependencies here")
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stderr.lower().count("nothing was removed") == 2, result.stderr
    assert (tmp_path / "after").read_text() == (tmp_path / "before").read_text()
    assert (tmp_path / "noted").read_text() == ""
    assert not Path("/opt/moetuned").exists()
