"""Rules about the project itself: every module has its test, nothing grows too large, every dependency is explained."""

import functools
import importlib.util
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "moetuned"
MODULES = sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))
LONGEST = 500

# Declarations only: what they hold is tested where it is used.
WITHOUT_TEST = {
    Path("schema") / f"{name}.py" for name in ("action", "event", "model", "sample", "signals", "snapshot", "verdict")
} | {Path("host/service.py")}  # fmt: skip
# One file each by the hundred: tested by tables of cases that name them.
PLUG_INS = {Path("decide/signals"), Path("host/rehearsals"), Path("tunables")}
TOP_LEVEL = {
    ".ci", ".git", ".gitignore", "CHANGELOG.md", "LICENSE", "Makefile", "README.md", "docs", "etc", "moetuned",
    "pyproject.toml", "scripts", "systemd", "tests",
}  # fmt: skip


def _has_function(path: Path) -> bool:
    return re.search(r"^(    )?(async )?def ", path.read_text(), re.MULTILINE) is not None


@functools.cache
def _texts(directory: Path) -> list[str]:
    return [path.read_text() for path in directory.rglob("*") if path.suffix in (".py", ".yaml", ".json", ".jsonl")]


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_every_module_has_a_test_of_its_name(module):
    """tests/<package>/test_<module>.py or test_<package>_<module>.py; what the package's own file does, any test there."""
    package, stem = module.parent, module.stem
    if stem == "__main__" or module in WITHOUT_TEST or not _has_function(PACKAGE / module):
        return
    if stem == "__init__":
        dotted = ".".join(["moetuned", *package.parts])
        asked = re.compile(
            rf"{re.escape(dotted)} import|from {re.escape(dotted.rpartition('.')[0])} import .*{package.name}"
        )
        assert any(asked.search(text) for text in _texts(ROOT / "tests")), f"no test imports {dotted}"
    elif package in PLUG_INS:
        own = list((ROOT / "tests" / package).glob(f"{stem}.*"))
        used = any(re.search(rf"\b{stem}\b", text) for text in _texts(ROOT / "tests" / package.parts[0]))
        assert own or used, f"no case below tests/{package.parts[0]}/ names {stem}"
    else:
        names = {f"test_{stem}.py", f"test_{package.name}_{stem}.py"}
        there = {path.name for path in (ROOT / "tests" / package).glob("test_*.py")}
        assert names & there, f"moetuned/{module} has none of {sorted(names)} in tests/{package}/"


@pytest.mark.parametrize("path", [*MODULES], ids=str)
def test_no_module_is_too_long(path):
    lines = len((PACKAGE / path).read_text().splitlines())
    assert lines <= LONGEST, f"moetuned/{path} has {lines} lines; split it (at most {LONGEST})"


@pytest.mark.parametrize("path", [*MODULES], ids=str)
def test_every_module_says_what_it_is_for(path):
    assert (PACKAGE / path).read_text().lstrip().startswith('"""'), f"moetuned/{path} has no docstring"


@pytest.mark.parametrize("path", sorted((ROOT / "scripts").glob("*.sh")), ids=lambda path: path.name)
def test_pip_builds_what_has_no_wheel_in_the_way_that_stays(path):
    """An older pip prints a deprecation for sdnotify otherwise."""
    installs = re.findall(r"pip install\b.*", path.read_text())
    assert all("--use-pep517" in line for line in installs), installs


def test_nothing_unexpected_lies_at_the_top():
    if not (ROOT / ".git").exists():
        pytest.skip("no git here to say which files belong to the project")
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert {name.split("/")[0] for name in listing.stdout.splitlines()} <= TOP_LEVEL


def test_test_files_have_names_of_their_own():
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert sorted(names) == sorted(set(names))


def _dependencies():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    return [re.split(r"[<>=;\s\[]", line)[0] for group in groups for line in group]


@pytest.mark.parametrize("name", _dependencies())
def test_every_dependency_is_explained(name):
    lines = [
        line
        for line in (ROOT / "docs" / "dependencies.md").read_text().splitlines()
        if line.startswith(f"- `{name}`: ")
    ]
    assert len(lines) == 1
    assert len(lines[0]) > len(name) + 20


def test_only_dependencies_are_explained():
    explained = re.findall(r"^- `([^`]+)`:", (ROOT / "docs" / "dependencies.md").read_text(), re.MULTILINE)
    assert sorted(explained) == sorted(_dependencies())


def _generated():
    spec = importlib.util.spec_from_file_location("generate_docs", ROOT / "scripts" / "generate_docs.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.GENERATED


@pytest.mark.parametrize("name", _generated())
def test_generated_files_are_fresh(name):
    assert (ROOT / name).read_text() == _generated()[name](), f"{name} is stale; run: make docs"


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda path: str(path.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        if not target.startswith(("http://", "https://")):
            assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} links to {target}, which is not there"
