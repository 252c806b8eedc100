import msgspec
import pytest

from moetuned.parse.config_check import check
from moetuned.parse.config_problem import ConfigError
from moetuned.parse.config_text import load_with_warnings
from moetuned.schema.config import Config

KNOWN = {"vm.dirty_ratio", "vm.vfs_cache_pressure"}
BACKEND = {"name": "a", "supervise": {"by": "process", "command": ["server", "-c", "{context}"]}}


def found(known=KNOWN, **sections):
    config = msgspec.convert(sections, Config)
    return [f"{problem.severity} {problem}" for problem in check(config, known)]


def test_the_default_config_has_no_problem():
    assert check(Config(), KNOWN) == ()
    assert check(Config()) == ()


@pytest.mark.parametrize(
    ("sections", "expected"),
    [
        ({"watch": {"interval": "100ms"}}, "error watch.interval: '100ms': must be between 200 ms and 4.0 s"),
        ({"watch": {"interval": 5}}, "error watch.interval: 5: must be between"),
        ({"watch": {"interval": "soon"}}, "error watch.interval: 'soon' is no duration; write e.g. 500ms"),
        ({"watch": {"residency_every": "0.5s"}}, "error watch.residency_every: '0.5s': must be between 1.0 s and"),
        ({"warm": {"budget": "much"}}, "error warm.budget: 'much' is no size"),
        ({"warm": {"budget": "5e9"}}, "or auto"),
        ({"warm": {"rate": 0}}, "error warm.rate: 0: must be at least 1MiB a second"),
        ({"warm": {"rate": "fast"}}, "error warm.rate: 'fast' is no size"),
        ({"warm": {"prompts": "default"}}, "warning warm.prompts: 'default': has no effect: prompts are sent only to a"),
        ({"limits": {"near": "3%", "critical": "8%"}}, "error limits.near: '3%': must be more headroom than"),
        ({"limits": {"near": "8%", "critical": "8%"}}, "error limits.near"),
        ({"limits": {"near": "1GiB", "critical": "1024MiB"}}, "error limits.near"),
        ({"limits": {"near": "120%"}}, "error limits.near: '120%' must be more than 0% and less than 100%"),
        ({"limits": {"critical": "few"}}, "error limits.critical: 'few' is no size"),
        ({"relief": {"drain": "1h"}}, "error relief.drain: '1h': must be between 0 ms and 10 min"),
        ({"relief": {"restart_hung": "false"}}, "5m, 2h, or off"),
        ({"relief": {"restart_hung": "10s"}}, "must be between 1 min and 1 d 0 h, or off"),
        ({"relief": {"cool_down": "1s"}}, "error relief.cool_down: '1s': must be between 10 s and 1 d"),
        ({"relief": {"mode": "act", "at_most": "0/h"}, "backends": [BACKEND]}, "error relief.at_most: '0/h': forbids"),
        ({"relief": {"mode": "act"}}, "warning relief.mode: 'act': there is no backend that moetuned may restart"),
        ({"tuning": {"profile": "moe-offload", "sysctl": {"vm.dirty_ratoi": 5}}}, "did you mean vm.dirty_ratio?"),
        ({"tuning": {"profile": "moe-offload", "sysctl": {"kernel.x": 5}}}, "it knows vm.dirty_ratio or vm.vfs_cache"),
        ({"tuning": {"profile": "moe-offload", "sysctl": {"../../etc/passwd": 5}}}, "is no sysctl name"),
        ({"tuning": {"profile": "moe-offload", "sysctl": {"vm.dirty_ratio": "1\n2"}}}, "must be one line of letters"),
        ({"tuning": {"sysctl": {"vm.dirty_ratio": 5}}}, "warning tuning.sysctl: has no effect: profile is observe"),
        ({"tuning": {"thp": "never"}}, "warning tuning.thp: has no effect"),
        ({"tuning": {"read_ahead": 128}, "backends": [{"name": "a", "model": "/m"}]},
         "warning tuning.read_ahead: has no effect: profile is observe"),
        ({"tuning": {"profile": "observe"}, "backends": [{"name": "a", "memory_low": "1GiB"}]},
         "warning backends[0].memory_low: '1GiB': has no effect: tuning.profile is observe"),
        ({"backends": [{"name": "a"}, {"name": "b", "io_weight": 500}]}, "warning backends[1].io_weight: 500: has no effect"),
        ({"backends": [{"name": "a", "memory_min": "1GiB"}]}, "warning backends[0].memory_min: '1GiB': has no effect"),
        ({"tuning": {"profile": "moe-offload", "read_ahead": 128}, "backends": [{"name": "a"}]},
         "warning tuning.read_ahead: has no effect: no backend of the config has a model"),
        ({"alerts": [{"kind": "exec", "directory": "hooks"}]}, "error alerts[0].directory: 'hooks': must be an absolute"),
        ({"alerts": [{"kind": "exec", "timeout": "1h"}]}, "error alerts[0].timeout: '1h': must be between 100 ms and"),
        ({"alerts": [{"kind": "exec", "on": ["thrash_end"] * 2}]}, "warning alerts[0].on: 'thrash_end': is named twice"),
        ({"alerts": [{"kind": "exec"}, {"kind": "exec"}]}, "error alerts[1].directory"),
        ({"api": {"listen": "0.0.0.0:9843"}}, "error api.listen: '0.0.0.0:9843' is no loopback address"),
        ({"api": {"listen": "127.0.0.1:8080"}, "backends": [{"name": "a", "url": "http://localhost:8080"}]},
         "error api.listen: '127.0.0.1:8080': has the port of backends[0].url"),
        ({"api": {"socket": "api.sock"}}, "error api.socket: 'api.sock': must be an absolute path"),
        ({"api": {"group": "all users"}}, "error api.group: 'all users': is no group name"),
        ({"metrics": {"textfile": "a.prom"}}, "error metrics.textfile: 'a.prom': must be an absolute path without"),
        ({"metrics": {"textfile": "/a/../b.prom"}}, "error metrics.textfile: '/a/../b.prom': must be an absolute path without"),
        ({"metrics": {"textfile": "/a/\n.prom"}}, "error metrics.textfile"),
        ({"metrics": {"textfile": "//a.prom"}}, "error metrics.textfile"),
        ({"metrics": {"textfile": "/a/b.txt"}}, "error metrics.textfile: '/a/b.txt': must have a name that ends in .prom"),
        ({"metrics": {"textfile": "/a/.prom"}}, "error metrics.textfile: '/a/.prom': must have a name"),
        ({"metrics": {"every": "1s"}}, "error metrics.every: '1s': must be between 5.0 s and"),
    ],
)  # fmt: skip
def test_each_check(sections, expected):
    assert any(expected in problem for problem in found(**sections)), found(**sections)
    assert len(found(**sections)) == 1


@pytest.mark.parametrize(
    "sections",
    [
        {"watch": {"interval": "200ms", "residency_every": "1s"}},
        {"warm": {"budget": "16GiB", "rate": "500MiB"}},
        {"warm": {"protect": "on", "prompts": "off", "prompts_seconds": 5}},
        {"warm": {"prompts": "/etc/moetuned/prompts.yaml"}, "backends": [BACKEND]},
        {"limits": {"near": "8%", "critical": "512MiB"}},
        {"limits": {"near": 2048, "critical": 1024}},
        {"api": {"listen": False}},
        {"api": {"listen": "[::1]:0"}},
        {"metrics": {"textfile": "/var/lib/prometheus/node-exporter/moetuned.prom", "every": "1m"}},
        {"relief": {"mode": "act"}, "backends": [BACKEND]},
        {"tuning": {"profile": "moe-offload", "sysctl": {"vm.dirty_ratio": 5}, "thp": "madvise"}},
        {"alerts": [{"kind": "exec", "on": ["thrash_begin"]}, {"kind": "exec", "directory": "/srv/hooks"}]},
    ],
)
def test_what_is_right_passes(sections):
    assert found(**sections) == []


def test_podman_is_an_engine_of_docker() -> None:
    text = "backends: [{name: a, supervise: {by: podman, container: llama, run: [img]}}]"
    with pytest.raises(ConfigError) as raised:
        load_with_warnings([("x.yaml", text)])
    assert "write by: docker, engine: podman" in str(raised.value)
    assert "did you mean" not in str(raised.value)


def test_sysctls_are_not_judged_without_a_list_of_known_ones():
    assert found(known=None, tuning={"profile": "moe-offload", "sysctl": {"kernel.x": 1}}) == []


def test_all_problems_are_reported_at_once():
    sections = {"watch": {"interval": 0}, "limits": {"near": "1%"}, "api": {"listen": "x"}, "relief": {"cool_down": 0}}
    assert len(found(**sections)) == 4


@pytest.mark.parametrize(("key", "where"), [("read_ahead: 64", "file system"), ("scheduler: none", "disk")])
def test_what_would_be_set_for_no_model(key: str, where: str) -> None:
    _, warnings = load_with_warnings([("x.yaml", f"tuning: {{profile: moe-offload, {key}}}")])
    assert [f"there is no {where} to set it for" in warning.hint for warning in warnings] == [True]
