"""The real kernel changes vm.min_free_kbytes along with transparent huge pages: afterwards all is as before, without a trace."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes.own_settings import own_settings
from tuning_scenes import MIN_FREE, THP, steps_for

from moetuned.host.fs import RealFS
from moetuned.schema.config import Profile, Tuning
from moetuned.state import tuning
from moetuned.state.undo_journal import open_journal, read_boot_id

THP_ONLY = Tuning(profile=Profile.MOE_OFFLOAD, sysctl={f"vm.{name}": "keep" for name in (
    "dirty_background_ratio", "dirty_ratio", "overcommit_memory", "vfs_cache_pressure")})  # fmt: skip


def values(fs: RealFS) -> tuple[str, str]:
    return fs.read_text(THP), fs.read_text(MIN_FREE)


@pytest.mark.kernel
def test_huge_pages_and_the_memory_kept_free(tmp_path: Path) -> None:
    with own_settings() as fs:
        if not fs.exists(THP):
            pytest.skip("this kernel has no transparent huge pages")
        before = values(fs)
        fs.write_text(THP, "never")
        without = values(fs)[1]
        fs.write_text(THP, "madvise")
        start = values(fs)
        with open_journal(str(tmp_path / "state" / "undo.jsonl"), read_boot_id(fs)) as journal:
            tuning.apply(fs, journal, steps_for(fs, THP_ONLY, journal))
            assert values(fs)[1] == without
            (side,) = journal.held["transparent_hugepage"].beside
            assert (side.original.value, side.made and side.made.value) == (start[1].strip(), without.strip())
            (view,) = tuning.rollback(fs, journal)
            assert view.state == "restored"
            assert values(fs) == start
            if without == start[1]:
                pytest.skip("somebody has written vm.min_free_kbytes since the boot: the kernel changes it no more")
            # The kernel computed the original itself: that it is nobody's choice is as before, too.
            fs.write_text(THP, "never")
            assert values(fs)[1] == without
            fs.write_text(THP, "madvise")
        assert before[1] == start[1] or before[0] != start[0]


@pytest.mark.kernel
def test_both_are_set_and_both_come_back(tmp_path: Path) -> None:
    with own_settings() as fs:
        if not fs.exists(THP):
            pytest.skip("this kernel has no transparent huge pages")
        before = values(fs)
        wanted = Tuning(profile=Profile.MOE_OFFLOAD, sysctl={**THP_ONLY.sysctl, "vm.min_free_kbytes": 81920})
        for first in (wanted, THP_ONLY):
            with open_journal(str(tmp_path / "state" / "undo.jsonl"), read_boot_id(fs)) as journal:
                for wish in (first, wanted):
                    tuning.apply(fs, journal, steps_for(fs, wish, journal))
                assert fs.read_text(MIN_FREE) == "81920\n"
                assert {view.state for view in tuning.verify(fs, journal.held, steps_for(fs, wanted, journal))} == {
                    "applied"
                }
                tuning.rollback(fs, journal)
            assert values(fs) == before
