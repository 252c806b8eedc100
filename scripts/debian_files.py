"""Two files of the Debian package that are made from what says it already: changelog from CHANGELOG.md, copyright from pip's metadata."""  # noqa: INP001

from __future__ import annotations

import argparse
import email
import email.message
import re
import sys
import textwrap
from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COMMON = {
    "Apache License": ("Apache-2.0", "Apache-2.0"),
    "GNU LESSER GENERAL PUBLIC LICENSE\nVersion 2.1": ("LGPL-2.1+", "LGPL-2.1"),
}
"""How a text begins that every Debian has in /usr/share/common-licenses, its short name, and its file there."""
_HEADING = re.compile(r"^## (\S+?)(?:,.*)?$", re.MULTILINE)
_COPYRIGHT = re.compile(r"^\W*(copyright\b.*\d{4}.*)$", re.IGNORECASE | re.MULTILINE)


def changelog(markdown: str, version: str, epoch: int, maintainer: str) -> str:
    """Debian's changelog with one entry: what the newest section of CHANGELOG.md says."""
    sections = _HEADING.split(markdown)
    items = re.findall(r"^- (.*(?:\n  .*)*)", sections[2], re.MULTILINE) if len(sections) > 2 else []
    lines = [f"moetuned ({version}) unstable; urgency=medium", ""]
    for item in items or ["See the project's own changelog."]:
        text = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", " ".join(item.split())).replace("`", "")
        lines += textwrap.wrap(text, 78, initial_indent="  * ", subsequent_indent="    ", break_on_hyphens=False)
    date = format_datetime(datetime.fromtimestamp(epoch, UTC))
    return "\n".join([*lines, "", f" -- {maintainer}  {date}", ""])


def maintainer(control: str) -> str:
    """Who is named in debian/control."""
    found = re.search(r"^Maintainer: (.+)$", control, re.MULTILINE)
    if found is None:
        sys.exit("debian/control names no maintainer")
    return found[1]


def copyright_file(installed: Path) -> str:
    """Debian's machine-readable copyright: moetuned, and each package that pip has put into `installed`.

    Exits with a sentence where one of them brings no licence text: it may not be handed on then.
    """
    parts = [
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nUpstream-Name: moetuned",
        _paragraph("Files: *", ["the moetuned maintainers"], *_licence([(ROOT / "LICENSE").read_text()], "Apache-2.0")),
    ]
    for directory in sorted(installed.glob("*.dist-info"), key=lambda path: path.name.lower()):
        metadata = email.message_from_string((directory / "METADATA").read_text())
        if metadata["Name"] == "moetuned":
            continue
        texts = [path.read_text(errors="replace").strip("\n") for path in _licence_files(directory, metadata)]
        if not texts:
            sys.exit(
                f"moetuned: {metadata['Name']} {metadata['Version']} brings no licence text, so it cannot be bundled"
            )
        short, body = _licence(texts, _name(metadata))
        holders = [line.strip() for text in texts for line in _COPYRIGHT.findall(text) if "Free Software" not in line]
        files = " ".join(f"usr/lib/moetuned/python/{name}" for name in _files(directory))
        parts.append(
            _paragraph(f"Files: {files}", holders or [_author(metadata)], short, body)
            + f"\nComment: {metadata['Name']} {metadata['Version']}, as published on PyPI"
        )
    return "\n\n".join(parts) + "\n"


def _licence_files(directory: Path, metadata: email.message.Message) -> list[Path]:
    named = [str(name) for name in metadata.get_all("License-File", [])]
    places = [directory / "licenses" / name for name in named] + [directory / name for name in named]
    found = [path for path in places if path.is_file()]
    return found or sorted(path for path in directory.rglob("*") if re.match(r"(?i)licen[cs]e|copying", path.name))


def _name(metadata: email.message.Message) -> str:
    """The licence's short name, as the package's metadata has it."""
    said = metadata["License-Expression"] or metadata["License"]
    if not said or "\n" in said:
        classifiers = [str(line) for line in metadata.get_all("Classifier", []) if "License ::" in line]
        said = classifiers[0].rpartition(" :: ")[2] if classifiers else "other"
    return re.sub(r"[^A-Za-z0-9.+-]+", "-", said).strip("-")


def _author(metadata: email.message.Message) -> str:
    return str(
        metadata["Author"] or metadata["Author-email"] or metadata["Maintainer"] or f"the {metadata['Name']} authors"
    )


def _files(directory: Path) -> Iterator[str]:
    """What the package installed at the top, from its RECORD."""
    names = {line.split(",")[0].split("/")[0] for line in (directory / "RECORD").read_text().splitlines()}
    for name in sorted(names - {"..", "bin"}):
        yield f"{name}/*" if (directory.parent / name).is_dir() else name


def _licence(texts: list[str], name: str) -> tuple[str, str]:
    """Short name and text of a licence; of one that Debian has, where it is, and what came with it (NOTICE)."""
    for beginning, (short, file) in COMMON.items():
        if beginning in re.sub(r"\n\s+", "\n", texts[0])[:400]:
            there = f"On Debian systems the text is in /usr/share/common-licenses/{file}."
            return short, "\n\n".join([there, *texts[1:]])
    return name, "\n\n".join(texts)


def _paragraph(files: str, holders: list[str], short: str, body: str) -> str:
    indented = "\n".join(f" {line}" if line.strip() else " ." for line in body.expandtabs().splitlines())
    return f"{files}\nCopyright: {chr(10).join(holders).replace(chr(10), chr(10) + ' ')}\nLicense: {short}\n{indented}"


def main() -> None:
    """Print the file that the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__)
    kinds = parser.add_subparsers(dest="kind", required=True)
    entry = kinds.add_parser("changelog")
    entry.add_argument("--version", required=True)
    entry.add_argument("--epoch", type=int, required=True)
    kinds.add_parser("copyright").add_argument("installed", type=Path)
    arguments = parser.parse_args()
    if arguments.kind == "copyright":
        sys.stdout.write(copyright_file(arguments.installed))
        return
    who = maintainer((ROOT / "scripts/debian/control").read_text())
    sys.stdout.write(changelog((ROOT / "CHANGELOG.md").read_text(), arguments.version, arguments.epoch, who))


if __name__ == "__main__":
    main()
