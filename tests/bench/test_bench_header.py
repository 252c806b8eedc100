"""Our header reader against gguf.GGUFReader, on a header with a vocabulary of 152,000 tokens; time and memory in a process each."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from fakes.gguf_bytes import Typed, gguf_bytes, moe_metadata, moe_tensors
from measuring import Figure, middle

pytestmark = pytest.mark.bench
TOKENS = 152_000
MEASURE = """
import sys, time
def peak():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
{imports}
before, begun = peak(), time.perf_counter()
read(sys.argv[1])
print(time.perf_counter() - begun, (peak() - before) / 1024, peak() / 1024)
"""
OURS = "from moetuned.host.model_files import read_header as read"
THEIRS = "from gguf import GGUFReader as read"


def measured(imports: str, path: Path) -> tuple[float, ...]:
    """Seconds, MiB beyond the imports, MiB in all."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURE.format(imports=imports), str(path)], check=True, capture_output=True, text=True
    )
    return tuple(float(text) for text in done.stdout.split())


def test_header_reader(tmp_path: Path, figure: Figure) -> None:
    path = tmp_path / "vocabulary.gguf"
    metadata = {
        **moe_metadata(),
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": [f"tok{number}" for number in range(TOKENS)],
        "tokenizer.ggml.token_type": Typed("i32", [1] * TOKENS),
        "tokenizer.ggml.merges": [f"me{number} rge{number}" for number in range(TOKENS)],
    }
    path.write_bytes(gguf_bytes(metadata, moe_tensors()))
    ours = [measured(OURS, path) for _ in range(5)]
    theirs = [measured(THEIRS, path) for _ in range(3)]
    seconds, more, whole = (middle(run[column] for run in ours) for column in range(3))
    their_seconds, their_more, their_whole = (middle(run[column] for run in theirs) for column in range(3))
    figure("header reader, time", seconds * 1000, "ms")
    figure("header reader, memory beyond imports", more, "MiB")
    figure("header reader, peak of the process", whole, "MiB")
    figure("gguf.GGUFReader, time", their_seconds * 1000, "ms")
    figure("gguf.GGUFReader, memory beyond imports", their_more, "MiB")
    figure("gguf.GGUFReader, peak of the process", their_whole, "MiB")
    figure("header reader is faster by", their_seconds / seconds, "times")
    assert seconds * 50 < their_seconds
    assert whole * 10 < their_whole
