"""Coverage-guided fuzzing of what a tick reads: files of the kernel and HTTP answers of a backend. Run by `make fuzz`; needs atheris.

An input is a change of a machine's files (the cases of tests/parse/machines), or the bytes that a server answers with. Nothing may
raise but HttpError, from the parsers up to the verdict and its JSON, within the limits that the command line sets.

    python tests/fuzz/fuzz_tick.py CORPUS -max_total_time=600 -timeout=5 -rss_limit_mb=512
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress

import atheris

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "parse"))

with atheris.instrument_imports(include=["moetuned"]):
    import msgspec

    from moetuned.decide import detector, signals
    from moetuned.decide.detector import DetectorSettings
    from moetuned.decide.facts import BackendFacts
    from moetuned.decide.memory_headroom import memory_view
    from moetuned.parse.assemble import assemble
    from moetuned.parse.http_response import HttpError, parse_body, parse_head
    from moetuned.parse.llama_http import parse_llama_http
    from moetuned.parse.mountinfo import parse_mountinfo
    from moetuned.parse.process_cgroup import memory_cgroup_place
    from moetuned.schema.sample import RawBackend, RawSample

from machine_cases import FILES, MachineCase, identity, load, moments

CASES = [load(path) for path in FILES]
SETTINGS = DetectorSettings()
LIMIT_BYTES = 1 << 18
PATHS = ("/health", "/props", "/slots", "/metrics")


def changed(data: atheris.FuzzedDataProvider, text: str) -> str | None:
    """A text with a piece of it replaced, cut or doubled."""
    start = data.ConsumeIntInRange(0, len(text))
    end = min(len(text), start + data.ConsumeIntInRange(0, 64))
    kind = data.ConsumeIntInRange(0, 4)
    if kind == 0:
        return None
    if kind == 1:
        return text[:start]
    if kind == 2:
        return text[:end] + text[start:]
    piece = data.ConsumeUnicode(20) if kind == 3 else str(data.ConsumeInt(10))
    return text[:start] + piece + text[end:]


def tick(case: MachineCase, raws: list[RawSample]) -> None:
    """What the daemon does with these moments."""
    own, facts = identity(case), BackendFacts(disks=case.disks, page_bytes=case.page_bytes, address_known=True)
    samples, state = [], detector.initial(own.name)
    for raw in raws:
        samples.append(assemble(raw, [own]))
        derived = signals.derive(samples, own.name, facts)
        step = detector.step(state, derived, samples[-1].backends[0], facts, SETTINGS)
        state = step.state
        msgspec.json.encode((derived, step.verdict, memory_view(samples[-1].machine, samples[-1].backends[0])))


def machine(data: atheris.FuzzedDataProvider) -> None:
    """A machine of which some files are not as they should be."""
    case = CASES[data.ConsumeIntInRange(0, len(CASES) - 1)]
    raws = moments(case)
    paths = sorted(raws[0].files)
    for _ in range(data.ConsumeIntInRange(0, 6)):
        files = raws[data.ConsumeIntInRange(0, 1)].files
        path = paths[data.ConsumeIntInRange(0, len(paths) - 1)]
        files[path] = changed(data, files[path] or "")
    raws[1].backends[identity(case).name] = RawBackend(
        {path: data.ConsumeUnicode(200) for path in PATHS if data.ConsumeBool()}
    )
    tick(case, raws)
    cgroup = changed(data, case.files.get(f"/proc/{case.pid}/cgroup", "0::/\n")) or ""
    memory_cgroup_place(cgroup, parse_mountinfo(changed(data, case.files["/proc/self/mountinfo"]) or ""))


def answer(raw: bytes) -> None:
    """Bytes of a server, and its body as each of the answers."""
    for data, closed in ((raw, True), (raw[: len(raw) // 2], False)):
        with suppress(HttpError):
            head = parse_head(data)
            body = None if head is None else parse_body(head, data, closed, LIMIT_BYTES)
            if body is not None:
                assert len(body) <= LIMIT_BYTES
                parse_llama_http(dict.fromkeys(PATHS, body.decode("utf-8", "replace")))
    parse_llama_http(dict.fromkeys(PATHS, raw.decode("utf-8", "replace")))


def one_input(raw: bytes) -> None:
    """What the fuzzer calls: the first byte chooses."""
    if len(raw) < 2:
        return
    if raw[0] & 1:
        machine(atheris.FuzzedDataProvider(raw[1:]))
    else:
        answer(raw[1:])


def seeds(directory: str) -> None:
    """Answers to begin with, where the corpus is still empty."""
    os.makedirs(directory, exist_ok=True)
    if os.listdir(directory):
        return
    bodies = {
        "health": b'{"status":"ok"}',
        "loading": b'{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}',
        "props": b'{"is_sleeping":false}',
        "slots": b'[{"id":0,"id_task":1,"n_ctx":4096,"is_processing":true,"next_token":[{"n_decoded":5}]}]',
        "metrics": b"llamacpp:tokens_predicted_total 5\nllamacpp:n_decode_total 7\n",
    }
    for name, body in bodies.items():
        for kind, head in (
            ("length", b"Content-Length: %d\r\n\r\n" % len(body)),
            ("chunks", b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % len(body)),
        ):
            tail = b"\r\n0\r\n\r\n" if kind == "chunks" else b""
            with open(os.path.join(directory, f"{name}-{kind}"), "wb") as file:
                file.write(b"\0HTTP/1.1 200 OK\r\n" + head + body + tail)
        with open(os.path.join(directory, f"{name}-machine"), "wb") as file:
            file.write(b"\1" + body)


def main() -> None:
    """Seed the corpus (the first argument that is no option) and fuzz."""
    directories = [argument for argument in sys.argv[1:] if not argument.startswith("-")]
    if directories:
        seeds(directories[0])
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
