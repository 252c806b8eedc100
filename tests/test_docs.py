"""The README and the docs against the code: command lines, configs, and that every value and event is explained."""

from __future__ import annotations

import importlib.util
import re
import shlex
import textwrap
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any

import click
import pytest

from moetuned import backends, tunables
from moetuned.cli.main import group as moetunectl
from moetuned.daemon.main import group as moetuned
from moetuned.demo.__main__ import make_parser as demo_parser
from moetuned.host.config_files import load_files
from moetuned.schema.config import Config
from moetuned.schema.event import CLOSES, ENDS, KIND_OF, EventName, general
from moetuned.schema.severity import SEVERITY
from moetuned.schema.verdict import MemoryState, Paging, Phase
from moetuned.simulator.ask import make_parser as ask_parser
from moetuned.simulator.make_model import make_parser as make_model_parser
from moetuned.simulator.serve import FAULT_FLAGS
from moetuned.xllamacpp_server.flags import LLAMA_SERVER_FLAGS, parse_flags

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
NO_CONFIG = "<!-- not a config of moetuned -->\n"
"""The line before a block of YAML that is something else."""


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def without_blocks(text: str) -> str:
    return re.sub(r"^ *```.*?^ *```", "", text, flags=re.MULTILINE | re.DOTALL)


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


# Command lines


def command_lines(page: Path) -> Iterator[str]:
    """Lines of shell blocks, and code in the text that begins with one of our programs."""
    text = page.read_text()
    for block in blocks(page, "sh"):
        yield from re.sub(r"\\\n", " ", block).splitlines()
    for code in re.findall(r"`([^`\n]+)`", without_blocks(text)):
        if re.match(r"(sudo )?(moetunectl|moetuned|make|(\.venv/bin/)?python -m moetuned)\b.* ", code):
            yield code


def ours(line: str) -> list[str] | None:
    """Words of a call of ours, without what stands before and behind it; None when it is none."""
    try:
        words = shlex.split(line, comments=True)
    except ValueError:
        return None
    for end, word in enumerate(words):
        if word in ("|", ">", "&&", ";") or word.startswith(">"):
            words = words[:end]
            break
    while words and (words[0] == "sudo" or re.fullmatch(r"[A-Z_]+=.*", words[0])):
        words = words[1:]
    if not words:
        return None
    words[0] = words[0].removeprefix(".venv/bin/")
    if words[0] == "python" and words[1:2] == ["-m"] and words[2].startswith("moetuned."):
        return words[2:]
    return words if words[0] in ("moetunectl", "moetuned", "make") else None


CALLS = [
    pytest.param(words, id=f"{name_of(page)}: {' '.join(words)}")
    for page in PAGES
    for line in command_lines(page)
    if (words := ours(line)) is not None and "COMMAND" not in words and "[OPTIONS]" not in words
]


def parse(words: list[str]) -> None:
    """Parse a call as its program would. Raises click.UsageError, SystemExit, FlagError or AssertionError."""
    program, arguments = words[0], words[1:]
    match program:
        case "moetunectl" | "moetuned":
            parse_click(moetunectl if program == "moetunectl" else moetuned, program, arguments)
        case "make":
            targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
            assert [word for word in arguments if "=" not in word], "make needs a target"
            assert {word for word in arguments if "=" not in word} <= targets
        case "moetuned.demo":
            demo_parser().parse_args(arguments)
        case "moetuned.simulator" if arguments[:1] == ["make-model"]:
            make_model_parser().parse_args(arguments[1:])
        case "moetuned.simulator" if arguments[:1] == ["ask"]:
            ask_parser().parse_args(arguments[1:])
        case "moetuned.simulator" if arguments[:1] == ["serve"]:
            parse_flags((*LLAMA_SERVER_FLAGS, *FAULT_FLAGS), arguments[1:], {})
        case "moetuned.xllamacpp_server":
            parse_flags(LLAMA_SERVER_FLAGS, [word for word in arguments if word != "--help"], {})
        case "moetuned.simulator":
            assert arguments == []
        case _:
            assert importlib.util.find_spec(program) is not None


def parse_click(command: click.Command, words: str, arguments: list[str]) -> None:
    while isinstance(command, click.Group) and arguments[:1] not in ([], ["--version"], ["--help"]):
        found = command.get_command(click.Context(command), arguments[0])
        assert found is not None, f"{words} has no command {arguments[0]}"
        command, words, arguments = found, f"{words} {arguments[0]}", arguments[1:]
    if not isinstance(command, click.Group):
        command.make_context(words, list(arguments))


@pytest.mark.parametrize("words", CALLS)
def test_a_command_line_parses(words: list[str]) -> None:
    parse(words)


def test_there_are_command_lines_to_check() -> None:
    programs = {call.values[0][0] for call in CALLS}
    assert {"moetunectl", "moetuned", "make", "moetuned.demo", "moetuned.simulator"} <= programs


@pytest.mark.parametrize(
    "line",
    [
        "moetunectl statsu",
        "moetunectl status --wath",
        "sudo moetunectl tune rollback --force",
        "moetuned run --confg FILE",
        "sudo make instal",
        ".venv/bin/python -m moetuned.demo --backend wheeel",
        ".venv/bin/python -m moetuned.simulator serve -m model.gguf --no-such-flag",
    ],
)
def test_a_wrong_command_line_is_noticed(line: str) -> None:
    words = ours(line)
    assert words is not None
    with pytest.raises((click.UsageError, SystemExit, AssertionError, ValueError)):
        parse(words)


# Configs


def configs(page: Path) -> Iterator[str]:
    """Blocks of YAML that are said to be configs, and code in the text that is one: `relief: {mode: act}`."""
    text = re.sub(
        rf"^ *{re.escape(NO_CONFIG)} *```yaml\n.*?^ *```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL
    )
    for _, block in re.findall(r"^( *)```yaml\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL):
        yield textwrap.dedent(block)
    yield from re.findall(rf"`((?:{'|'.join(Config.__struct_fields__)}): \{{[^`\n]+\}})`", without_blocks(text))


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(block, id=f"{name_of(page)} {number}")
        for page in PAGES
        for number, block in enumerate(configs(page))
    ],
)
def test_a_config_in_the_docs_is_a_config(text: str, tmp_path: Path) -> None:
    file = tmp_path / "moetuned.yaml"
    file.write_text(text)
    loaded = load_files(
        str(file), tunables.known_sysctls(), known_kinds=backends.names(), further=(tunables.check_tuning,)
    )
    assert loaded.files == (str(file),)


# Completeness


ALERTS = ROOT / "docs" / "alerts"


def about(event: EventName) -> str:
    """What the page of an event says first: how bad it is, what it is a kind of, what ends it."""
    ends = [end for end, begun in ENDS.items() if general(event) in begun]
    words = [SEVERITY[event].capitalize()]
    if event in KIND_OF:
        words.append(f"a kind of {page_link(KIND_OF[event])}")
    if event in ENDS:
        words.append(f"the end of {' and '.join(map(page_link, ENDS[event]))}")
    else:
        closed = [each for each in EventName if general(event) in CLOSES.get(each, ())]
        words.append(f"over with {' or '.join(map(page_link, [*ends, *closed]))}" if ends else "told once")
    if event in CLOSES:
        words.append(f"ends {' and '.join(map(page_link, CLOSES[event]))} where it tells how that came out")
    return "; ".join(words) + "."


def page_link(event: EventName) -> str:
    return f"[{event}]({event}.md)"


@pytest.mark.parametrize("event", list(EventName))
def test_every_event_has_a_page(event: EventName) -> None:
    lines = (ALERTS / f"{event}.md").read_text().splitlines()
    assert lines[:4] == [f"# {event}", "", about(event), ""]
    headings = [line for line in lines if line.startswith("#")]
    assert headings[1:3] == ["## What it means", "## What to do"]
    assert f"| [`{event}`](alerts/{event}.md) | {SEVERITY[event]} |" in (ROOT / "docs" / "alerts.md").read_text()


def test_no_page_is_of_an_event_that_is_not_there() -> None:
    of_rules = {"moetuned_gone", "moetuned_stale"}
    assert {page.stem for page in ALERTS.iterdir()} == {*(event.value for event in EventName), *of_rules}


def test_the_messages_in_the_pages_are_as_they_are_told() -> None:
    told = " ".join((ROOT / "tests" / "cli" / "golden" / "situation_thrash_hog.txt").read_text().split())
    shown = [block for page in sorted(ALERTS.iterdir()) for block in blocks(page, "text")]
    assert shown
    assert all(" ".join(block.split()) in told for block in shown)


@pytest.mark.parametrize("axis", [Phase, Paging, MemoryState])
def test_every_value_of_a_verdict_is_explained(axis: type[StrEnum]) -> None:
    """In a table of its own: the values in order, and nothing else."""
    heading = {Phase: "phase", Paging: "paging", MemoryState: "memory"}[axis]
    text = (ROOT / "docs" / "status.md").read_text()
    table = re.search(rf"^\| {heading} \| meaning .*?\n((?:\|.*\n)+)", text, re.MULTILINE)
    assert table is not None
    assert re.findall(r"^\| `(\w+)` \|", table[1], re.MULTILINE) == [value.value for value in axis]


def _generate_docs() -> Any:
    spec = importlib.util.spec_from_file_location("generate_docs", ROOT / "scripts" / "generate_docs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_reference_page_is_made_from_code() -> None:
    module = _generate_docs()
    there = {name_of(page) for page in (ROOT / "docs" / "reference").iterdir()}
    assert there == {name for name in module.GENERATED if name.startswith("docs/reference/")}


def test_an_event_that_lacks_something_is_named_with_what_and_where(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = _generate_docs()
    assert module.missing_of_events(EventName) == []
    new = ("event disk_full has no severity: add it to SEVERITY of moetuned/schema/severity.py",
           "event disk_full has no title: add it to TITLES of moetuned/decide/alert_text.py",
           "event disk_full has no MESSAGE_ID: add it to MESSAGE_IDS of moetuned/alerts/journal.py (make one: systemd-id128 new)",
           "event disk_full has no page: write docs/alerts/disk_full.md, and its row in docs/alerts.md")  # fmt: skip
    assert module.missing_of_events(["disk_full", "test"]) == [*new]
    monkeypatch.setattr(module, "EventName", ["disk_full"])
    monkeypatch.setattr(module, "GENERATED", {})
    assert module.main() == 1
    assert capsys.readouterr().err.splitlines()[:4] == [*new]


def test_decisions_are_numbered_and_listed() -> None:
    directory = ROOT / "docs" / "adr"
    pages = sorted(page.name for page in directory.glob("[0-9]*.md"))
    assert [int(name[:4]) for name in pages] == list(range(1, len(pages) + 1))
    assert re.findall(r"\]\((\d{4}-[^)]+)\)", (directory / "README.md").read_text()) == pages
    for name in pages:
        text = (directory / name).read_text()
        assert text.startswith(f"# {int(name[:4])}. ")
        assert re.findall(r"^\*\*(Choice|Why|Price|Think again)", text, re.MULTILINE)[:2] == ["Choice", "Why"]


def test_every_figure_names_the_benchmark_that_prints_it() -> None:
    """Each row of the costs names its benchmark, and that one has a text like the row's name."""
    rows = re.findall(r"^\| (.+?) \| .+? \| `(\w+\.py)` \|$", (ROOT / "docs" / "costs.md").read_text(), re.MULTILINE)
    assert rows
    for name, file in rows:
        source = (ROOT / "tests" / "bench" / file).read_text()
        printed = [re.sub(r"\{[\w /]+\}", "N", text) for text in re.findall(r'figure\(\s*f?"([^"]+)"', source)]
        assert re.sub(r"\d+(?= (KiB|tokens|ticks|readers|replayed))", "N", name) in printed, (
            f"{file} prints no {name!r}"
        )


def test_the_changelog_uses_its_tags() -> None:
    entries = [line for line in (ROOT / "CHANGELOG.md").read_text().splitlines() if line.startswith("- ")]
    assert entries
    assert all(re.match(r"- \[(CHANGE|FEATURE|ENHANCEMENT|BUGFIX)\] \S", line) for line in entries)


def test_every_kind_of_backend_is_in_the_table_and_in_the_config_key() -> None:
    listed = re.findall(
        r"^\| `([a-z-]+)` \|", (ROOT / "docs" / "backends.md").read_text().partition("\n## ")[0], re.MULTILINE
    )
    assert set(listed) == set(backends.names())
    said = (ROOT / "docs" / "reference" / "config.md").read_text()
    row = next(line for line in said.splitlines() if line.startswith("| `kind` |") and "recognised" in line)
    assert all(name in row for name in backends.names())
