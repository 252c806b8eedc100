"""Whatever a tick reads, cut or hostile: assemble, signals and detector take it, and what is published of it can be written as JSON."""

from __future__ import annotations

import functools
import json

import machine_cases
import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from machine_cases import FILES, identity, moments

from moetuned.decide import detector, signals
from moetuned.decide.detector import DetectorSettings
from moetuned.decide.facts import BackendFacts
from moetuned.decide.memory_headroom import memory_view
from moetuned.parse.assemble import assemble
from moetuned.parse.cgroup_memory import cgroup_file_names, parse_cgroup_memory
from moetuned.parse.disk_stat import parse_disk_stat
from moetuned.parse.llama_http import parse_llama_http
from moetuned.parse.meminfo import parse_meminfo
from moetuned.parse.mountinfo import parse_mountinfo
from moetuned.parse.pressure import parse_pressure
from moetuned.parse.process import parse_process
from moetuned.parse.process_cgroup import memory_cgroup_place
from moetuned.parse.swaps import parse_swaps
from moetuned.parse.vmstat import parse_vmstat
from moetuned.schema.model import ModelLayout
from moetuned.schema.sample import BackendIdentity, RawBackend, RawResidency, RawSample, Sample

NUMBERS = (
    "0", "-1", "+1", "1.5", "1e9", "nan", "NaN", "inf", "max", "0x10", "1_000", "٣", "²", "", " ", "\0",
    str(2**53), str(2**63 - 4096), str(2**63), str(2**64 - 1), str(2**64), "9" * 20, "9" * 21, "9" * 5000,
)  # fmt: skip
PIECES = st.sampled_from(
    ["\0", "\n", "\r\n", "\x0b", "\x85", "\u2028", ")", "(", " ", ":", "=", "kB", "\udcff", "\ud800", "é"]
)
TEXTS = st.one_of(st.text(st.characters(), max_size=60), st.lists(PIECES, max_size=12).map("".join))


@functools.cache
def case_texts() -> tuple[tuple[str, str], ...]:
    """Every file of every machine case, once each."""
    return tuple(sorted({text for case in map(machine_cases.load, FILES) for text in case.files.items()}))


@functools.cache
def loaded(stem: str) -> machine_cases.MachineCase:
    return machine_cases.load(machine_cases.DIRECTORY / f"{stem}.yaml")


def parse_any(path: str, text: str) -> object:
    """What the parser of a path makes of a text."""
    name = path.rpartition("/")[2]
    if name in ("meminfo", "vmstat"):
        return parse_meminfo(text) if name == "meminfo" else parse_vmstat(text)
    if path.startswith("/proc/pressure/"):
        return parse_pressure(text)
    if path.startswith("/sys/block/"):
        return parse_disk_stat(text)
    if name == "mountinfo":
        return memory_cgroup_place("12:memory:/a\n0::/b\n", parse_mountinfo(text))
    if name == "cgroup":
        mounts = "1 2 0:3 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
        return memory_cgroup_place(text, parse_mountinfo(mounts))
    if name in ("stat", "status", "io") and path.startswith("/proc/"):
        stat = "1 (a) S 1 1 1 0 -1 0 0 0 5 0 1 1 0 0 20 0 1 0 77 1 1\n"
        given_texts = {"stat": stat, "status": None, "io": None} | {name: text}
        return parse_process(1, given_texts["stat"], given_texts["status"], given_texts["io"])
    version = 2 if name in cgroup_file_names(2) and "in_bytes" not in name else 1
    return parse_cgroup_memory(version, {name: text})


def numbers(found: object) -> list[int]:
    """All whole numbers in what was found."""
    if isinstance(found, bool) or found is None or isinstance(found, str):
        return []
    if isinstance(found, int):
        return [found]
    built = found.values() if isinstance(found, dict) else found if isinstance(found, list | tuple) else None
    if built is None:
        built = list(msgspec.to_builtins(found).values()) if isinstance(found, msgspec.Struct) else []
    return [number for value in built for number in numbers(value)]


@pytest.mark.parametrize("path", sorted({path for path, _ in case_texts()}))
def test_text_cut_anywhere_gives_what_the_whole_gives_or_less(path: str) -> None:
    for text in {text for other, text in case_texts() if other == path}:
        whole = parse_any(path, text)
        for length in range(len(text)):
            cut = parse_any(path, text[:length])
            if path.endswith(("/cgroup", "/mountinfo")):
                continue  # one line less is another machine
            if isinstance(cut, msgspec.Struct) and isinstance(whole, msgspec.Struct):
                assert fits(msgspec.to_builtins(cut), msgspec.to_builtins(whole)), (path, text[:length][-80:])


def fits(cut: object, whole: object) -> bool:
    """Whether each value of `cut` is unknown or that of `whole`."""
    if isinstance(cut, dict) and isinstance(whole, dict):
        return all(fits(value, whole.get(key)) for key, value in cut.items())
    return cut is None or cut == whole


@given(st.data())
def test_lines_swapped_doubled_and_with_other_numbers(data: st.DataObject) -> None:
    path, text = data.draw(st.sampled_from(case_texts()))
    lines = text.splitlines(keepends=True)
    chosen = data.draw(st.lists(st.integers(0, len(lines) - 1), max_size=2 * min(len(lines), 20)))
    mixed = [lines[at] for at in chosen]
    for at in data.draw(st.lists(st.integers(0, max(0, len(mixed) - 1)), max_size=6)):
        if mixed:
            words = mixed[at].split(" ")
            words[data.draw(st.integers(0, len(words) - 1))] = data.draw(st.one_of(st.sampled_from(NUMBERS), PIECES))
            mixed[at] = " ".join(words)
    found = parse_any(path, "".join(mixed))
    assert all(0 <= number < 1 << 72 for number in numbers(found))


@given(st.sampled_from(sorted({path for path, _ in case_texts()})), TEXTS)
@example("/proc/812/stat", "812 (a) b) (c\n) S) S " + "9" * 20)
@example("/proc/812/stat", "812 ()\0) \0 1")
@example("/proc/812/cgroup", "0::/\n0::/../..\n")
@example("/proc/self/mountinfo", "1 2 ²:3 / / rw - cgroup2 a rw\n1 2 " + "9" * 5000 + ":3 / / rw - cgroup2 a rw\n")
def test_any_text(path: str, text: str) -> None:
    parse_any(path, text)
    parse_swaps(text)


@pytest.mark.parametrize(
    "comm", [")", "a) b", "a\nb) S 1", "(((", "))))", "\0", "\udcff", "x" * 64, ") R 1 1 1 1 1 1 1"]
)
def test_a_command_name_hides_nothing(comm: str) -> None:
    tail = " 1 1 1 0 -1 0 0 0 5 0 1 1 0 0 20 0 1 0 77 1 1\n"
    found = parse_process(7, f"7 ({comm}) S{tail}", None, None)
    assert found is not None
    assert (found.state, found.major_faults, found.start_ticks) == ("S", 5, 77)


class Counted(str):
    """Text that counts the characters that the parsers' way of searching it goes through, at most."""

    __slots__ = ()
    work = 0

    def find(self, *given_to: object) -> int:  # type: ignore[override]
        start = given_to[1] if len(given_to) > 1 else 0
        found = super().find(*given_to)  # type: ignore[arg-type]
        assert isinstance(start, int)
        Counted.work += (len(self) if found < 0 else found) - start
        return found


@pytest.mark.parametrize("parse", [parse_meminfo, parse_vmstat, parse_pressure], ids=lambda one: one.__name__)
@pytest.mark.parametrize("unit", ["a", "some ", "\n", "MemTotal:\n", "pswpin x\n"])
def test_twice_the_text_is_at_most_twice_the_work(parse: object, unit: str) -> None:
    assert callable(parse)
    work = []
    for length in (1 << 16, 1 << 17, 1 << 18):
        Counted.work = 0
        parse(Counted(unit * (length // len(unit))))
        work.append(Counted.work)
    assert work[1] <= 2.1 * work[0]
    assert work[2] <= 2.1 * work[1]


LONG = 10 << 20


@pytest.mark.parametrize(
    "unit", ["1", " ", ")", "(", "\n", "a ", "/..", ":", "\\040", "\\", "0::/a\n", "1 2 3:4 / / rw - x y z\n"]
)
def test_ten_megabytes_of_anything_end(unit: str) -> None:
    """In parsers that walk a text once; a quadratic one would take hours. (The sampler hands on 1 MiB at most.)"""
    text = unit * (LONG // len(unit))
    for path in ("/proc/meminfo", "/proc/1/stat", "/proc/1/status", "/proc/pressure/io", "/sys/block/a/stat"):
        parse_any(path, text)
    for path in ("/x/memory.stat", "/x/memory.max", "/x/memory.limit_in_bytes"):
        parse_any(path, text)
    shorter = text[: 1 << 20]
    for path in ("/proc/1/cgroup", "/proc/self/mountinfo"):
        parse_any(path, shorter)
    parse_swaps(shorter)
    parse_llama_http({"/slots": shorter, "/health": shorter, "/metrics": text, "/props": shorter})


def tick(raws: list[RawSample], own: BackendIdentity, facts: BackendFacts) -> None:
    """What a daemon does with these moments, up to the JSON of it."""
    samples: list[Sample] = []
    state, limits = detector.initial(own.name), DetectorSettings()
    for raw in raws:
        samples.append(assemble(raw, [own]))
        derived = signals.derive(samples, own.name, facts)
        step = detector.step(state, derived, samples[-1].backends[0], facts, limits)
        state = step.state
        view = memory_view(samples[-1].machine, samples[-1].backends[0])
        json.loads(msgspec.json.encode((derived, step.verdict, view)))


@given(st.data())
def test_a_tick_of_a_machine_with_hostile_files(data: st.DataObject) -> None:
    case = loaded(data.draw(st.sampled_from([path.stem for path in FILES])))
    own, raws = identity(case), moments(case)
    paths = sorted(raws[0].files)
    for raw in raws:
        for path in data.draw(st.lists(st.sampled_from(paths), max_size=4)):
            text = raw.files[path] or ""
            kind = data.draw(st.sampled_from(["none", "cut", "number", "text"]))
            if kind == "cut":
                raw.files[path] = text[: data.draw(st.integers(0, len(text)))]
            elif kind == "number" and text:
                words = text.split(" ")
                words[data.draw(st.integers(0, len(words) - 1))] = data.draw(st.sampled_from(NUMBERS)) + "\n"
                raw.files[path] = " ".join(words)
            else:
                raw.files[path] = None if kind == "none" else data.draw(TEXTS)
    layout = ModelLayout(
        layers=4,
        experts=8,
        experts_used=2,
        expert_slice_bytes=1 << 20,
        expert_bytes=96 << 20,
        other_bytes=4 << 20,
        active_expert_bytes=24 << 20,
    )
    facts = BackendFacts(
        model_bytes=100 << 20,
        layout=data.draw(st.sampled_from([None, layout])),
        disks=case.disks,
        page_bytes=case.page_bytes,
    )
    tick(raws, own, facts)


EXTREMES = st.sampled_from(["0", "7", *map(str, (2**53, 2**60 - 1, 2**62 - 1, 2**63, 2**64 - 1, 2**64, 10**20 - 1))])


@settings(max_examples=400)
@given(st.lists(EXTREMES, min_size=8, max_size=8), st.lists(EXTREMES, min_size=8, max_size=8), st.integers(0, 2**53))
def test_a_tick_whose_numbers_are_all_extreme(drawn: list[str], others: list[str], cached: int) -> None:
    """Sums and rates of whatever passes for a number still are numbers that JSON can hold."""
    own = BackendIdentity("b", pid=1, cgroup_directory="/c", cgroup_version=2, disks=("d",), limited_above=("/",))
    a, b, c, d, e, f, g, h = drawn
    files: dict[str, str | None] = {
        "/proc/meminfo": "".join(
            f"{key}: {number} kB\n"
            for key, number in zip(
                ["MemTotal", "Cached", "AnonPages", "Shmem", "SwapTotal", "SwapFree", "SUnreclaim", "Unevictable"],
                drawn,
                strict=True,
            )
        )
        + f"Buffers: {a} kB\nActive(file): {b} kB\nInactive(file): {c} kB\nHugePages_Total: {d}\nHugepagesize: {e} kB\nMlocked: {f} kB\n",
        "/proc/vmstat": f"pswpin {a}\npswpout {b}\nworkingset_refault_file {c}\npgmajfault {d}\n",
        "/proc/pressure/memory": f"some total={a}\nfull total={b}\n",
        "/proc/1/stat": f"1 (x) S 1 1 1 0 -1 0 0 0 {a} 0 {b} {c} 0 0 20 0 1 0 77 1 1\n",
        "/proc/1/status": f"RssAnon: {d} kB\nVmSwap: {e} kB\nRssFile: {f} kB\n",
        "/proc/1/io": f"x: 1\nread_bytes: {g}\n",
        "/sys/block/d/stat": " ".join([*drawn, *drawn]) + "\n",
    }
    for directory in ("/c", "/"):
        files |= {
            f"{directory}/memory.current": f"{others[0]}\n",
            f"{directory}/memory.max": f"{others[1]}\n",
            f"{directory}/memory.swap.current": f"{others[2]}\n",
            f"{directory}/memory.swap.max": f"{d}\n",
            f"{directory}/memory.stat": f"anon {e}\nfile {f}\nshmem {g}\nactive_file {h}\ninactive_file {a}\nslab_reclaimable {b}\n"
            f"workingset_refault_file {c}\nworkingset_refault_anon {d}\nunevictable {e}\nkernel {f}\n",
        }
    rest = {"b": RawBackend(residency=RawResidency(cached=cached, expert_cached=cached // 2, other_cached=cached // 3))}
    zero = {
        path: None if text is None else text.translate(str.maketrans("123456789", "000000000"))
        for path, text in files.items()
    }
    tick([RawSample(1.0, 2.0, zero, rest), RawSample(2.0, 3.0, files, rest)], own, BackendFacts(disks=("d",)))
