import json
import signal
import socket

import pytest
from fakes.server_process import http, started

from moetuned.gguf.kv_cache import KvSettings, kv_cache
from moetuned.host.model_files import read_model
from moetuned.simulator.make_model import main as make_model
from moetuned.simulator.serve import FAULT_FLAGS, LoadError, load, main, make_plan
from moetuned.xllamacpp_server.flags import LLAMA_SERVER_FLAGS, parse_flags

LOADED = r"model loaded"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("model") / "made.gguf")
    assert make_model([path, "--size", "16M"]) == 0
    return path


def values(*argv):
    return parse_flags((*LLAMA_SERVER_FLAGS, *FAULT_FLAGS), list(argv), {})


def serving(model, *flags):
    return started("moetuned.simulator", "serve", "-m", model, "--port", "0", *flags)


def url_of(server):
    url = server.wait_for(r"listening on (http://\S+:\d+)")[1]
    server.wait_for(LOADED)
    return url


def test_the_plan_follows_the_flags(model):
    made = read_model(model)
    plan, kv_bytes = make_plan(values("-c", "1000", "-np", "2", "-ctk", "q8_0", "-b", "100", "-ub", "512"), made)
    assert (plan.slots, plan.slot_context, plan.batch, plan.ubatch) == (2, 512, 100, 100)
    assert kv_bytes == kv_cache(made.headers[0].metadata, KvSettings(1000, 2, type_k="q8_0")).total_bytes
    automatic, _ = make_plan(values("-c", "1024"), made)
    assert (automatic.slots, automatic.slot_context) == (4, 1024)
    longest, _ = make_plan(values("-np", "1"), made)
    assert longest.slot_context == 131072


@pytest.mark.parametrize("mode", ["none", "mlock", "dio"])
def test_a_load_mode_that_does_not_map_is_refused_by_name(model, mode):
    with pytest.raises(LoadError, match=f"--load-mode {mode}"):
        load(values("--load-mode", mode), read_model(model))


def test_help_says_what_it_is_and_lists_the_flags(capsys):
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert "not a language model" in shown
    for flag in ("--ctx-size", "--no-repack", "--cache-ram", "--simulate-hang-after", "--simulate-ignore-sigterm"):
        assert flag in shown


@pytest.mark.backend
@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["--no-mmap"], "invalid argument: --no-mmap"),
        (["-c"], "expected value for argument: -c"),
        (["-m", "/nonexistent.gguf"], "/nonexistent.gguf"),
        (["-m", "/dev/null"], "/dev/null"),
        (["--load-mode", "none"], "--load-mode none"),
    ],
)
def test_what_it_cannot_do_is_said_and_ends_it_with_1(model, flags, text):
    with serving(model, *flags) as server:
        server.wait_for(text)
        assert server.process.wait(timeout=20) == 1


@pytest.mark.backend
def test_it_maps_the_model_holds_the_kv_cache_and_answers(model):
    with serving(model, "-c", "8192", "-np", "1", "--cache-ram", "8", "--metrics", "--no-repack") as server:
        url = url_of(server)
        assert [line for line in server.maps().splitlines() if line.endswith(model) and " r--s " in line]
        assert server.status("RssFile") >= read_model(model).identity.size_bytes
        _, kv_bytes = make_plan(values("-c", "8192", "-np", "1"), read_model(model))
        before = server.status("RssAnon")
        assert before >= kv_bytes
        assert json.loads(http(url + "/props")[1])["default_generation_settings"]["n_ctx"] == 8192
        for _ in range(3):
            status, text = http(url + "/completion", {"prompt": "x" * 500, "n_predict": 40, "ignore_eos": True})
            assert (status, json.loads(text)["tokens_predicted"]) == (200, 40)
        # Three states of 540 tokens are more than 8 MiB: the cache fills and stops there.
        grown = server.status("RssAnon") - before
        assert 4 << 20 <= grown <= 24 << 20
        assert "llamacpp:n_decode_total 120\n" in http(url + "/metrics")[1]
        assert server.end(signal.SIGTERM) == 0


@pytest.mark.backend
def test_a_simulated_exit_in_the_load_has_the_code(model):
    with serving(model, "--simulate-exit-code", "7") as server:
        server.wait_for("simulated failure")
        assert server.process.wait(timeout=20) == 7


@pytest.mark.backend
def test_a_simulated_hang_still_answers_http_and_sigterm_ends_it(model):
    with serving(model, "-np", "1", "-c", "1024", "--simulate-hang-after", "5") as server:
        url = url_of(server)
        with socket.create_connection(("127.0.0.1", int(url.rsplit(":", 1)[1])), timeout=20) as client:
            body = b'{"prompt":"a","n_predict":9,"ignore_eos":true}'
            client.sendall(b"POST /completion HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            server.wait_for("simulating a hang")
            assert http(url + "/health")[0] == 200
            assert json.loads(http(url + "/slots")[1])[0]["next_token"][0]["n_decoded"] == 5
            assert server.end(signal.SIGTERM) == 0


@pytest.mark.backend
def test_sigterm_is_ignored_when_asked_and_sigint_is_not(model):
    with serving(model, "--simulate-ignore-sigterm", "-c", "256") as server:
        url = url_of(server)
        server.process.send_signal(signal.SIGTERM)
        assert http(url + "/health")[0] == 200
        assert server.end(signal.SIGINT) == 0
