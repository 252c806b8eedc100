import msgspec
import pytest

from moetuned.parse.config_backend_check import check_backends, flag_value
from moetuned.schema.config import Config


def found(*backends, **sections):
    config = msgspec.convert({"backends": list(backends), **sections}, Config)
    return [f"{problem.severity} {problem}" for problem in check_backends(config)]


def supervised(*command, name="a", relief="observe", **keys):
    process = {key: keys.pop(key) for key in ("cgroup", "directory", "log", "environment") if key in keys}
    backend = {"name": name, "supervise": {"by": "process", "command": list(command), **process}, **keys}
    return found(backend, relief={"mode": relief})


ACT = {"relief": "act"}


@pytest.mark.parametrize(
    ("command", "keys", "expected"),
    [
        (["s", "-m", "{model}"], {}, "error backends[0].supervise.command: '{model}': is used, but backends[0].model is"),
        (["s", "{contxt}"], {}, "'{contxt}': is no placeholder; did you mean {context}?"),
        (["s", "${HOME}/x"], {}, "no shell reads the command"),
        (["s", "{prompt_cache_mib}"], {}, "backends[0].prompt_cache_mib is not set; write e.g. 2048"),
        (["s"], {"prompt_cache_mib": 5}, "warning backends[0].prompt_cache_mib: 5: has no effect"),
        (["s", "{slots}"], {}, "backends[0].slots is not set; write e.g. 1"),
        (["s", "{checkpoints}"], {}, "backends[0].checkpoints is not set; write e.g. 4"),
        (["s", "{cache_type}"], {}, "backends[0].cache_type is not set; write e.g. f16"),
        (["s"], {"slots": 2}, "warning backends[0].slots: 2: has no effect"),
        (["s", "{slots}", "{cache_type}"], {"slots": 2, "cache_type": "f16", **ACT}, "one slot and quantise the KV cache"),
        (["s"], {"model": "/m"}, "warning backends[0].supervise.command: does not use {model}"),
        (["s"], {"model": "m"}, "error backends[0].model: 'm': must be an absolute path"),
        (["s", "-c", "4096"], ACT, "error backends[0].supervise.command: has no {context}, but relief.mode is act"),
        (["s", "-c", "4096"], ACT, "write {context} in place of 4096, or set context.minimum"),
        (["s"], ACT, 'add -c and "{context}"'),
        (["s", "{prompt_cache_mib}"], {"prompt_cache_mib": 5, **ACT}, "relief can only shrink the prompt cache"),
        (["s"], {"context": {"preferred": 4096}}, "warning backends[0].supervise.command: has no {context}"),
        ([" "], {}, "error backends[0].supervise.command[0]: ' ': must name a program"),
        (["s -m x"], {}, "error backends[0].supervise.command[0]: 's -m x': holds more than the program"),
        (["./s"], {}, "must be a plain name or an absolute path"),
        (["s", "-c 4096"], {}, "warning backends[0].supervise.command[1]: '-c 4096': is one argument with a blank"),
        (["s"], {"cgroup": "/sys/fs/cgroup"}, "error backends[0].supervise.cgroup"),
        (["s"], {"cgroup": "/tmp/x"}, "must be a directory below /sys/fs/cgroup"),
        (["s"], {"cgroup": "/sys/fs/cgroup/a/../../../../etc"}, "must not hold . or .."),
        (["s"], {"cgroup": "/sys/fs/cgroupx/a"}, "must be a directory below"),
        (["s"], {"directory": "models"}, "error backends[0].supervise.directory: 'models': must be an absolute"),
        (["s"], {"log": "x.log"}, "error backends[0].supervise.log: 'x.log': must be an absolute path"),
        (["s"], {"environment": {"A=B": "1"}}, "is no name of an environment variable"),
        (["s", "--port", "81"], {"url": "http://localhost:80"}, "'--port 81': is not the port of backends[0].url"),
        (["s", "--port=81"], {"url": "http://localhost"}, "is not the port of backends[0].url"),
        (["s"], {"context": {"preferred": 256, "minimum": 512}}, "error backends[0].context.minimum: 512: must not be"),
        (["s"], {"memory_min": "much"}, "error backends[0].memory_min: 'much' is no size"),
        (["s"], {"memory_min": "8GiB", "memory_low": "8192MiB"}, "warning backends[0].memory_low: '8192MiB': is not more than memory_min"),
        (["s"], {"memory_min": 4096, "memory_low": 0}, "warning backends[0].memory_low: 0: is not more than memory_min (4096)"),
        (["s"], {"memory_min": "1GiB", "memory_low": "much"}, "error backends[0].memory_low: 'much' is no size"),
        (["s"], {"url": "http://localhost:70000"}, "its port must be between 1 and 65535"),
    ],
)  # fmt: skip
def test_each_check(command, keys, expected):
    problems = supervised(*command, **keys)
    assert any(expected in problem for problem in problems), problems


@pytest.mark.parametrize(
    ("command", "keys"),
    [
        (["s", "-m", "{model}", "-c", "{context}"], {"model": "/m.gguf", **ACT}),
        (["s", "-m", "/m.gguf", "-c", "4096"], {"model": "/m.gguf"}),
        (["s", "--chat-template-kwargs", '{"enable_thinking": false}'], {}),
        (["s", "--chat-template", "{{ bos_token }}{{x}}"], {}),
        (["s"], {"context": {"preferred": 4096, "minimum": 4096}, **ACT}),
        (["s", "--cache-ram", "{prompt_cache_mib}"], {"prompt_cache_mib": 0}),
        (["s", "--port", "8080"], {"url": "http://[::1]:8080/"}),
        (["/opt/my programs/s", "--prompt", "a b"], {"cgroup": "/sys/fs/cgroup/memory/llm"}),
    ],
)
def test_what_is_right_passes(command, keys):
    assert supervised(*command, **keys) == []


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("llama-srver", "is no kind of backend; did you mean llama-server? (known: llama-server or simulator"),
        ("llama_server", "did you mean llama-server?"),
        ("vllm", "is no kind of backend (known: llama-server or simulator; without the key"),
    ],
)
def test_an_unknown_kind_is_an_error_that_names_the_kinds(kind, expected):
    config = msgspec.convert({"backends": [{"name": "a", "kind": kind}]}, Config)
    (problem,) = check_backends(config, {"simulator", "llama-server"})
    assert (problem.path, problem.severity) == ("backends[0].kind", "error")
    assert expected in problem.hint


def test_kinds_are_not_judged_without_a_list_and_a_known_one_passes():
    config = msgspec.convert({"backends": [{"name": "a", "kind": "vllm"}, {"name": "b"}]}, Config)
    assert list(check_backends(config)) == []
    assert list(check_backends(config, {"vllm"})) == []


def test_names_and_ports_must_differ():
    backends = [{"name": "a", "url": "http://localhost:1"}, {"name": "a", "url": "http://127.0.0.1:1"}, {"name": "b"}]
    assert found(*backends) == [
        "error backends[1].name: 'a': is the name of backends[0] too; names must differ",
        "error backends[1].url: 'http://127.0.0.1:1': has the port of backends[0] too; every backend needs its own",
    ]


@pytest.mark.parametrize(
    ("supervise", "key"),
    [
        ({"by": "systemd", "unit": "llama.service"}, "unit: 'llama.service'"),
        ({"by": "docker", "container": "llama", "run": ["img", "{context}"]}, "container: 'llama'"),
    ],
)
def test_a_unit_or_container_is_of_one_backend(supervise, key):
    entries = [{"name": name, "supervise": supervise} for name in ("a", "b")]
    assert found(*entries) == [
        f"error backends[1].supervise.{key}: is the {key.partition(':')[0]} of backends[0] too; each runs one backend"
    ]
    other_one = {"name": "b", "supervise": {"by": "docker", "engine": "podman", "container": "llama", "run": ["img"]}}
    assert found(entries[0], other_one) == []


def test_the_cure_for_a_script_is_no_flag():
    (problem,) = other({"by": "command", "restart": ["/again"]}, "act")
    assert 'add "{context}", or set' in problem


def test_flag_value_takes_the_last_one():
    assert flag_value(["s", "--port", "1", "--port=2"], ("--port",)) == "2"
    assert flag_value(["s", "--port"], ("--port",)) is None
    assert flag_value(["s", "-c=3"], ("-c",)) is None


def generic_problems(kind: str = "generic", **generic: str) -> list[str]:
    entry = {"name": "e", "kind": kind, "url": "http://127.0.0.1:7000", "generic": {"process": "a", **generic}}
    return found(entry)


def test_a_generic_entry_is_whole() -> None:
    assert generic_problems(tokens=r"tokens (\S+)") == []
    assert "generic: is missing" in found({"name": "e", "kind": "generic"})[0]
    assert "is only for kind: generic" in generic_problems(kind="ollama")[0]
    assert "is not set" in found({"name": "e", "kind": "generic", "generic": {"process": "a"}})[0]


def test_an_expression_that_could_run_away_is_refused_with_its_key() -> None:
    said = generic_problems(process="(a+)+", tokens="tokens", requests=r"(\S+)")
    assert [f"generic.{key}" in text for key, text in zip(("process", "tokens", "requests"), said, strict=True)] == [
        True
    ] * 3


def other(supervise, relief="observe", **keys):
    return found({"name": "a", "supervise": supervise, **keys}, relief={"mode": relief})


@pytest.mark.parametrize(
    ("supervise", "keys", "expected"),
    [
        ({"by": "docker", "container": "l", "run": ["img", "{contxt}"]}, {}, "supervise.run: '{contxt}': is no placeholder"),
        ({"by": "docker", "container": "l", "run": ["img"]}, {"relief": "act"}, "supervise.run: has no {context}"),
        ({"by": "docker", "container": "l", "run": ["img", "{slots}"]}, {}, "backends[0].slots is not set"),
        ({"by": "command", "restart": ["again"]}, {}, "supervise.restart: 'again' must be an absolute path"),
        ({"by": "command", "restart": ["/again", "{x}"]}, {}, "supervise.restart: '{x}': is no placeholder"),
        ({"by": "command", "restart": ["/again"]}, {"relief": "act"}, "supervise.restart: has no {context}"),
        ({"by": "command", "restart": ["/again"], "timeout": "1ms"}, {}, "supervise.timeout: '1ms': must be between"),
        ({"by": "docker", "container": "l", "run": ["-d", "img"]}, {}, "supervise.run: -d"),
        ({"by": "docker", "container": "l", "run": ["img"]}, {}, "supervise.container: 'l': must be 2 to 100"),
    ],
)  # fmt: skip
def test_other_ways_of_supervising(supervise, keys, expected):
    problems = other(supervise, **keys)
    assert any(expected in problem for problem in problems), problems


@pytest.mark.parametrize(
    "supervise",
    [
        {"by": "systemd", "unit": "llama.service"},
        {"by": "command", "restart": ["/usr/local/bin/again", "{context}"]},
        {"by": "docker", "container": "llama", "run": ["img", "-c", "{context}"]},
    ],
)
def test_other_ways_of_supervising_that_are_right(supervise):
    assert other(supervise, relief="act", context={"preferred": 4096}) == []


def test_memory_that_is_kept_below_what_is_taken_last_is_in_order():
    tuning = {"profile": "moe-offload"}
    assert found({"name": "a", "memory_min": "8GiB", "memory_low": "12GiB"}, tuning=tuning) == []
    assert found({"name": "a", "memory_min": "8GiB"}, tuning=tuning) == []
