"""A systemctl of the test's own: it answers `show` with a text, notes what it is asked, and fails or hangs where it is told to."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from moetuned.host import program_search, systemd_booted

_PROGRAM = """#!{python} -I
import json, sys, time
with open({state!r}) as file:
    state = json.load(file)
words = [word for word in sys.argv[1:] if not word.startswith("--no-")]
with open({asked!r}, "a") as file:
    file.write(json.dumps(sys.argv[1:]) + "\\n")
verb = words[0]
if verb in state["hang"]:
    time.sleep(60)
if verb in state["fail"]:
    print(state["fail"][verb], file=sys.stderr)
    sys.exit(1)
if verb == "show":
    sys.stdout.write(state["show"])
"""


class FakeSystemctl:
    """`show` is what it prints; `fail` maps a verb to what it complains of."""

    def __init__(self, directory: Path) -> None:
        self._state, self._asked = directory / "state.json", directory / "asked"
        self.set()
        program = directory / "systemctl"
        program.write_text(_PROGRAM.format(python=sys.executable, state=str(self._state), asked=str(self._asked)))
        program.chmod(0o755)

    def set(self, show: str = "", fail: dict[str, str] | None = None, hang: tuple[str, ...] = ()) -> None:
        self._state.write_text(json.dumps({"show": show, "fail": fail or {}, "hang": hang}))

    def asked(self) -> list[list[str]]:
        """Every call's arguments, without those of `show`."""
        if not self._asked.exists():
            return []
        calls = [json.loads(line) for line in self._asked.read_text().splitlines()]
        return [call for call in calls if "show" not in call]


@pytest.fixture
def systemctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSystemctl:
    """The only system program there is, on a machine with systemd as far as is looked."""
    directory = tmp_path / "programs"
    directory.mkdir()
    monkeypatch.setattr(systemd_booted, "BOOTED", str(tmp_path))
    monkeypatch.setattr(program_search, "DIRECTORIES", (str(directory),))
    return FakeSystemctl(directory)


def shown(active: str = "active", sub: str = "running", **more: str | list[str]) -> str:
    """An answer to `show`."""
    values: dict[str, str | list[str]] = {
        "Id": "llama.service", "LoadState": "loaded", "ActiveState": active, "SubState": sub, "Result": "success", "MainPID": "0",
        "NeedDaemonReload": "no", **more,
    }  # fmt: skip
    return "".join(
        f"{name}={each}\n" for name, value in values.items() for each in (value if isinstance(value, list) else [value])
    )
