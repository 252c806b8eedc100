"""What the small processes share, spoken to over real pipes."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from moetuned.host import inside_cgroup

SCRIPT = """
import sys
from moetuned.host import inside_cgroup as inside
inside.begin()
try:
    plan = inside.read_plan()
except (ValueError, TypeError) as error:
    inside.say({"error": str(error)})
    sys.exit(1)
inside.say({"plan": plan, "score": open("/proc/self/oom_score_adj").read(), "rss": inside.resident_bytes()})
inside.say({"closed": inside.input_closed(0 if plan.get("wait") == 0 else 60)})
"""


def run(text: bytes) -> list[dict[str, object]]:
    done = subprocess.run([sys.executable, "-c", SCRIPT], input=text, stdout=subprocess.PIPE, check=False, timeout=60)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_plan_arrives_and_the_end_of_input_is_seen() -> None:
    first, last = run(b'{"a": 1}\n')
    assert first["plan"] == {"a": 1}
    assert first["score"] == "1000\n"
    assert int(str(first["rss"])) > 1 << 20
    assert last == {"closed": True}


@pytest.mark.parametrize("text", [b"", b'{"a": 1}', b"[]\n", b"rubbish\n"])
def test_what_is_no_plan_is_an_error(text: bytes) -> None:
    (only,) = run(text)
    assert "error" in only


def test_an_open_input_is_not_closed() -> None:
    with subprocess.Popen([sys.executable, "-c", SCRIPT], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(b'{"wait": 0}\n')
        child.stdin.flush()
        lines = [json.loads(child.stdout.readline()) for _ in range(2)]
    assert lines[1] == {"closed": False}


def test_a_cgroup_that_is_gone_is_an_error() -> None:
    with pytest.raises(OSError, match="moetuned-test-none"):
        inside_cgroup.join("/sys/fs/cgroup/moetuned-test-none")


def test_nobody_to_speak_to_ends_it() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    child = subprocess.run([sys.executable, "-c", SCRIPT], input=b'{"a": 1}\n', stdout=writer, check=False, timeout=60)
    os.close(writer)
    assert child.returncode == -13
