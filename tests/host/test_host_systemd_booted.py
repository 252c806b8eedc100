from __future__ import annotations

from pathlib import Path

import pytest

from moetuned.host import systemd_booted


def test_the_directory_of_systemd_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(systemd_booted, "BOOTED", str(tmp_path))
    assert systemd_booted.is_booted()
    monkeypatch.setattr(systemd_booted, "BOOTED", "/nowhere/at/all")
    assert not systemd_booted.is_booted()
