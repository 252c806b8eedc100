"""The picture of the architecture page: the layers of pyproject.toml from top to bottom, and how one tick goes through them."""  # noqa: INP001

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WIDTH, LEFT, ROW, GAP, TOP = 860, 20, 46, 12, 64
HOUSE = 470
"""Width of the column with the layers; beside it stands the tick."""
TITLE = "The layers of moetuned, from the commands and the daemon down to the types. Beside them the seven steps of one look."
FONT = "system-ui, -apple-system, 'Segoe UI', sans-serif"
HOLDS = {
    "cli": "moetunectl, a file a command",
    "daemon": "moetuned: the loop, lanes, care",
    "api": "HTTP/JSON server and client, metrics",
    "tunables": "kernel settings",
    "backends": "kinds of servers",
    "alerts": "sinks",
    "state": "undo journal, traces, events, heat",
    "host": "the one door to the operating system",
    "decide": "signals, detector, relief, plans",
    "gguf": "model files",
    "parse": "texts to types",
    "schema": "frozen types, units",
}
"""What each package holds, in a few words. A package that is missing here stops `make docs`."""
PURE = ("decide", "gguf", "parse", "schema")
PLUG_INS = ("tunables", "backends", "alerts")
TICK = (
    ("host", "sampler: raw text of /proc, /sys, cgroup, HTTP"),
    ("parse", "assemble: a Sample; what is not known is None"),
    ("decide", "signals, detector: a Verdict with reasons"),
    ("decide", "relief: what to do about it, or would do"),
    ("daemon", "supervisor, keepers: do it, off the loop"),
    ("alerts", "tell whoever subscribed"),
    ("api", "publish one Snapshot: status, metrics"),
)
"""One look, in order: the package that does it, and what."""


def layers(pyproject: Path = ROOT / "pyproject.toml") -> list[list[str]]:
    """Packages from the top to the bottom; side by side those that do not know each other."""
    contracts = tomllib.loads(pyproject.read_text())["tool"]["importlinter"]["contracts"]
    (found,) = (one["layers"] for one in contracts if one["type"] == "layers")
    return [[name.strip().removeprefix("moetuned.") for name in row.split("|")] for row in found]


def house_svg(rows: Sequence[Sequence[str]]) -> str:
    """The whole picture. Raises KeyError for a package of which it is not said what it holds."""
    height = TOP + len(rows) * (ROW + GAP) + 54
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img">',
            f"<title>{TITLE}</title>",
            '<marker id="tip" markerWidth="9" markerHeight="9" refX="7" refY="4" orient="auto">',
            '<path d="M0,0 L8,4 L0,8 z" fill="#57606a"/></marker>',
            f'<g font-family="{FONT}">',
            f'<rect width="{WIDTH}" height="{height}" rx="8" fill="#ffffff"/>',
            _text(LEFT, 34, "Packages: imports point down, never sideways", 15, bold=True),
            _text(LEFT + HOUSE + 40, 34, "One look, once a second", 15, bold=True),
            *_house(rows),
            *_tick(height),
            _legend(height),
            "</g>",
            "</svg>",
            "",
        )
    )


def _house(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    for number, row in enumerate(rows):
        width = (HOUSE - GAP * (len(row) - 1)) / len(row)
        for place, name in enumerate(row):
            x, y = LEFT + place * (width + GAP), TOP + number * (ROW + GAP)
            fill, line = _colours(name)
            dashes = ' stroke-dasharray="5 3"' if name in PLUG_INS else ""
            yield (
                f'<rect x="{x:.0f}" y="{y}" width="{width:.0f}" height="{ROW}" rx="6" fill="{fill}" stroke="{line}"{dashes}/>'
            )
            yield _text(x + 12, y + 20, name, 14, bold=True)
            yield _text(x + 12, y + 37, HOLDS[name], 11.5)
        if number + 1 < len(rows):
            middle, y = LEFT + HOUSE / 2, TOP + number * (ROW + GAP) + ROW
            yield f'<path d="M{middle:.0f},{y + 1} v{GAP - 3}" stroke="#57606a" marker-end="url(#tip)"/>'


def _tick(height: int) -> Iterator[str]:
    x, step = LEFT + HOUSE + 40, (height - TOP - 54) / len(TICK)
    for number, (name, what) in enumerate(TICK):
        y = TOP + number * step
        fill, line = _colours(name)
        yield f'<circle cx="{x + 12}" cy="{y + 16:.0f}" r="12" fill="{fill}" stroke="{line}"/>'
        yield _text(x + 8, y + 21, str(number + 1), 13, bold=True)
        yield _text(x + 34, y + 13, name, 13, bold=True)
        yield _text(x + 34, y + 30, what, 11.5)
        if number + 1 < len(TICK):
            yield f'<path d="M{x + 12},{y + 29:.0f} v{step - 32:.0f}" stroke="#57606a" marker-end="url(#tip)"/>'


def _legend(height: int) -> str:
    y = height - 22
    parts = []
    for x, fill, line, dashes, said in (
        (LEFT, "#ddf4e4", "#1a7f37", "", "pure: data in, data out"),
        (LEFT + 190, "#fff8c5", "#9a6700", "", "touches the system"),
        (LEFT + 350, "#fff8c5", "#9a6700", ' stroke-dasharray="5 3"', "plug-ins, found by name"),
    ):
        parts.append(
            f'<rect x="{x}" y="{y - 12}" width="16" height="14" rx="3" fill="{fill}" stroke="{line}"{dashes}/>'
        )
        parts.append(_text(x + 24, y, said, 12))
    return "\n".join(parts)


def _colours(name: str) -> tuple[str, str]:
    return ("#ddf4e4", "#1a7f37") if name in PURE else ("#fff8c5", "#9a6700")


def _text(x: float, y: float, text: str, size: float, *, bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}" fill="#1f2328"{weight}>{escape(text)}</text>'
