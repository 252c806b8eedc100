from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from moetuned.parse.assemble import assemble, backend_paths, machine_paths
from moetuned.schema.sample import BackendIdentity, KeptCgroup, RawBackend, RawResidency, RawSample, Sample

ONE = BackendIdentity("one", pid=10, cgroup_directory="/sys/fs/cgroup/one", cgroup_version=2, disks=("sda", "sdb"))
STAT = "10 (x) S 1 1 1 0 -1 0 0 0 5 0 1 1 0 0 20 0 1 0 77 1 1\n"


def sample_of(files: dict[str, str | None], identity: BackendIdentity = ONE, raw: RawBackend | None = None) -> Sample:
    return assemble(RawSample(1.0, 2.0, files, {} if raw is None else {identity.name: raw}), [identity])


def test_paths_of_the_machine_and_of_a_backend() -> None:
    assert "/proc/vmstat" in machine_paths()
    paths = backend_paths(ONE)
    assert {"/proc/10/stat", "/proc/10/io", "/sys/fs/cgroup/one/memory.events", "/sys/block/sdb/stat"} <= set(paths)
    assert len(set(paths)) == len(paths)


def test_a_backend_without_process_and_cgroup_needs_no_files() -> None:
    assert backend_paths(BackendIdentity("none")) == ()
    backend = sample_of({}, BackendIdentity("none")).backends[0]
    assert (backend.process, backend.process_gone, backend.cgroup, backend.http) == (None, True, None, None)


def test_version_1_files_are_those_of_version_1() -> None:
    identity = BackendIdentity("v1", pid=1, cgroup_directory="/sys/fs/cgroup/memory/a", cgroup_version=1)
    assert "/sys/fs/cgroup/memory/a/memory.limit_in_bytes" in backend_paths(identity)


def test_what_is_read_lands_where_it_belongs() -> None:
    files: dict[str, str | None] = {
        "/proc/10/stat": STAT,
        "/proc/10/status": "RssAnon:\t 4 kB\n",
        "/proc/10/io": "rchar: 1\nread_bytes: 9\n",
        "/sys/fs/cgroup/one/memory.current": "8192\n",
        "/sys/block/sda/stat": "1 2 3 4 5 6 7 8 9 10 11\n",
        "/proc/meminfo": "MemTotal:  8 kB\n",
    }
    residency = RawResidency(cached=3, expert_cached=2, other_cached=1)
    sample = sample_of(files, raw=RawBackend({"/health": '{"status":"ok"}'}, residency))
    backend = sample.backends[0]
    assert backend.process is not None
    assert (backend.process.read_bytes, backend.process.rss_anon_bytes) == (9, 4096)
    assert backend.cgroup is not None
    assert backend.cgroup.current_bytes == 8192
    assert backend.http is not None
    assert backend.http.health == "ok"
    assert backend.residency is not None
    assert (backend.residency.resident_bytes, backend.residency.expert_bytes) == (12288, 8192)
    assert sample.machine.disks.keys() == {"sda"}, "sdb could not be read: unknown, not zero"
    assert sample.machine.meminfo is not None
    assert sample.machine.vmstat is None


def test_gone_means_looked_for_and_not_there() -> None:
    assert sample_of({"/proc/10/stat": None}).backends[0].process_gone
    assert not sample_of({}).backends[0].process_gone
    assert not sample_of({"/proc/10/stat": "rubbish"}).backends[0].process_gone


def test_a_zombie_is_gone() -> None:
    backend = sample_of({"/proc/10/stat": STAT.replace(" S ", " Z ", 1)}).backends[0]
    assert (backend.process, backend.process_gone) == (None, True)


@given(st.data())
def test_no_text_is_an_exception(data: st.DataObject) -> None:
    paths = (*machine_paths(), *backend_paths(ONE))
    files = {path: data.draw(st.one_of(st.none(), st.text(max_size=40))) for path in paths}
    http = data.draw(st.dictionaries(st.sampled_from(["/health", "/slots", "/metrics"]), st.text(max_size=40)))
    assert sample_of(files, raw=RawBackend(http)).backends[0].name == "one"


def test_a_cgroup_that_two_are_in_is_parsed_once() -> None:
    files = {"/sys/fs/cgroup/a/memory.current": "5\n", "/sys/fs/cgroup/b/memory.current": "7\n"}
    both = [BackendIdentity(name, cgroup_directory="/sys/fs/cgroup/a", cgroup_version=2) for name in ("one", "two")]
    other = BackendIdentity("three", cgroup_directory="/sys/fs/cgroup/b", cgroup_version=2)
    one, two, three = (own.cgroup for own in assemble(RawSample(1.0, 2.0, files), [*both, other]).backends)
    assert one is two
    assert one is not None
    assert three is not None
    assert (one.current_bytes, three.current_bytes) == (5, 7)


def test_what_is_kept_is_read_once_for_all_backends() -> None:
    own, other = KeptCgroup("/sys/fs/cgroup/one", 7), KeptCgroup("/sys/fs/cgroup/b/c", 9)
    one = msgspec.structs.replace(ONE, kept=(own, other))
    two = BackendIdentity("two", kept=(own, other))
    assert "/sys/fs/cgroup/b/c/memory.current" in backend_paths(two)
    files = {
        "/sys/fs/cgroup/one/memory.current": "5\n",
        "/sys/fs/cgroup/b/c/memory.stat": "active_file 3\ninactive_file 1\n",
    }
    sample = assemble(RawSample(1.0, 2.0, files, {}), [one, two])
    assert [(each.directory, each.keeps_bytes) for each in sample.machine.kept] == [
        ("/sys/fs/cgroup/one", 7),
        ("/sys/fs/cgroup/b/c", 9),
    ]
    assert [each.memory.current_bytes for each in sample.machine.kept] == [5, None]
    assert sample.machine.kept[1].memory.reclaimable_file_bytes == 4
    assert assemble(RawSample(1.0, 2.0, {}, {}), [one, two]).machine.kept == ()
