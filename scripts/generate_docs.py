"""Writes the files that are made from the code: the sample config and the reference pages. Run by `make docs`."""  # noqa: INP001

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from moetuned.parse.config_sample import reference_page, sample_config

ROOT = Path(__file__).resolve().parent.parent
GENERATED: Mapping[str, Callable[[], str]] = {
    "etc/moetuned.yaml": sample_config,
    "docs/reference/config.md": reference_page,
}


def main() -> int:
    """Write what differs and name it."""
    for name, generate in GENERATED.items():
        path, text = ROOT / name, generate()
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            sys.stdout.write(f"wrote {name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
