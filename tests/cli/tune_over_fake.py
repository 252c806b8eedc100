"""`moetunectl tune` over a fake kernel: a root with a config, and how its subcommands are run there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from moetuned.cli import tune


def run(root: Path, *arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(tune.command, [*arguments, "--root", str(root)], catch_exceptions=False)
    assert result.exit_code == code, result.output + result.stderr
    return result


def as_json(root: Path, *arguments: str, code: int = 0) -> Any:
    return json.loads(run(root, *arguments, "--json", code=code).stdout)
