"""Learning over a backend's life: looked at when it is loaded and when it has answered, kept, and used by the next load."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from daemon_fakes import FakeClock, HeldWorkers

from moetuned.daemon import heat_keeper as module
from moetuned.daemon.heat_keeper import HeatKeeper
from moetuned.daemon.watched import Watched
from moetuned.decide import heat
from moetuned.host.model_files import read_model
from moetuned.host.processes import ProcessIdentity
from moetuned.schema.heat import ExpertPages
from moetuned.schema.model import ByteRange
from moetuned.schema.sample import BackendHttp, BackendSample, ProcessCounters, RawResidency
from moetuned.schema.snapshot import MemoryView, WarmView
from moetuned.schema.verdict import Paging, Phase, Verdict

FULL = MemoryView("cgroup", limit_bytes=1 << 30, headroom_bytes=1 << 29, file_cache_bytes=1 << 29)


class Rig:
    """A backend whose experts are as resident as `cached` says."""

    def __init__(self, model: Path, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock, self.workers = FakeClock(), HeldWorkers()
        self.directory = str(directory / "heat")
        self.model = read_model(str(model))
        self.cached: list[int] | None = None
        self.cpu_seconds = 0.01
        self.paged_out: list[ByteRange] = []
        self.stayed: bool | None = False
        monkeypatch.setattr(module, "_see", self._see(module._see))
        monkeypatch.setattr(module, "_page_out", self._page_out)
        self.start()

    def start(self, pid: int = 10) -> None:
        """The daemon anew."""
        self.workers.jobs.clear()
        self.keeper = HeatKeeper(self.clock, self.workers, self.directory)  # type: ignore[arg-type]
        self.watched = Watched("glm", None, self.clock.now)
        self.watched.model = self.model
        self.load(pid)

    def load(self, pid: int) -> None:
        self.watched.forget_process(self.clock.now)
        self.watched.follow_process(ProcessIdentity(pid, 1), self.clock.now)
        self.watched.ready_at, self.watched.seen_loading = self.clock.now, True
        self.watched.memory = FULL
        self.read = 0
        self.be(Phase.IDLE)

    def be(self, phase: Phase, paging: Paging = Paging.STEADY) -> None:
        self.watched.verdict = Verdict("glm", self.clock.now, phase=phase, paging=paging)
        pid = 0 if self.watched.process is None else self.watched.process.pid
        self.watched.sample = BackendSample("glm", process=ProcessCounters(pid, read_bytes=self.read))

    def tick(self, seconds: float = 1.0, *, may_page_out: bool = False) -> None:
        self.clock.now += seconds
        self.keeper.tick(self.watched, self.clock.now, may_page_out=may_page_out)

    def look(self) -> None:
        """Until a look has been made and its result is there."""
        for _ in range(40):
            self.tick()
            if self.waits("looking"):
                self.workers.finish("looking", really=True)
                return
        raise AssertionError("it does not look")

    def waits(self, what: str) -> bool:
        """Whether such work was given to a lane."""
        return any(what in key for _, key, _, _ in self.workers.jobs)

    def answer(self, *cells: int) -> None:
        """A request that uses these experts."""
        assert self.cached is not None
        self.be(Phase.DECODE)
        self.tick()
        for cell in cells:
            self.read += (self.whole[cell] - self.cached[cell]) * 4096
            self.cached[cell] = self.whole[cell]
        self.be(Phase.IDLE)
        self.look()

    @property
    def whole(self) -> tuple[int, ...]:
        pages = self.watched.heat.pages if self.watched.heat is not None else None
        assert pages is not None
        return pages.whole

    @property
    def order(self) -> tuple[tuple[int, int], ...]:
        use = self.keeper.use(self.watched)
        return () if use is None else use.order

    def _see(self, real):
        def see(*arguments, **options):
            seen = real(*arguments, **options)
            pages = seen.pages
            assert pages is not None
            if self.cached is None:
                self.cached = [0] * len(pages.whole)
            pages = ExpertPages(pages.layers, pages.experts, tuple(self.cached), pages.whole)
            return msgspec.structs.replace(seen, pages=pages, cpu_seconds=self.cpu_seconds)

        return see

    def _page_out(self, _process, _paths, ranges) -> module._PagedOut:
        self.paged_out += ranges
        return module._PagedOut(stayed=self.stayed)


@pytest.fixture
def rig(small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rig:
    return Rig(small_model, tmp_path, monkeypatch)


def test_what_was_used_is_learned_kept_and_known_to_the_next_daemon(rig: Rig) -> None:
    assert rig.keeper.use(rig.watched) is None
    rig.tick()
    assert rig.keeper.is_opening(rig.watched)
    rig.workers.finish("looking", really=True)
    assert not rig.keeper.is_opening(rig.watched)
    assert rig.order == (), "what is in memory is not known to be used"
    rig.answer(1)
    assert rig.cached is not None
    rig.cached[1] = 0
    rig.answer(2)
    experts = rig.watched.heat.pages.experts  # type: ignore[union-attr]
    assert next(layer * experts + expert for layer, expert in rig.order) == 2
    rig.workers.finish("keeping", really=True)
    rig.tick(61)
    rig.workers.finish("keeping", really=True)
    rig.start(pid=11)
    assert rig.keeper.use(rig.watched) is None
    rig.look()
    assert {layer * experts + expert for layer, expert in rig.order} == {1, 2}
    use = rig.keeper.use(rig.watched)
    assert use is not None
    assert use.just_loaded
    assert not use.twice
    rig.answer()
    use = rig.keeper.use(rig.watched)
    assert use is not None
    assert not use.just_loaded


def test_nothing_is_learned_while_it_thrashes_or_while_we_warm(rig: Rig) -> None:
    rig.look()
    rig.be(Phase.DECODE, Paging.THRASHING)
    rig.tick()
    rig.answer(1)
    assert rig.order == ()
    rig.watched.warming = object()  # type: ignore[assignment]
    rig.tick()
    rig.watched.warming = None
    rig.answer(2)
    assert rig.order == ()
    rig.look()
    rig.answer(3)
    assert len(rig.order) == 1


def test_another_process_is_looked_at_at_once_and_its_answer_is_its_own(rig: Rig) -> None:
    rig.cpu_seconds = 0.5
    rig.look()
    rig.tick()
    assert rig.workers.jobs == [], "a dear look is not taken again soon"
    rig.load(11)
    assert rig.keeper.is_opening(rig.watched)
    rig.look()
    assert not rig.keeper.is_opening(rig.watched)
    rig.load(12)
    rig.tick()
    rig.tick()
    rig.load(13)
    rig.workers.finish("looking", really=True)
    assert rig.keeper.use(rig.watched) is None, "it was of the process before"


def test_looks_keep_to_their_share_of_a_core(rig: Rig) -> None:
    rig.cpu_seconds = 0.3
    rig.look()
    rig.be(Phase.DECODE)
    rig.tick()
    rig.be(Phase.IDLE)
    rig.tick(200)
    assert rig.workers.jobs == []
    rig.tick(150)
    assert rig.waits("looking")


def test_experts_of_unknown_use_are_paged_out_once_when_nobody_asks(rig: Rig) -> None:
    rig.look()
    assert rig.cached is not None
    rig.cached[5:9] = rig.whole[5:9]
    rig.load(11)
    rig.look()
    rig.tick(120, may_page_out=True)
    assert rig.paged_out == [], "nobody has asked anything yet"
    rig.answer(1)
    rig.tick(30, may_page_out=True)
    assert not rig.waits("paging")
    rig.tick(40, may_page_out=False)
    assert not rig.waits("paging")
    rig.tick(1, may_page_out=True)
    rig.workers.finish("paging", really=True)
    assert rig.paged_out
    before = len(rig.paged_out)
    for _ in range(3):
        rig.look()
        rig.tick(100, may_page_out=True)
    assert len(rig.paged_out) == before


def test_they_are_not_paged_out_again_while_the_look_after_it_lasts(rig: Rig) -> None:
    rig.look()
    assert rig.cached is not None
    rig.cached[5:9] = rig.whole[5:9]
    rig.load(11)
    rig.look()
    rig.answer(1)
    rig.tick(70)
    rig.workers.finish("looking", really=True)
    rig.tick(1, may_page_out=True)
    rig.workers.finish("paging", really=True)
    for _ in range(5):
        rig.tick(2, may_page_out=True)
    assert rig.waits("looking")
    assert not rig.waits("paging")


def test_a_model_without_experts_and_one_that_cannot_be_looked_at(rig: Rig) -> None:
    rig.tick()
    rig.workers.finish("looking", OSError("gone"))
    assert "gone" in (rig.watched.heat.unknown or "")  # type: ignore[union-attr]
    assert not rig.keeper.is_opening(rig.watched), "warming must not wait for it"
    assert rig.keeper.use(rig.watched) is None
    rig.watched.model = None
    rig.tick()
    assert rig.watched.heat is None
    assert not rig.keeper.is_opening(rig.watched)


def test_what_was_learned_is_not_kept_while_a_restore_is_not_done(rig: Rig) -> None:
    rig.look()
    rig.answer(1)
    rig.watched.warm = WarmView("paused")
    rig.workers.jobs.clear()
    rig.tick(61)
    rig.keeper.keep(rig.watched)
    assert not rig.waits("keeping")
    rig.watched.warm = WarmView("done")
    rig.tick()
    rig.workers.finish("keeping", really=True)
    rig.start(pid=11)
    rig.look()
    assert len(rig.order) == 1


def test_what_was_learned_is_kept_at_the_end_and_while_nothing_runs(rig: Rig) -> None:
    rig.look()
    rig.answer(1)
    rig.tick()
    rig.workers.finish("keeping", really=True)
    rig.answer(2)
    rig.tick()
    assert not rig.waits("keeping"), "it is not written at every look"
    rig.keeper.keep(rig.watched)
    rig.workers.finish("keeping", OSError("no room"))
    rig.watched.forget_process(rig.clock.now)
    rig.tick(61)
    rig.workers.finish("keeping", really=True)
    rig.start(pid=11)
    rig.look()
    assert len(rig.order) == 2


def test_it_looks_only_once_the_model_is_loaded(rig: Rig) -> None:
    """What is there while it loads would be taken for what loading leaves."""
    rig.watched.ready_at = None
    rig.be(Phase.LOADING)
    rig.tick(100)
    assert not rig.waits("looking")
    assert rig.keeper.is_opening(rig.watched)
    rig.watched.ready_at = rig.clock.now
    rig.be(Phase.IDLE)
    rig.tick()
    rig.workers.finish("looking", really=True)
    assert not rig.keeper.is_opening(rig.watched)
    rig.answer(3)
    assert len(rig.order) == 1, "the first request teaches already"


def test_who_is_about_to_warm_gets_a_look_that_began_after_that(rig: Rig) -> None:
    rig.look()
    rig.tick(31)
    assert rig.waits("looking")
    rig.clock.now += 0.1
    rig.keeper.renew(rig.watched)
    assert rig.keeper.is_opening(rig.watched)
    rig.workers.finish("looking", really=True)
    assert rig.keeper.is_opening(rig.watched)
    assert rig.keeper.use(rig.watched) is None
    rig.tick()
    rig.workers.finish("looking", really=True)
    assert not rig.keeper.is_opening(rig.watched)


def test_a_dear_look_is_not_made_again_for_who_is_about_to_warm(rig: Rig) -> None:
    rig.cpu_seconds = 0.5
    rig.look()
    rig.keeper.renew(rig.watched)
    assert not rig.keeper.is_opening(rig.watched)
    rig.keeper.note_warming(rig.watched)
    rig.tick()
    assert not rig.waits("looking")


def test_warming_between_two_ticks_is_nobodys_use_and_the_request_after_it_is(rig: Rig) -> None:
    rig.look()
    rig.keeper.note_warming(rig.watched)
    assert rig.cached is not None
    rig.cached[4] = rig.whole[4]
    rig.keeper.note_warming(rig.watched)
    rig.look()
    rig.answer(6)
    experts = rig.watched.heat.pages.experts  # type: ignore[union-attr]
    assert [layer * experts + expert for layer, expert in rig.order] == [6]


@pytest.mark.parametrize("disturb", ["warming", "request"])
def test_what_happens_while_a_look_lasts_counts_for_it_and_for_the_next(rig: Rig, disturb: str) -> None:
    rig.look()
    rig.tick(31)
    assert rig.waits("looking")
    assert rig.cached is not None
    if disturb == "warming":
        rig.keeper.note_warming(rig.watched)
    else:
        rig.be(Phase.DECODE)
        rig.tick()
        rig.be(Phase.IDLE)
    rig.workers.finish("looking", really=True)
    rig.read += rig.whole[4] * 4096
    rig.cached[4] = rig.whole[4]
    rig.be(Phase.IDLE)
    rig.look()
    assert len(rig.order) == (0 if disturb == "warming" else 1)


def test_a_look_that_failed_forgets_nothing(rig: Rig) -> None:
    rig.look()
    rig.keeper.note_warming(rig.watched)
    rig.tick()
    rig.workers.finish("looking", OSError("gone"))
    assert rig.cached is not None
    rig.cached[4] = rig.whole[4]
    rig.read += rig.whole[4] * 4096
    rig.tick(60)
    rig.answer()
    assert rig.order == ()


def test_a_request_between_two_ticks_is_known_by_its_tokens(rig: Rig) -> None:
    rig.look()
    for tokens in (100.0, 120.0):
        http = BackendHttp(health="ok", prompt_tokens_total=tokens, tokens_predicted_total=50.0)
        rig.watched.sample = msgspec.structs.replace(rig.watched.sample, http=http)  # type: ignore[type-var]
        rig.tick()
    assert rig.cached is not None
    rig.cached[4] = rig.whole[4]
    rig.read = rig.whole[4] * 4096
    rig.be(Phase.IDLE)
    rig.look()
    assert len(rig.order) == 1
    assert rig.watched.has_answered


def test_what_we_page_out_is_no_loss(rig: Rig) -> None:
    def remember() -> None:
        axis = msgspec.structs.replace(rig.watched.detector.paging, idle_mapped_bytes=1 << 30, resident_bytes=1 << 30)
        rig.watched.detector = msgspec.structs.replace(rig.watched.detector, paging=axis)

    def remembered() -> bool:
        axis = rig.watched.detector.paging
        return axis.idle_mapped_bytes is not None or axis.resident_bytes is not None

    rig.look()
    remember()
    rig.tick()
    assert remembered()
    done: list[bool] = []
    assert rig.keeper.page_out(rig.watched, (ByteRange(0, 0, 1 << 20),), done.append)
    rig.tick()
    assert not remembered()
    remember()
    rig.watched.fresh_residency = RawResidency(1)
    rig.clock.now += 1
    rig.workers.finish("paging", really=True)
    assert done == [True]
    assert not remembered()
    assert rig.watched.fresh_residency is None
    assert rig.watched.residency_since == rig.clock.now, "a scan that began before is out of date"
    remember()
    rig.tick()
    assert remembered()
    rig.keeper.note_warming(rig.watched)
    assert not remembered()


def test_one_that_ran_before_is_not_just_loaded(rig: Rig) -> None:
    """It has answered for all we know, so what is in memory may be in use."""
    rig.look()
    rig.answer(1)
    rig.tick()
    rig.workers.finish("keeping", really=True)
    rig.start(pid=11)
    rig.watched.seen_loading = False
    rig.look()
    use = rig.keeper.use(rig.watched)
    assert use is not None
    assert not use.just_loaded


def test_experts_that_our_first_warming_chose_are_paged_out_too(rig: Rig) -> None:
    rig.look()
    rig.keeper.note_warming(rig.watched)
    assert rig.cached is not None
    rig.cached[5:9] = rig.whole[5:9]
    rig.look()
    rig.answer(1)
    rig.tick(61, may_page_out=True)
    rig.tick(1, may_page_out=True)
    rig.workers.finish("paging", really=True)
    assert rig.paged_out


def test_what_one_pass_of_paging_out_leaves_the_next_one_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    passes: list[Sequence[ByteRange]] = []

    class Fake:
        refused = "it is locked"

        def __init__(self, _process: object, _paths: object, ranges: Sequence[ByteRange]) -> None:
            passes.append(ranges)

        def advance(self) -> bool:
            return True

    monkeypatch.setattr(module, "PageOut", Fake)
    ranges = (ByteRange(0, 0, 4096),)
    there = iter([100, 50])
    monkeypatch.setattr(module, "pages_in_memory", lambda *_: next(there))
    assert module._page_out(ProcessIdentity(1, 1), ("model",), ranges) == module._PagedOut("it is locked", stayed=False)
    assert passes == [ranges, ranges]


@pytest.mark.parametrize(
    ("before", "after", "stayed"),
    [(100, 51, True), (100, 0, False), (0, 0, False), (None, 5, None), (5, None, None)],
)
def test_whether_paging_out_did_anything_is_looked_at(
    monkeypatch: pytest.MonkeyPatch, before: int | None, after: int | None, stayed: bool | None
) -> None:
    """The kernel says that all went well also where nothing did."""

    class Fake:
        refused = None

        def __init__(self, *_: object) -> None:
            pass

        def advance(self) -> bool:
            return True

    there = iter([before, after])
    monkeypatch.setattr(module, "PageOut", Fake)
    monkeypatch.setattr(module, "pages_in_memory", lambda *_: next(there))
    assert module._page_out(ProcessIdentity(1, 1), ("model",), ()) == module._PagedOut(None, stayed)


def test_paging_out_that_does_nothing_is_told_kept_and_teaches_nothing(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    rig.look()
    assert rig.cached is not None
    rig.cached[5:9] = rig.whole[5:9]
    rig.look()
    rig.stayed = True
    done: list[bool] = []
    assert rig.keeper.page_out(rig.watched, (ByteRange(0, 0, 1 << 20),), done.append)
    rig.workers.finish("paging", really=True)
    assert done == [False], "there is no room"
    assert heat.STAYED in caplog.text
    rig.look()
    rig.read += 1 << 40
    rig.answer(1)
    assert [layer * 4 + expert for layer, expert in rig.order][:1] == [1]
    assert len(rig.order) == 1, "the cache has turned over, but what cannot leave proves nothing"
    use = rig.keeper.use(rig.watched)
    assert use is not None
    rig.watched.has_answered = False
    use = rig.keeper.use(rig.watched)
    assert use is not None
    assert not use.just_loaded, "the next plan must not count on paging out"
    rig.load(11)
    rig.look()
    use = rig.keeper.use(rig.watched)
    assert use is not None
    assert use.just_loaded, "with another process it is tried again"
    rig.tick(61)
    rig.workers.finish("keeping", really=True)
    rig.start(pid=12)
    rig.look()
    assert rig.watched.heat is not None
    assert rig.watched.heat.state is not None
    assert rig.watched.heat.state.heat.stayed


def test_what_was_learned_and_cannot_be_read_is_told_in_the_log(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.look()
    assert caplog.text == "", "nothing is kept yet, and that is no news"
    rig.answer(1)
    rig.tick()
    rig.workers.finish("keeping", really=True)
    (kept,) = Path(rig.directory).iterdir()
    kept.write_bytes(b"rubbish")
    rig.start(pid=11)
    rig.look()
    assert f"glm: {kept} is damaged" in caplog.text
    told = len(caplog.records)
    rig.look()
    assert len(caplog.records) == told


def test_another_file_of_that_name_is_told_once_and_is_no_warning(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    """Also where nothing is learned of the new one before the daemon starts again."""
    caplog.set_level(logging.INFO)
    rig.look()
    rig.answer(1)
    rig.tick()
    rig.workers.finish("keeping", really=True)
    path = Path(rig.model.identity.paths[0])
    os.utime(path, ns=(1, 1))
    rig.model = read_model(str(path))
    rig.start(pid=11)
    rig.look()
    assert [(one.levelname, one.message) for one in caplog.records] == [
        ("INFO", "glm: what was learned is of another file of that name")
    ]
    rig.tick(61)
    rig.workers.finish("keeping", really=True)
    caplog.clear()
    rig.start(pid=12)
    rig.look()
    assert caplog.text == ""
    assert rig.order == ()


def test_one_that_was_taken_over_and_counts_no_token_is_just_loaded(rig: Rig) -> None:
    """A daemon that was killed while it warmed leaves the load's tail to the next one."""
    rig.look()
    rig.answer(1)
    rig.tick()
    rig.workers.finish("keeping", really=True)
    rig.start(pid=11)
    rig.watched.seen_loading = False
    sample = rig.watched.sample
    assert sample is not None
    for tokens, just_loaded in ((0.0, True), (1.0, False)):
        http = BackendHttp(prompt_tokens_total=0.0, tokens_predicted_total=tokens)
        rig.watched.sample = msgspec.structs.replace(sample, http=http)
        rig.look()
        use = rig.keeper.use(rig.watched)
        assert use is not None
        assert use.just_loaded is just_loaded
