"""What of a backend may stand in a trace: all that parsers read, no more."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.parse.assemble import assemble
from moetuned.schema.sample import BackendIdentity, KeptCgroup, RawBackend, RawSample
from moetuned.state.trace import TraceBackend, TraceModel, TraceRecorder, read_trace
from moetuned.state.trace_privacy import Privacy
from moetuned.state.trace_writer import first_line, next_line

TRACES = pathlib.Path(__file__).parent.parent / "data" / "traces"
SECRET = "S3cr3tW0rd"
OWN, ABOVE = "/sys/fs/cgroup/user.slice/joe.slice/llama.service", "/sys/fs/cgroup/user.slice"
IDENTITY = BackendIdentity("joes-glm", 7, "http://127.0.0.1:8080/pre", OWN, 2, ("vda",), limited_above=(ABOVE,))
BACKEND = TraceBackend("joes-glm", 7, IDENTITY.url, TraceModel("/home/joe/m.gguf", 9))
SAMPLE = RawSample(
    1.0, 2.0,
    {f"{OWN}/memory.current": "5\n", f"{ABOVE}/memory.max": "9\n", "/proc/7/stat": "7 (joe) S 1 2\n", "/proc/meminfo": "MemTotal: 1 kB\n"},
    {"joes-glm": RawBackend({"/health": '{"status":"ok"}'}), "another": RawBackend({"/health": SECRET})},
)  # fmt: skip


@pytest.mark.parametrize("anonymous", [False, True])
@pytest.mark.parametrize("path", sorted(TRACES.glob("*.jsonl.gz")), ids=lambda path: path.name.split(".")[0])
def test_of_real_seconds_the_parsers_read_the_same(path: pathlib.Path, anonymous: bool) -> None:
    trace = read_trace(str(path))
    privacy = Privacy(trace.identity, anonymous=anonymous)
    for raw in trace.samples:
        before = assemble(raw, (trace.identity,))
        after = assemble(privacy.sample(raw), (privacy.identity,))
        own = msgspec.structs.replace(
            after.backends[0], name="lab", cgroup_directory=before.backends[0].cgroup_directory
        )
        assert after.machine == before.machine
        assert own == before.backends[0]


def test_names_stay_unless_it_is_to_be_anonymous() -> None:
    privacy = Privacy(IDENTITY)
    told = privacy.backend(BACKEND)
    assert (told.name, told.url, told.model) == ("joes-glm", "http://127.0.0.1:8080", BACKEND.model)
    assert told.identity == privacy.identity
    sample = privacy.sample(SAMPLE)
    assert set(sample.files) == set(SAMPLE.files)
    assert set(sample.backends) == {"joes-glm"}, "another backend's answers are not this one's"


def test_an_anonymous_one_names_no_place_and_nobody() -> None:
    privacy = Privacy(IDENTITY, anonymous=True)
    told, sample = privacy.backend(BACKEND), privacy.sample(SAMPLE)
    static = privacy.static({"/proc/7/cgroup": "0::/user.slice/joe.slice\n", "/proc/version": "Linux version 6 (joe@x)\n"}, ("/home/joe/llama-server", "-m", "/home/joe/m.gguf"), {})  # fmt: skip
    line = first_line(sample, told, static, TraceRecorder()).decode()
    assert "joe" not in line
    assert "llama.service" not in line
    assert sample.files["/sys/fs/cgroup/level1/level2/level3/memory.current"] == "5\n"
    assert sample.files["/sys/fs/cgroup/level1/memory.max"] == "9\n"
    assert told.identity is not None
    assert told.identity.limited_above == ("/sys/fs/cgroup/level1",)
    assert told.model is not None
    assert told.model.path == "/models/m.gguf"


def test_a_models_name_that_is_no_utf8() -> None:
    told = Privacy(IDENTITY).backend(TraceBackend("x", 7, None, TraceModel("/m/\udcff.gguf")))
    assert told.model is not None
    assert told.model.path == "/m/?.gguf"


PLANTED = st.recursive(
    st.just(SECRET) | st.integers(0, 9), lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["id", "prompt", "next_token", SECRET]), inner)
)  # fmt: skip


@given(
    slots=PLANTED,
    where=st.sampled_from(
        [
            "--api-key",
            "--api-key-file",
            "--hf-token",
            "--alias",
            "--prompt",
            "--chat-template",
            "-p",
            "-x",
            "--new-flag",
        ]
    ),
    joined=st.booleans(),
    reason=st.sampled_from(["!{}", "!401 {}", '{{"status":"{}"}}', '{{"error":{{"message":"{}"}}}}', "{}"]),
    anonymous=st.booleans(),
)
def test_a_secret_planted_anywhere_is_not_in_the_file(
    slots: Any, where: str, joined: bool, reason: str, anonymous: bool
) -> None:
    privacy = Privacy(IDENTITY, anonymous=anonymous)
    said = reason.format(SECRET)
    http = {
        "/slots": json.dumps([slots]),
        "/health": said,
        "/props": said,
        "/metrics": f"# {SECRET}\n{SECRET} 1\n",
        f"/{SECRET}": "1",
    }
    files = {
        "/proc/7/stat": f"7 ({SECRET}) S 1 2\n",
        "/proc/7/status": f"Name:\t{SECRET}\nState:\tS\n",
        "/proc/7/io": "read_bytes: 1\n",
    }
    raw = RawSample(1.0, 2.0, files, {"joes-glm": RawBackend(http)})
    argv = ("llama-server", "-m", "/m.gguf", *((f"{where}={SECRET}",) if joined else (where, SECRET)), SECRET)
    variables = {
        "HF_TOKEN": SECRET,
        "LLAMA_API_KEY": SECRET,
        "LLAMA_ARG_API_KEY": SECRET,
        "LLAMA_ARG_ALIAS": SECRET,
        "PATH": SECRET,
    }
    texts = {"/proc/version": f"Linux version 6 ({SECRET})\n", "/proc/swaps": f"Filename\n/{SECRET} file 1 2 3\n", "/proc/cpuinfo": f"Serial: {SECRET}\n"}  # fmt: skip
    sample = privacy.sample(raw)
    told = privacy.backend(msgspec.structs.replace(BACKEND, url=f"http://127.0.0.1:1/{SECRET}"))
    static = privacy.static(texts, argv, variables)
    written = first_line(sample, told, static, TraceRecorder()) + next_line(sample)
    assert SECRET.encode() not in written


def test_cgroups_that_are_kept_tell_nobodys_name_and_stay_apart() -> None:
    names = (
        "user.slice/joe.slice/llama.service",
        "user.slice/joe.slice/x.service",
        "joes.slice/y.service",
        "joes.slice/z.service",
    )
    kept = tuple(KeptCgroup(f"/sys/fs/cgroup/{name}", size) for size, name in enumerate(names))
    privacy = Privacy(msgspec.structs.replace(IDENTITY, kept=kept), anonymous=True)
    files = {f"{one.directory}/memory.current": f"{one.keeps_bytes}\n" for one in kept}
    sample = privacy.sample(RawSample(0.0, 0.0, files, {}))
    assert "joe" not in repr((privacy.identity, sample))
    found = {one.directory: one.keeps_bytes for one in privacy.identity.kept}
    assert len(found) == len(kept)
    assert {f"{place}/memory.current": f"{size}\n" for place, size in found.items()} == sample.files
    assert Privacy(msgspec.structs.replace(IDENTITY, kept=kept)).identity.kept == kept


def test_cgroups_that_are_kept_stay_above_one_another() -> None:
    inside = ("joe.slice", "joe.slice/llama.service", "joe.slice/x", "joe.slice/x/y", "b", "b/c")
    names = [f"/sys/fs/cgroup/{name}" for name in inside]
    kept = tuple(KeptCgroup(name, size) for size, name in enumerate(reversed(names)))
    identity = msgspec.structs.replace(IDENTITY, cgroup_directory=names[1], limited_above=(), kept=kept)
    found = Privacy(identity, anonymous=True).identity
    told = {name: each.directory for name, each in zip(reversed(names), found.kept, strict=True)}
    assert told[names[1]] == found.cgroup_directory
    above = {name: name.rpartition("/")[0] for name in names}
    assert all(told[name].rpartition("/")[0] == told.get(above[name], "/sys/fs/cgroup") for name in names)
    assert "joe" not in repr(found)
