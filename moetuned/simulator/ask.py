"""`python -m moetuned.simulator ask URL`: send completions to a llama-server or to the stand-in, one line a request."""

from __future__ import annotations

import argparse
import json
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

import msgspec

from moetuned.simulator.topics import TOPICS, prompt_for_topic

_ANSWER_LIMIT_BYTES = 64 << 20


class _Timings(msgspec.Struct):
    prompt_n: int
    prompt_per_second: float
    predicted_n: int
    predicted_per_second: float


class _Answer(msgspec.Struct):
    timings: _Timings


def make_parser() -> argparse.ArgumentParser:
    """The command's arguments."""
    parser = argparse.ArgumentParser(prog="python -m moetuned.simulator ask", description=__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("url", metavar="URL", help="the server, e.g. http://127.0.0.1:8080")
    add(
        "-n",
        "--requests",
        type=int,
        default=1,
        help="how many requests, one after the other; 0: until ended (default 1)",
    )
    add("--tokens", type=int, default=64, help="tokens to generate a request (default %(default)s)")
    add("--topic", type=int, help=f"topic of the prompts, 0 to {TOPICS - 1} (default: a new one each request)")
    add("--prompt-tokens", type=int, default=48, help="length of a prompt (default %(default)s)")
    add("--temperature", type=float, default=1.0, help="sampling temperature (default %(default)s)")
    add("--seed", type=int, default=1, help="another seed makes other prompts (default %(default)s)")
    add("--pause", type=float, default=0.0, help="seconds to wait between requests (default %(default)s)")
    add("--timeout", type=float, default=600.0, help="seconds to wait for an answer (default %(default)s)")
    return parser


def completion_body(arguments: argparse.Namespace, number: int) -> dict[str, Any]:
    """The JSON of request `number`: every token is sampled from the whole vocabulary, nothing is taken from a cache."""
    topic = number if arguments.topic is None else arguments.topic
    seed = arguments.seed * 1_000_003 + number
    return {
        "prompt": prompt_for_topic(topic, arguments.prompt_tokens, seed),
        "n_predict": arguments.tokens,
        "ignore_eos": True,
        "cache_prompt": False,
        "temperature": arguments.temperature,
        "top_k": 0,
        "top_p": 1.0,
        "min_p": 0.0,
        "seed": seed % (1 << 31),
    }


def answer_line(number: int, answer: object, wall_seconds: float) -> str:
    """One line about an answer; raises msgspec.ValidationError when it is no completion with timings."""
    timings = msgspec.convert(answer, _Answer).timings
    return (
        f"request {number}: prompt {timings.prompt_n} at {timings.prompt_per_second:.1f}/s,"
        f" {timings.predicted_n} tokens at {timings.predicted_per_second:.1f} tok/s, {wall_seconds:.2f} s"
    )


def main(argv: list[str]) -> int:
    """Run the command; 0 all were answered, 1 one was not, 2 usage."""
    parser = make_parser()
    arguments = parser.parse_args(argv)
    parts = urllib.parse.urlsplit(arguments.url)
    if parts.scheme != "http" or not parts.hostname:
        parser.error(f"{arguments.url!r} is no URL of a server; write e.g. http://127.0.0.1:8080")
    if arguments.requests < 0 or arguments.tokens < 1 or arguments.prompt_tokens < 1 or arguments.pause < 0:
        parser.error("requests and pause must not be negative, tokens and prompt-tokens must be at least 1")
    failed = number = 0
    while arguments.requests == 0 or number < arguments.requests:
        if number and arguments.pause:
            time.sleep(arguments.pause)
        failed += not _ask(arguments, number)
        number += 1
    return 1 if failed else 0


def _ask(arguments: argparse.Namespace, number: int) -> bool:
    body = json.dumps(completion_body(arguments, number)).encode()
    url = arguments.url.rstrip("/") + "/completion"
    request = urllib.request.Request(url, data=body, headers={"Content-Type": "application/json"})  # noqa: S310 - http only
    begun = time.monotonic()
    try:
        with urllib.request.urlopen(request, timeout=arguments.timeout) as response:  # noqa: S310 - http only
            answer = json.loads(response.read(_ANSWER_LIMIT_BYTES))
        line = answer_line(number, answer, time.monotonic() - begun)
    except (OSError, ValueError) as error:
        detail = _error_text(error)
        print(f"request {number}: failed after {time.monotonic() - begun:.2f} s: {detail}", file=sys.stderr, flush=True)
        return False
    print(line, flush=True)
    return True


def _error_text(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"HTTP {error.code} {error.read(300).decode('utf-8', 'replace')}"
    return str(error) or type(error).__name__
