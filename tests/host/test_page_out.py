"""Paging a process's mapping of files out."""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import json
import mmap
import os
import select
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest
from fakes.cold_file import make_cold_file
from fakes.own_cgroup import own_cgroup
from fakes.server_process import http, started
from hypothesis import given
from hypothesis import strategies as st

from moetuned.host import page_out
from moetuned.host.cgroup import add_process
from moetuned.host.page_cache import PAGE_BYTES, ResidencyScan, resident_pages
from moetuned.host.page_out import (
    IOV_MAX,
    Advice,
    Mapping,
    PageOut,
    file_mappings,
    pages_in_memory,
    process_madvise,
    spans_of,
)
from moetuned.host.processes import ProcessIdentity, identify
from moetuned.schema.model import ByteRange

P = PAGE_BYTES
MIB = 1 << 20
SIZE = 4 * MIB
JUST_READ = 2 * 31
"""Pages that may wait in the batches of two CPUs, where paging out passes them over (FOLIO_BATCH_SIZE)."""

MAPS = """\
558800000000-558800021000 r--p 00000000 fd:01 1234                       /usr/bin/llama-server
7f0000000000-7f0000400000 r--s 00002000 fd:01 5678                       /models/a model.gguf (deleted)
7f0000400000-7f0000500000 rw-p 00000000 00:00 0
7f0000500000-7f0000600000 r--s 10000000000 103:00003 18446744073709551615 /models/b.gguf
7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0                          [stack]
rubbish
7f00-7e00 r--s 00000000 fd:01 5678 /backwards
"""


def test_mappings_of_files_are_found() -> None:
    assert file_mappings(MAPS) == (
        Mapping(0x558800000000, 0x558800021000, 0, os.makedev(0xFD, 1), 1234),
        Mapping(0x7F0000000000, 0x7F0000400000, 0x2000, os.makedev(0xFD, 1), 5678),
        Mapping(0x7F0000500000, 0x7F0000600000, 0x10000000000, os.makedev(0x103, 3), (1 << 64) - 1),
    )


@pytest.mark.parametrize("sign", ["\u2028", "\x85", "\r", "\x0c", "\x1e"])
def test_a_file_whose_name_looks_like_another_line_is_one_file(sign: str) -> None:
    text = f"7f10-7f20 r--p 00000000 08:01 5 /tmp/a{sign}7f00-7f01 r--p 00000000 08:01 9 /etc/b\n"
    assert [one.inode for one in file_mappings(text)] == [5]


def test_our_own_maps_are_understood() -> None:
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
        text = file.read()
    with_a_file = [line for line in text.splitlines() if line.split()[4] != "0"]
    assert len(with_a_file) == len(file_mappings(text)) > 0


@given(st.text(alphabet="0123456789abcdef-: rs\n/", max_size=200))
def test_no_text_of_maps_does_harm(text: str) -> None:
    assert all(one.start < one.end for one in file_mappings(text))


def test_only_whole_pages_of_a_range_are_paged_out() -> None:
    mapping = Mapping(0x10000000, 0x10000000 + 8 * P, 2 * P, 0, 1)
    assert spans_of([mapping], [(0, 4 * P)]) == ((0x10000000, 2 * P),)
    assert spans_of([mapping], [(3 * P + 1, 2 * P)]) == ((0x10000000 + 2 * P, P),)
    assert spans_of([mapping], [(3 * P + 1, P)]) == ()
    assert spans_of([mapping], [(9 * P, 5 * P)]) == ((0x10000000 + 7 * P, P),)
    half = P // 2
    assert spans_of([mapping], [(3 * P, half), (3 * P + half, half)]) == ((0x10000000 + P, P),)


@given(
    mappings=st.lists(st.tuples(st.integers(0, 6), st.integers(1, 6)), max_size=3),
    ranges=st.lists(st.tuples(st.integers(0, 10 * P), st.integers(0, 4 * P)), max_size=5),
)
def test_spans_are_the_mapped_pages_that_lie_in_ranges(
    mappings: list[tuple[int, int]], ranges: list[tuple[int, int]]
) -> None:
    shown = [
        Mapping(base, base + pages * P, offset * P, 0, 1)
        for base, (offset, pages) in zip((index << 32 for index in range(1, 9)), mappings, strict=False)
    ]
    expected = set()
    for mapping in shown:
        for address in range(mapping.start, mapping.end, P):
            offset = mapping.offset + address - mapping.start
            if _is_covered(offset, offset + P, ranges):
                expected.add(address)
    spans = spans_of(shown, ranges)
    found = [address for start, length in spans for address in range(start, start + length, P)]
    assert sorted(found) == sorted(expected)


def _is_covered(start: int, end: int, ranges: list[tuple[int, int]]) -> bool:
    for offset, length in sorted(ranges):
        if offset <= start < offset + length:
            start = offset + length
    return start >= end


@pytest.fixture
def path(tmp_path: Path) -> str:
    return make_cold_file(tmp_path / "model.gguf", SIZE)


READER = """
import mmap, os, sys
file = os.open(sys.argv[1], os.O_RDONLY)
shown = mmap.mmap(file, 0, mmap.MAP_SHARED, mmap.PROT_READ)
shown.madvise(mmap.MADV_RANDOM)
for line in sys.stdin:
    print(hash(bytes(shown[::4096])), flush=True)
"""


class Reader:
    """Another process that maps a file and reads a byte of each page when asked."""

    def __init__(self, path: str, script: str = READER) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", script, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONHASHSEED": "0"},
        )  # fmt: skip

    def read(self) -> str:
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.process.stdout.readline()

    def identity(self) -> ProcessIdentity:
        found = identify(self.process.pid)
        assert found is not None
        return found


@contextlib.contextmanager
def reader(path: str, script: str = READER) -> Iterator[Reader]:
    one = Reader(path, script)
    try:
        yield one
    finally:
        one.process.kill()
        one.process.communicate()


def resident(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return resident_pages(descriptor, 0, SIZE)
    finally:
        os.close(descriptor)


def done(work: PageOut) -> PageOut:
    while not work.advance():
        pass
    return work


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: pages another process's memory out")


@pytest.mark.kernel
@needs_root
def test_a_range_is_paged_out_and_the_process_reads_the_same_again(path: str) -> None:
    with reader(path) as other:
        before = other.read()
        assert sum(resident(path)) == SIZE // P
        work = done(PageOut(other.identity(), [path], [ByteRange(0, MIB + 1, MIB)]))
        assert work.refused is None
        assert work.mapped_bytes == MIB - P
        there = resident(path)
        first = MIB // P
        assert sum(there[first + 1 : 2 * first]) <= JUST_READ
        assert all(there[: first + 1])
        assert all(there[2 * first :])
        assert other.read() == before
        assert sum(resident(path)) == SIZE // P


@pytest.mark.kernel
@needs_root
def test_what_another_process_has_mapped_too_stays(path: str) -> None:
    with reader(path) as other, reader(path) as third:
        other.read(), third.read()
        work = done(PageOut(other.identity(), [path], [ByteRange(0, 0, SIZE)]))
        assert (work.refused, work.mapped_bytes) == (None, SIZE)
        assert sum(resident(path)) == SIZE // P


@pytest.mark.kernel
@needs_root
@pytest.mark.parametrize("unmapped", [True, False])
def test_what_is_cached_without_being_mapped_is_dropped_on_request(path: str, unmapped: bool) -> None:
    with reader(path) as other:
        Path(path).read_bytes()
        assert sum(resident(path)) == SIZE // P
        done(PageOut(other.identity(), [path], [ByteRange(0, 0, 2 * MIB)], unmapped=unmapped))
        assert sum(resident(path)[: 2 * MIB // P]) == (0 if unmapped else 2 * MIB // P)
        assert sum(resident(path)[2 * MIB // P :]) == 2 * MIB // P


@pytest.mark.kernel
@needs_root
def test_cold_leaves_pages_where_they_are(path: str) -> None:
    with reader(path) as other:
        other.read()
        work = done(PageOut(other.identity(), [path], [ByteRange(0, 0, SIZE)], Advice.COLD))
        assert (work.refused, work.mapped_bytes) == (None, SIZE)
        assert sum(resident(path)) == SIZE // P


@pytest.mark.kernel
@needs_root
def test_locked_memory_is_refused_in_a_sentence(path: str) -> None:
    script = READER.replace(
        "for line",
        "import ctypes\n"
        "start = next(int(one.split('-')[0], 16) for one in open('/proc/self/maps') if sys.argv[1] in one)\n"
        "assert ctypes.CDLL(None).mlock(ctypes.c_void_p(start), ctypes.c_size_t(1 << 20)) == 0\n"
        "for line",
    )
    with reader(path, script) as other:
        other.read()
        work = done(PageOut(other.identity(), [path], [ByteRange(0, 0, SIZE)]))
        assert "mlock" in (work.refused or "")
        there = resident(path)
        assert all(there[: MIB // P])
        assert sum(there[MIB // P :]) <= JUST_READ
        assert work.mapped_bytes == SIZE - MIB


@pytest.mark.kernel
@needs_root
def test_a_file_of_the_same_name_that_the_process_has_not_mapped_is_left_alone(path: str) -> None:
    with reader(path) as other:
        other.read()
        os.rename(path, path + ".old")
        shutil.copyfile(path + ".old", path)
        work = done(PageOut(other.identity(), [path], [ByteRange(0, 0, SIZE)], unmapped=False))
        assert "has not mapped" in (work.refused or "")
        assert work.mapped_bytes == 0
        assert sum(resident(path + ".old")) == SIZE // P


@pytest.mark.kernel
@needs_root
def test_overlayfs_whose_maps_print_another_inode(path: str, tmp_path: Path) -> None:
    if shutil.which("unshare") is None:
        pytest.skip("needs unshare to mount an overlay that nobody else sees")
    for name in ("lower", "upper", "work", "merged"):
        (tmp_path / name).mkdir()
    shutil.move(path, tmp_path / "lower" / "model.gguf")
    mount = f"mount -t overlay overlay -o lowerdir={tmp_path}/lower,upperdir={tmp_path}/upper,workdir={tmp_path}/work {tmp_path}/merged"
    script = (
        "import mmap, os, sys\n"
        "from moetuned.host.page_out import PageOut\n"
        "from moetuned.host.processes import identify\n"
        "from moetuned.schema.model import ByteRange\n"
        "from moetuned.host.page_cache import resident_pages\n"
        "file = os.open(sys.argv[1], os.O_RDONLY)\n"
        "shown = mmap.mmap(file, 0, mmap.MAP_SHARED, mmap.PROT_READ)\n"
        "bytes(shown[::4096])\n"
        "work = PageOut(identify(os.getpid()), [sys.argv[1]], [ByteRange(0, 0, 4 << 20)])\n"
        "while not work.advance(): pass\n"
        "print(work.mapped_bytes, work.refused, sum(resident_pages(file, 0, 4 << 20)))\n"
    )
    inside = ["unshare", "-m", "sh", "-c", f'{mount} || exit 77; exec "$@"', "sh", sys.executable, "-c", script]
    answer = subprocess.run([*inside, f"{tmp_path}/merged/model.gguf"], capture_output=True, text=True, check=False)
    if answer.returncode == 77:
        pytest.skip(f"no overlayfs here: {answer.stderr}")
    assert answer.stdout == f"{SIZE} None 0\n", answer.stderr


@pytest.mark.kernel
@needs_root
def test_who_may_not_write_the_file_is_told_so_instead_of_nothing_happening(path: str) -> None:
    script = (
        "import mmap, os, sys\n"
        "from moetuned.host.page_out import PageOut\n"
        "from moetuned.host.processes import identify\n"
        "from moetuned.schema.model import ByteRange\n"
        "file = os.open(sys.argv[1], os.O_RDONLY)\n"
        "os.setresuid(65534, 65534, 65534)\n"
        "import ctypes; ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)\n"
        "shown = mmap.mmap(file, 0, mmap.MAP_SHARED, mmap.PROT_READ)\n"
        "bytes(shown[::4096])\n"
        "work = PageOut(identify(os.getpid()), [f'/proc/self/fd/{file}'], [ByteRange(0, 0, 4 << 20)], unmapped=False)\n"
        "while not work.advance(): pass\n"
        "print(work.mapped_bytes, work.refused)\n"
    )
    os.chmod(path, 0o644)
    answer = subprocess.run([sys.executable, "-c", script, path], capture_output=True, text=True, check=False)
    assert answer.stdout.startswith("0 the kernel pages"), answer.stderr
    assert sum(resident(path)) == SIZE // P


def test_a_process_that_has_ended_is_a_sentence(path: str) -> None:
    child = subprocess.Popen(["true"])
    child.wait()
    work = done(PageOut(ProcessIdentity(child.pid, 1), [path], [ByteRange(0, 0, SIZE)]))
    assert "has ended" in (work.refused or "")


def test_another_process_with_that_pid_is_not_touched(path: str) -> None:
    work = done(PageOut(ProcessIdentity(os.getpid(), 1), [path], [ByteRange(0, 0, SIZE)]))
    assert "has ended" in (work.refused or "")
    assert work.mapped_bytes == 0


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSYS, "Linux 5.10"),
        (errno.EPERM, "CAP_SYS_NICE"),
        (errno.EIO, "Input/output"),
        (errno.ESRCH, "has ended"),
    ],
)
def test_what_the_kernel_refuses_is_a_sentence(
    path: str, monkeypatch: pytest.MonkeyPatch, number: int, words: str
) -> None:
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ):

        def refuse(*_: object) -> int:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(page_out, "process_madvise", refuse)
        own = identify(os.getpid())
        assert own is not None
        before = len(os.listdir("/proc/self/fd"))
        work = done(PageOut(own, [path], [ByteRange(0, 0, SIZE)]))
        assert words in (work.refused or "")
        assert work.mapped_bytes == 0
        assert len(os.listdir("/proc/self/fd")) == before


@contextlib.contextmanager
def own_mapping(path: str) -> Iterator[ProcessIdentity]:
    own = identify(os.getpid())
    assert own is not None
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ):
        yield own


def test_a_process_that_ends_while_its_maps_are_read_is_left_alone(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its pid may be another process's by then."""
    monkeypatch.setattr(page_out.ProcessHandle, "ended", lambda _self: True)
    with own_mapping(path) as own:
        work = done(PageOut(own, [path], [ByteRange(0, 0, SIZE)]))
    assert (work.refused, work.mapped_bytes) == ("the backend has ended", 0)


@pytest.mark.kernel
@needs_root
def test_a_file_is_known_by_stat_where_maps_prints_other_numbers(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """btrfs: maps prints the device of the whole file system, stat(2) that of the subvolume."""
    real = file_mappings
    monkeypatch.setattr(
        page_out,
        "file_mappings",
        lambda maps: tuple(msgspec.structs.replace(one, device=one.device + 1) for one in real(maps)),
    )
    with own_mapping(path) as own:
        work = done(PageOut(own, [path], [ByteRange(0, 0, SIZE)]))
    assert (work.refused, work.mapped_bytes) == (None, SIZE)


def test_calls_are_of_bounded_size_and_pause(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []

    def take(_descriptor: int, spans: Sequence[tuple[int, int]], _advice: Advice) -> int:
        asked.append((len(spans), sum(length for _, length in spans)))
        return asked[-1][1]

    monkeypatch.setattr(page_out, "process_madvise", take)
    monkeypatch.setattr(page_out, "PIECE_BYTES", MIB)
    monkeypatch.setattr(page_out, "IOV_MAX", 100)
    own = identify(os.getpid())
    assert own is not None
    now = [0.0]

    def clock() -> float:
        now[0] += 0.01
        return now[0]

    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ):
        every_other = [ByteRange(0, at, P) for at in range(0, SIZE // 2, 2 * P)]
        ranges = [*every_other, ByteRange(0, SIZE // 2, SIZE // 2)]
        work = PageOut(own, [path], ranges, unmapped=False, clock=clock)
        turns = 1
        while not work.advance():
            turns += 1
    assert all(spans <= 100 and size <= MIB for spans, size in asked)
    assert sum(size for _, size in asked) == work.mapped_bytes == SIZE // 2 + SIZE // 4
    assert turns == len(asked) // 2 + 1
    abandoned = PageOut(own, [path], ranges)
    before = len(os.listdir("/proc/self/fd"))
    abandoned.advance(0.0)
    abandoned.close()
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.kernel
@needs_root
def test_more_spans_than_one_call_takes(path: str) -> None:
    with reader(path) as other:
        other.read()
        count = SIZE // P // 2
        work = done(PageOut(other.identity(), [path], [ByteRange(0, 2 * index * P, P) for index in range(count)]))
        assert (work.refused, work.mapped_bytes) == (None, count * P)
        assert sum(resident(path)[::2]) <= JUST_READ
        assert all(resident(path)[1::2])
    own = os.pidfd_open(os.getpid())
    try:
        with pytest.raises(OSError, match=os.strerror(errno.EINVAL)):
            process_madvise(own, [(0, P)] * (IOV_MAX + 1), Advice.COLD)
    finally:
        os.close(own)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def is_healthy(url: str) -> bool:
    try:
        return http(url + "/health")[0] == 200
    except OSError:
        return False


def cached_bytes(path: Path) -> int:
    scan = ResidencyScan([str(path)])
    while not scan.advance():
        pass
    assert scan.result is not None, scan.unknown
    return scan.result.cached * P


@pytest.mark.kernel
@pytest.mark.backend
@needs_root
@pytest.mark.skipif(importlib.util.find_spec("xllamacpp") is None, reason="the wheel xllamacpp is not installed")
def test_a_real_llama_cpp_answers_the_same_afterwards(tmp_path: Path) -> None:
    model = tmp_path / "model.gguf"
    subprocess.run(
        [sys.executable, "-m", "moetuned.simulator", "make-model", str(model), "--size", "48M"],
        check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    whole = model.stat().st_size
    ask = {"prompt": "a b c d", "n_predict": 8, "temperature": 0, "cache_prompt": False, "ignore_eos": True}
    flags = ("-m", str(model), "-c", "512", "-np", "1", "-t", "1", "--no-repack", "--cache-ram", "0")
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with own_cgroup() as group, started("moetuned.xllamacpp_server", *flags, "--port", str(port)) as server:
        add_process(group, server.process.pid)
        while not is_healthy(url):
            assert server.process.poll() is None, "it ended"
            select.select([], [], [], 0.05)
        before = json.loads(http(url + "/completion", ask)[1])["content"]
        own = identify(server.process.pid)
        assert own is not None
        mapped_before = server.status("RssFile")
        assert cached_bytes(model) == pytest.approx(whole, rel=0.05)
        work = done(PageOut(own, [str(model)], [ByteRange(0, 0, whole)]))
        assert work.refused is None
        assert cached_bytes(model) <= whole * 0.02
        assert server.status("RssFile") < mapped_before - whole * 0.8
        assert json.loads(http(url + "/completion", ask)[1])["content"] == before
        assert server.process.poll() is None


def test_pages_of_ranges_are_counted_whole_and_once(path: str) -> None:
    with open(path, "rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        os.pread(file.fileno(), 3 * P, 4 * P)
    assert pages_in_memory([path], [ByteRange(0, 0, SIZE)]) == 3
    assert pages_in_memory([path], [ByteRange(0, 4 * P + 1, 2 * P), ByteRange(0, 4 * P, P)]) == 2
    assert pages_in_memory([path], [ByteRange(0, 4 * P + 1, P)]) == 0
    assert pages_in_memory([path], []) == 0
    assert pages_in_memory([path + ".gone"], [ByteRange(0, 0, P)]) is None


@pytest.mark.kernel
@needs_root
def test_a_page_out_that_did_nothing_is_seen_by_what_is_in_memory(path: str) -> None:
    ranges = [ByteRange(0, 0, SIZE)]
    with reader(path) as other:
        other.read()
        with reader(path) as third:
            third.read()
            done(PageOut(other.identity(), [path], ranges))
            assert pages_in_memory([path], ranges) == SIZE // P
        done(PageOut(other.identity(), [path], ranges))
        assert (pages_in_memory([path], ranges) or 0) <= JUST_READ
