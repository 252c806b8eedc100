"""A program that takes anonymous memory step by step and keeps it: `python -m moetuned.demo.hog BYTES BYTES_A_SECOND`."""

from __future__ import annotations

import mmap
import signal
import sys
import time

STEP_BYTES = 8 << 20


def main(arguments: list[str]) -> int:
    """Take the memory, then wait to be ended."""
    goal, rate = int(arguments[0]), int(arguments[1])
    # Private: what is shared counts as shared memory, not as anonymous.
    memory = mmap.mmap(-1, max(goal, mmap.PAGESIZE), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    page = b"h" * mmap.PAGESIZE
    for start in range(0, goal, STEP_BYTES):
        for offset in range(start, min(start + STEP_BYTES, goal), mmap.PAGESIZE):
            memory[offset : offset + mmap.PAGESIZE] = page[: len(memory) - offset]
        time.sleep(STEP_BYTES / rate)
    signal.pause()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
