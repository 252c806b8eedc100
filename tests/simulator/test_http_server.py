import json
import socket
import threading

import pytest
from fake_model import make_engine
from fakes.server_process import http

from moetuned.simulator.http_server import Listener, Service


@pytest.fixture
def serving():
    listeners = []

    def serve(engine, **changes):
        service = Service("m.gguf", **({"metrics": True, "slots": True, "default_predict": 5} | changes))
        service.engine = engine
        listener = Listener("127.0.0.1", 0, service, 20)
        threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        listeners.append(listener)
        return f"http://127.0.0.1:{listener.server_port}"

    yield serve
    for listener in listeners:
        listener.shutdown()
        listener.server_close()


def running_engine(**changes):
    engine, _, _ = make_engine(**changes)
    threading.Thread(target=engine.run, args=(threading.Event().wait,), daemon=True).start()
    return engine


def test_while_it_loads_every_endpoint_says_so(serving):
    url = serving(None)
    for path, body in (
        ("/health", None),
        ("/slots", None),
        ("/props", None),
        ("/metrics", None),
        ("/completion", {"prompt": "a"}),
    ):
        status, text = http(url + path, body)
        assert status == 503
        assert json.loads(text) == {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}


def test_health_that_flaps_is_well_between(serving):
    url = serving(running_engine(), flaky_health=3)
    assert [http(url + "/health")[0] for _ in range(7)] == [200, 200, 503, 200, 200, 503, 200]
    assert http(url + "/slots")[0] == 200


def test_a_completion_is_answered_and_counted(serving):
    url = serving(running_engine())
    assert http(url + "/health") == (200, '{"status":"ok"}')
    status, text = http(url + "/completion", {"prompt": "hello", "n_predict": 6, "ignore_eos": True})
    assert status == 200
    assert json.loads(text)["timings"]["predicted_n"] == 6
    assert "llamacpp:tokens_predicted_total 6\n" in http(url + "/metrics")[1]
    assert json.loads(http(url + "/slots")[1])[0]["is_processing"] is False
    status, text = http(
        url + "/v1/chat/completions", {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 2}
    )
    assert (status, json.loads(text)["usage"]["completion_tokens"]) == (200, 2)
    assert json.loads(http(url + "/v1/models")[1])["data"][0]["id"] == "m.gguf"


def test_endpoints_that_are_off_name_their_flag(serving):
    url = serving(running_engine(), metrics=False, slots=False)
    for path, flag in (("/metrics", "--metrics"), ("/slots", "--slots")):
        status, text = http(url + path)
        assert status == 501
        assert f"Start it with `{flag}`" in json.loads(text)["error"]["message"]


@pytest.mark.parametrize(("path", "body"), [("/nothing", None), ("/nothing", {})])
def test_an_unknown_path_is_404(serving, path, body):
    assert http(serving(running_engine()) + path, body)[0] == 404


@pytest.mark.parametrize("length", ["99999999999", "-1", "x", ""])
def test_a_body_of_an_impossible_length_is_refused(serving, length):
    url = serving(running_engine())
    with socket.create_connection(("127.0.0.1", int(url.rsplit(":", 1)[1])), timeout=10) as client:
        client.sendall(f"POST /completion HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n".encode())
        assert b" 413 " in client.recv(1000)


def test_a_client_that_goes_away_takes_its_request_with_it(serving):
    engine, _, _ = make_engine()
    cancelled = threading.Event()
    cancel = engine.cancel

    def noted(task):
        cancel(task)
        cancelled.set()

    engine.cancel = noted
    url = serving(engine)
    client = socket.create_connection(("127.0.0.1", int(url.rsplit(":", 1)[1])), timeout=10)
    body = b'{"prompt":"a","n_predict":100}'
    client.sendall(b"POST /completion HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    client.close()
    assert cancelled.wait(20)
    assert engine.counters()[2] == 0


def test_a_port_that_is_taken_is_an_oserror(serving):
    url = serving(None)
    with pytest.raises(OSError, match="in use"):
        Listener("127.0.0.1", int(url.rsplit(":", 1)[1]), Service("m", metrics=True, slots=True, default_predict=1), 5)
