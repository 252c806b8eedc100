import importlib.util
import json
import os
import signal
import socket

import pytest
from fakes.server_process import http, started

from moetuned.host.backend_http import ask_once
from moetuned.parse.llama_http import parse_llama_http
from moetuned.simulator.make_model import main as make_model
from moetuned.xllamacpp_server.flags import LLAMA_SERVER_FLAGS, parse_flags
from moetuned.xllamacpp_server.server import FLAGS, StartError, api_keys, check_model, main, parameters

needs_wheel = pytest.mark.skipif(
    importlib.util.find_spec("xllamacpp") is None, reason="the wheel xllamacpp is not installed"
)
backend = [pytest.mark.backend, needs_wheel]
SIZE = 64 << 20


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("model") / "made.gguf")
    assert make_model([path, "--size", str(SIZE)]) == 0
    return path


def serving(model, *flags):
    return started("moetuned.xllamacpp_server", "-m", model, "--port", "0", "--no-warmup", *flags)


def url_of(server):
    return server.wait_for(r"listening on (http://\S+:\d+)")[1]


def values(*argv):
    return parse_flags(FLAGS, list(argv), {})


@needs_wheel
def test_flags_reach_the_wheels_parameters():
    import xllamacpp

    argv = "-m a.gguf -c 2048 -np 3 -b 256 -ub 128 -t 2 -tb 1 -ctk q8_0 -ctv q4_0 -fa on -cram 5 -ctxcp 2 -lm mmap -nr -fit off"
    params = parameters(
        values(*argv.split(), "--no-warmup", "--host", "::1", "--port", "5", "--metrics", "--no-slots"), xllamacpp
    )
    assert params.model.path == "a.gguf"
    assert (params.n_ctx, params.n_parallel, params.kv_unified) == (2048, 3, False)
    assert (params.n_batch, params.n_ubatch) == (256, 128)
    assert (params.cpuparams.n_threads, params.cpuparams_batch.n_threads) == (2, 1)
    assert (params.cache_type_k, params.cache_type_v) == (
        xllamacpp.ggml_type.GGML_TYPE_Q8_0,
        xllamacpp.ggml_type.GGML_TYPE_Q4_0,
    )
    assert params.flash_attn_type == xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_ENABLED
    assert (params.cache_ram_mib, params.n_ctx_checkpoints) == (5, 2)
    assert params.load_mode == xllamacpp.llama_load_mode.LLAMA_LOAD_MODE_MMAP
    assert (params.no_extra_bufts, params.fit_params, params.warmup) == (True, False, False)
    assert (params.hostnames, params.port) == (["::1"], 5)
    assert (params.endpoint_metrics, params.endpoint_slots) == (True, False)


@needs_wheel
def test_without_parallel_there_are_four_slots_with_one_cache_as_in_llama_server():
    import xllamacpp

    params = parameters(values("-m", "a"), xllamacpp)
    assert (params.n_parallel, params.kv_unified) == (4, True)


@needs_wheel
@pytest.mark.parametrize("flag", [flag for flag in LLAMA_SERVER_FLAGS if flag.choices], ids=lambda flag: flag.key)
def test_every_choice_of_every_flag_is_one_the_wheel_knows(flag):
    import xllamacpp

    for choice in flag.choices:
        parameters(values(flag.on[0], choice), xllamacpp)


def test_keys_are_of_both_flags_and_an_empty_file_has_none(tmp_path):
    path = tmp_path / "keys"
    path.write_text("one\n\n# two\n three \r\n")
    assert api_keys("a, b,", str(path)) == ["a", "b", "one", "three"]
    path.write_text("\n")
    assert api_keys("", str(path)) == []
    with pytest.raises(StartError, match="API keys, /nowhere/keys: No such file"):
        api_keys("", "/nowhere/keys")


def test_what_is_no_model_is_said(tmp_path):
    with pytest.raises(StartError, match=r"/nonexistent\.gguf: No such file"):
        check_model("/nonexistent.gguf")
    (tmp_path / "page.gguf").write_text("<html>")
    with pytest.raises(StartError, match="no GGUF"):
        check_model(str(tmp_path / "page.gguf"))


def test_help_and_mistakes(capsys):
    assert main(["--help"]) == 0
    assert "-c, --ctx-size N" in capsys.readouterr().out
    assert main(["-m", "a", "--no-mmap"]) == 1
    assert capsys.readouterr().err == "error: invalid argument: --no-mmap\n"
    assert main([]) == 1
    assert "-m FILE" in capsys.readouterr().err


def test_without_the_wheel_it_says_how_to_get_it(model, monkeypatch, capsys):
    monkeypatch.setitem(__import__("sys").modules, "xllamacpp", None)
    assert main(["-m", model]) == 1
    assert "pip install xllamacpp" in capsys.readouterr().err


class TestRealServer:
    pytestmark = backend

    def test_it_maps_the_model_answers_and_honours_the_flags(self, model):
        with serving(
            model, "-c", "1024", "-np", "1", "--metrics", "--no-repack", "--cache-ram", "0", "-t", "2"
        ) as server:
            url = url_of(server)
            assert any(line.endswith(model) and " r--s " in line for line in server.maps().splitlines())
            assert server.status("RssFile") >= 0.95 * os.path.getsize(model)
            status, text = http(url + "/completion", {"prompt": "hello", "n_predict": 16, "ignore_eos": True})
            assert (status, json.loads(text)["timings"]["predicted_n"]) == (200, 16)
            bodies = {path: http(url + path)[1] for path in ("/health", "/slots", "/metrics", "/props")}
            parsed = parse_llama_http(bodies)
            assert (parsed.health, parsed.tokens_predicted_total, parsed.sleeping) == ("ok", 16, False)
            assert [slot.context_length for slot in parsed.slots] == [1024]
            props = json.loads(bodies["/props"])
            assert props["default_generation_settings"]["n_ctx"] == 1024
            assert props["model_path"] == model
            assert server.end(signal.SIGTERM) == 0

    def test_with_a_key_it_asks_for_it(self, model, tmp_path):
        (tmp_path / "keys").write_text("secret\n")
        with serving(model, "-c", "512", "-np", "1", "--api-key-file", str(tmp_path / "keys")) as server:
            url = url_of(server)
            assert http(url + "/slots")[0] == 401
            assert ask_once(url, "/slots", 10, api_key="secret")[0] == 200

    def test_no_repack_keeps_the_weights_out_of_anonymous_memory(self, model):
        held = {}
        for flag in ("--no-repack", "--repack"):
            with serving(model, "-c", "256", "-np", "1", flag) as server:
                url_of(server)
                held[flag] = server.status("RssAnon")
        if held["--repack"] < 0.5 * SIZE + held["--no-repack"]:
            pytest.skip("this processor has no repacked form of Q4_0")
        assert held["--no-repack"] < SIZE

    def test_sigterm_in_the_middle_of_a_request_ends_it_at_once(self, model):
        with serving(model, "-c", "65536", "-np", "1", "--no-repack") as server:
            url = url_of(server)
            with socket.create_connection(("127.0.0.1", int(url.rsplit(":", 1)[1])), timeout=20) as client:
                body = b'{"prompt":"a","n_predict":60000,"ignore_eos":true}'
                client.sendall(b"POST /completion HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
                server.wait_for("processing task")
                assert server.end(signal.SIGTERM) == 0

    def test_a_damaged_model_is_1(self, tmp_path):
        path = tmp_path / "bad.gguf"
        path.write_bytes(b"GGUF" + bytes(100))
        with serving(str(path)) as server:
            server.wait_for("error: llama.cpp did not start")
            assert server.process.wait(timeout=20) == 1

    def test_a_port_that_is_taken_is_1(self, model):
        with (
            socket.create_server(("127.0.0.1", 0)) as taken,
            serving(model, "--port", str(taken.getsockname()[1])) as server,
        ):
            server.wait_for("error: llama.cpp did not start")
            assert server.process.wait(timeout=20) == 1
