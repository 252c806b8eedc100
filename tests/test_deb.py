"""What is in the Debian package, what it asks for, and that nothing around its programs can change what they import."""

from __future__ import annotations

import gzip
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from fakes.debian_package import ROOT, field, make_deb


@pytest.fixture(scope="module")
def unpacked(debian_package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("unpacked")
    subprocess.run(["dpkg-deb", "--extract", debian_package, root], check=True)
    return root


@pytest.fixture(scope="module")
def listing(debian_package: Path) -> list[list[str]]:
    output = subprocess.run(["dpkg-deb", "--contents", debian_package], capture_output=True, text=True, check=True)
    return [line.split(None, 5) for line in output.stdout.splitlines()]


def units(root: Path) -> Path:
    """Where this release wants units."""
    (place,) = (root / name for name in ("lib/systemd", "usr/lib/systemd") if (root / name).exists())
    return place


def test_files_are_where_they_belong(unpacked):
    for name in (
        "usr/bin/moetuned", "usr/bin/moetunectl", "usr/lib/moetuned/python/moetuned/cli/main.py", "usr/lib/moetuned/give-back",
        "etc/moetuned/moetuned.yaml", "etc/moetuned/conf.d", "etc/moetuned/hooks.d/10-log-line", "etc/moetuned/backends/example.env",
        "usr/share/man/man1/moetunectl.1.gz", "usr/share/man/man5/moetuned.yaml.5.gz", "usr/share/man/man8/moetuned.8.gz",
        "usr/share/bash-completion/completions/moetunectl", "usr/share/zsh/vendor-completions/_moetunectl",
        "usr/share/fish/vendor_completions.d/moetunectl.fish", "usr/share/moetuned/prometheus/moetuned.rules.yml",
        "usr/share/moetuned/grafana/moetuned.json", "usr/share/doc/moetuned/copyright", "usr/share/doc/moetuned/docs/install.md",
    ):  # fmt: skip
        assert (unpacked / name).exists(), name


def test_all_that_lies_in_systemd_is_in_it(unpacked):
    place = units(unpacked)
    for path in (each for each in (ROOT / "systemd").rglob("*") if each.is_file()):
        kind = path.parent.name
        target = {"systemd": place / "system", "system-preset": place / "system-preset"}.get(
            kind, unpacked / "usr/lib" / kind
        )
        assert (target / path.name).exists(), path


def test_units_start_the_programs_of_the_package(unpacked):
    text = (units(unpacked) / "system/moetuned.service").read_text()
    assert "ExecStart=/usr/bin/moetuned run" in text
    assert "/usr/local/bin/moetune" not in text


def test_nobody_but_root_owns_or_writes_it(listing):
    for mode, owner, _, _, _, name in listing:
        assert owner == "root/root", name
        assert mode[0] == "l" or mode[5] == mode[8] == "-", name
        assert "s" not in mode, name
    assert {mode for mode, *_, name in listing if name.startswith("./etc/moetuned/hooks.d/1")} == {"-rwxr-xr-x"}


def test_what_people_edit_is_known_as_theirs(debian_package, unpacked):
    text = subprocess.run(
        ["dpkg-deb", "--info", debian_package, "conffiles"], capture_output=True, text=True, check=True
    ).stdout
    files = sorted(f"/{path.relative_to(unpacked)}" for path in (unpacked / "etc").rglob("*") if path.is_file())
    assert sorted(text.split()) == files


def test_no_bytecode_and_no_path_of_the_build(unpacked):
    assert not list(unpacked.rglob("__pycache__"))
    assert not list(unpacked.rglob("*.pyc"))
    assert {path.name for path in unpacked.glob("usr/lib/moetuned/python/*.dist-info/*")} == {"METADATA"}


def test_it_asks_for_the_python_that_it_was_built_for(debian_package, unpacked):
    depends = field(debian_package, "Depends")
    minor = re.search(r"python3 \(>= (3\.\d+)\)", depends)[1]
    assert f"python3 (<< 3.{int(minor[2:]) + 1})" in depends
    assert "libudev1" in depends
    assert "libc6 (" in depends
    compiled = [path.name for path in unpacked.rglob("*.so")]
    assert compiled
    assert all("abi3" in name or f"cpython-{minor.replace('.', '')}-" in name for name in compiled), compiled
    for name in ("moetuned", "moetunectl"):
        assert (unpacked / "usr/bin" / name).read_text().startswith(f"#!/usr/bin/python{minor} -IS\n")


def test_licences_of_all_that_is_bundled_are_in_it(unpacked):
    text = (unpacked / "usr/share/doc/moetuned/copyright").read_text()
    for metadata in unpacked.glob("usr/lib/moetuned/python/*.dist-info"):
        name = metadata.name.partition("-")[0]
        assert name == "moetuned" or f"{metadata.name}/*" in text
    assert "License: Apache-2.0" in text
    assert len(re.findall(r"^License: ", text, re.MULTILINE)) == len(re.findall(r"^Files: ", text, re.MULTILINE))


def test_the_changelog_says_what_the_project_says(debian_package, unpacked):
    text = gzip.decompress((unpacked / "usr/share/doc/moetuned/changelog.Debian.gz").read_bytes()).decode()
    assert text.startswith(f"moetuned ({field(debian_package, 'Version')}) unstable; urgency=medium\n")
    assert text.count("  * [FEATURE]") > 10
    assert max(map(len, text.splitlines())) < 100
    assert b"not released yet" in gzip.decompress((unpacked / "usr/share/doc/moetuned/changelog.gz").read_bytes())


def test_a_hostile_environment_and_directory_change_nothing(unpacked, tmp_path):
    """The program, with its private directory where it was unpacked: nothing else on its path but Python's own library."""
    evil = tmp_path / "evil"
    evil.mkdir()
    for name in ("moetuned", "click", "sitecustomize", "usercustomize", "json"):
        (evil / f"{name}.py").write_text("raise SystemExit('evil')\n")
    program = (unpacked / "usr/bin/moetunectl").read_text()
    private = f"{unpacked}/usr/lib/moetuned/python"
    for name, last in (("run", ""), ("path", "")):
        body = program.replace("/usr/lib/moetuned/python", private)
        if name == "path":
            body = re.sub(r"^from .* import main$", "print(*sys.path, sep='\\\\n')", body, flags=re.MULTILINE)
            body = body.replace("sys.exit(main())", last)
        (evil / name).write_text(body)
        (evil / name).chmod(0o755)
    surroundings = {
        "PATH": os.defpath,
        "HOME": str(evil),
        "PYTHONPATH": str(evil),
        "PYTHONHOME": str(evil),
        "PYTHONSTARTUP": str(evil / "json.py"),
    }
    outputs = {}
    for name in ("run", "path"):
        if not Path(program.split()[0][2:]).exists():
            pytest.skip("the Python that the package is built for is not here")
        result = subprocess.run(
            [evil / name, "--version"], cwd=evil, env=surroundings, capture_output=True, text=True, check=False
        )
        assert result.returncode == 0, result.stderr
        outputs[name] = result.stdout
    assert outputs["run"].startswith("moetunectl ")
    path = outputs["path"].split()
    assert path[-1] == private
    assert not [each for each in path if "packages" in each or str(evil) in each]


def test_lintian_has_no_error(debian_package):
    if shutil.which("lintian") is None:
        pytest.skip("needs lintian (Debian's package of that name)")
    allowed = ["--allow-root"] if os.geteuid() == 0 else []
    result = subprocess.run(
        ["lintian", *allowed, "--fail-on", "error,warning", debian_package], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("there", [True, False])
def test_a_directory_without_wheels_is_said_at_once(debian_package, tmp_path, there):
    if there:
        (tmp_path / "none").mkdir()
    result = make_deb(tmp_path, f"WHEELS={tmp_path}/none")
    assert result.returncode != 0
    assert f"WHEELS={tmp_path}/none is not a directory with wheels" in result.stderr


def _debian_files():
    spec = importlib.util.spec_from_file_location("debian_files", ROOT / "scripts" / "debian_files.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_the_newest_section_becomes_the_changelogs_entry():
    text = "# Changelog\n\n## 2.0, not released yet\n\n- [BUGFIX] One `thing`,\n  see [undo](docs/undo.md).\n- Two.\n\n## 1.0\n\n- Old.\n"
    assert _debian_files().changelog(text, "2.0-1", 0, "N <n@x.org>") == (
        "moetuned (2.0-1) unstable; urgency=medium\n\n  * [BUGFIX] One thing, see undo.\n  * Two.\n\n"
        " -- N <n@x.org>  Thu, 01 Jan 1970 00:00:00 +0000\n"
    )


def test_what_brings_no_licence_is_not_handed_on(tmp_path):
    info = tmp_path / "x-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: x\nVersion: 1\nLicense: MIT\n\n")
    with pytest.raises(SystemExit, match="x 1 brings no licence text"):
        _debian_files().copyright_file(tmp_path)
    (info / "LICENSE.txt").write_text("MIT License\n\nCopyright (c) 2020 Somebody\n\nPermission is granted\n")
    (info / "RECORD").write_text("x/__init__.py,,\nx-1.dist-info/METADATA,,\n../../bin/x,,\n")
    (tmp_path / "x").mkdir()
    text = _debian_files().copyright_file(tmp_path)
    assert (
        "Files: usr/lib/moetuned/python/x/* usr/lib/moetuned/python/x-1.dist-info/*\nCopyright: Copyright (c) 2020 Somebody\n"
        in text
    )
    assert "License: MIT\n MIT License\n .\n" in text
