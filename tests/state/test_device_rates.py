from __future__ import annotations

import math
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.schema.device import Pace
from moetuned.state.device_rates import FILE_NAME, MOST_DEVICES, load, save

PACE = Pace(False, 131072.0, 4.0, 1e9)


def test_what_is_kept_is_there_again(tmp_path: Path) -> None:
    directory = str(tmp_path / "state")
    assert load(directory) == {}
    save(directory, {"wwid=1": (PACE,), "wwid=2": ()})
    assert load(directory) == {"wwid=1": (PACE,)}
    assert os.listdir(directory) == [FILE_NAME]
    assert (tmp_path / "state" / FILE_NAME).stat().st_mode & 0o777 == 0o600


def test_it_is_bounded_to_the_newest(tmp_path: Path) -> None:
    directory = str(tmp_path / "state")
    save(directory, {f"wwid={number}": (PACE,) for number in range(MOST_DEVICES + 5)})
    kept = load(directory)
    assert len(kept) == MOST_DEVICES
    assert f"wwid={MOST_DEVICES + 4}" in kept


def test_a_failed_save_leaves_what_was_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = str(tmp_path / "state")
    save(directory, {"wwid=1": (PACE,)})

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("moetuned.state.device_rates.remove_durably", full)
    with pytest.raises(OSError, match="No space"):
        save(directory, {"wwid=2": (PACE,)})
    assert load(directory) == {"wwid=1": (PACE,)}
    assert os.listdir(directory) == [FILE_NAME]


def test_figures_that_cannot_be_are_left_out(tmp_path: Path) -> None:
    directory = str(tmp_path / "state")
    save(directory, {"wwid=1": (Pace(False, 1.0, 1.0, -5.0), Pace(False, 1e300, 1.0, 1.0), PACE)})
    assert load(directory) == {"wwid=1": (PACE,)}
    assert not math.isnan(PACE.bytes_per_second)


@given(content=st.binary(max_size=300) | st.sampled_from([b'{"version":2,"devices":{}}', b"[" * 100_000]))
def test_a_damaged_file_is_nothing_known(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    directory = tmp_path_factory.mktemp("state")
    (directory / FILE_NAME).write_bytes(content)
    assert load(str(directory)) == {}
