import http.server
import json
import threading

import pytest

from moetuned.simulator.ask import completion_body, main, make_parser
from moetuned.simulator.topics import topic_of_text

ANSWER = {"timings": {"prompt_n": 3, "prompt_per_second": 10.0, "predicted_n": 5, "predicted_per_second": 20.0}}


@pytest.fixture
def answering():
    """A server that answers with what is in `answers`, in turn, and notes the requests."""
    requests, answers = [], []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            requests.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            status, body = answers.pop(0)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args):
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", answers, requests
    server.shutdown()
    server.server_close()


def test_one_line_a_request_and_0_when_all_were_answered(answering, capsys):
    url, answers, requests = answering
    answers += [(200, json.dumps(ANSWER).encode())] * 2
    assert main([url, "-n", "2", "--tokens", "5", "--topic", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert "5 tokens at 20.0 tok/s" in lines[0]
    assert [topic_of_text(one["prompt"].encode()) for one in requests] == [3, 3]
    assert requests[0]["n_predict"] == 5
    assert requests[0]["seed"] != requests[1]["seed"]


@pytest.mark.parametrize(
    "bad", [(500, b"oh"), (200, b"no json"), (200, b"{}"), (200, b'{"timings":{"prompt_n":"x"}}'), (200, b"[]")]
)
def test_1_when_one_was_not_answered_and_the_rest_goes_on(answering, capsys, bad):
    url, answers, _ = answering
    answers += [bad, (200, json.dumps(ANSWER).encode())]
    assert main([url, "-n", "2"]) == 1
    shown = capsys.readouterr()
    assert len(shown.out.splitlines()) == 1
    assert "request 0: failed" in shown.err


def test_nobody_there_is_1(capsys):
    assert main(["http://127.0.0.1:1", "--timeout", "5"]) == 1
    assert "failed" in capsys.readouterr().err


@pytest.mark.parametrize(
    "argv", [["file:///etc/passwd"], ["127.0.0.1:80"], ["http://a", "-n", "-1"], ["http://a", "--tokens", "0"]]
)
def test_wrong_usage_is_2(argv):
    with pytest.raises(SystemExit) as ended:
        main(argv)
    assert ended.value.code == 2


def test_without_a_topic_each_request_has_another():
    arguments = make_parser().parse_args(["http://a"])
    topics = [topic_of_text(completion_body(arguments, number)["prompt"].encode()) for number in range(8)]
    assert topics == list(range(8))
