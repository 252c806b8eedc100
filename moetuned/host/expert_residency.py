"""Residency of each expert of a model, one look advanced in pieces on a CPU budget.

An expert is one contiguous slice of each of its tensors, so a call tells how much of it is in the page cache. A tensor of which nothing
or everything is cached is one call (or a few: no call is long). As soon as some of it is cached and some is not, it is a call for each
expert, in the next tensor from the start: what a call costs depends on what lies there (measured, a GiB: nothing 0, large folios
0.05 ms, pages of 4 KiB 20 ms, evicted pages 25 ms), and what is asked for together and then one by one is paid for twice.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Sequence

from moetuned.gguf.experts import ExpertMap, ExpertTensor
from moetuned.host.page_cache import PAGE_BYTES, PageCounter, why_unknown
from moetuned.schema.heat import ExpertPages

LOOK_CPU_SHARE = 0.001
"""Looks take at most this share of one core on average."""
SHORTEST_PAUSE_SECONDS = 30.0
"""Looks closer together than that tell no more: a request takes about as long."""
MOST_CELLS = 1 << 20
"""Layers times experts; the largest published models have 25,000."""
MOST_UNTIMED_PAGES = (32 << 20) // PAGE_BYTES
"""Between two looks at the clock: 0.8 ms of evicted pages. A call costs 1 us by itself, the clock up to 1.5 us."""


def seconds_between(cpu_seconds: float, share: float = LOOK_CPU_SHARE) -> float:
    """How long after a look that took `cpu_seconds` the next may begin, so that all of them take `share` of a core at most."""
    return max(SHORTEST_PAUSE_SECONDS, cpu_seconds / share)


def shape(experts: ExpertMap) -> tuple[int, int]:
    """Layers and experts of the cells of a look. Blocks behind the trunk (next-token prediction) have layers of their own."""
    return max((experts.layers, *(tensor.layer + 1 for tensor in experts.tensors))), experts.experts


class ExpertScan:
    """One look at all experts of a model. Belongs to one thread at a time.

    A page that slices share counts for each of them: an expert's pages are all that hold a byte of it. Cells of layers without
    experts are 0 of 0 pages.
    """

    def __init__(
        self, paths: Sequence[str], experts: ExpertMap, cpu_clock: Callable[[], float] = time.thread_time
    ) -> None:
        """`paths`: all parts in order, those whose headers `experts` was made of. Opens nothing yet."""
        self.result: ExpertPages | None = None
        self.unknown: str | None = None
        self.cpu_seconds = 0.0
        """CPU time of all pieces so far, for `seconds_between`."""
        self.calls = 0
        """How often the kernel was asked."""
        self._paths = tuple(paths)
        self._map = experts
        self._layers = shape(experts)[0]
        self._cpu_clock = cpu_clock
        self._counter = PageCounter(cpu_clock)
        self._mixed = False
        """Whether the tensor before was cached in part."""
        self._untimed = MOST_UNTIMED_PAGES
        self._cached: list[int] = []
        self._whole: list[int] = []
        self._work = self._tensors()
        if not experts.tensors:
            self.unknown = "the model has no routed experts"
        elif self._layers * experts.experts > MOST_CELLS:
            self.unknown = f"it claims {self._layers} layers of {experts.experts} experts, more than can be looked at"
        elif len(self._paths) != len(experts.part_bytes):
            self.unknown = f"the model has {len(experts.part_bytes)} parts, but {len(self._paths)} files are given"

    def advance(self, cpu_seconds: float = 0.005) -> bool:
        """Go on for about this much CPU time; True when finished: `result` is set, or `unknown` says why it is not."""
        if self.result is not None or self.unknown is not None:
            return True
        began = self._cpu_clock()
        try:
            for _ in self._work:
                if self._counter.clock_seconds - began >= cpu_seconds:
                    return False
            if self.unknown is None:
                self.result = ExpertPages(self._layers, self._map.experts, tuple(self._cached), tuple(self._whole))
        except OSError as error:
            self.unknown = why_unknown(error)
            self._work.close()
        finally:
            self.cpu_seconds += self._cpu_clock() - began
        return True

    def close(self) -> None:
        """Give up; closes the file that is being looked at."""
        self._work.close()

    def _tensors(self) -> Generator[None, None, None]:
        """Count tensor after tensor, in file order."""
        cells = self._layers * self._map.experts
        self._cached, self._whole = [0] * cells, [0] * cells
        by_part: dict[int, list[ExpertTensor]] = {}
        for tensor in self._map.tensors:
            by_part.setdefault(tensor.part, []).append(tensor)
        for part, tensors in by_part.items():
            with self._counter.open(self._paths[part]) as status:
                if status.st_size != self._map.part_bytes[part]:
                    name = os.path.basename(self._paths[part])
                    self.unknown = f"{name} is not the file it was: it has {status.st_size} bytes now"
                    return
                for tensor in tensors:
                    yield from self._slices(tensor)

    def _slices(self, tensor: ExpertTensor) -> Generator[None, None, None]:
        """Count all slices of a tensor, together until some are cached and some are not."""
        self._add_whole(tensor)
        index, total = 0, 0
        together = not self._mixed
        while index < tensor.count:
            fitting = max(1, self._counter.slice_pages * PAGE_BYTES // tensor.slice_bytes)
            stop = min(tensor.count, index + fitting) if together else index + 1
            first, last = _pages(tensor, index, stop)
            cached = self._count(first, last)
            yield
            if stop - index > 1 and 0 < cached < last - first:
                together = False
                continue
            for one in range(index, stop) if cached else ():
                first, last = _pages(tensor, one, one + 1)
                # All of it, or it is the only one.
                self._add(tensor, one, min(cached, last - first))
            total += cached
            index = stop
        first, last = _pages(tensor, 0, tensor.count)
        self._mixed = 0 < total < last - first

    def _count(self, first: int, last: int) -> int:
        """Cached pages from `first` up to `last`; never a long call."""
        cached = 0
        while first < last:
            stop = min(last, first + self._counter.slice_pages)
            self._untimed += stop - first
            timed = self._untimed > MOST_UNTIMED_PAGES
            cached += self._counter.count(first, stop - first, timed=timed).cached
            self.calls += 1
            first = stop
            if timed:
                self._untimed = 0
        return cached

    def _add_whole(self, tensor: ExpertTensor) -> None:
        """A call a slice would be the larger part of the cost of a look at a cold model."""
        if tensor.count != self._map.experts:
            for index in range(tensor.count):
                first, last = _pages(tensor, index, index + 1)
                for cell in self._cells(tensor, index):
                    self._whole[cell] += last - first
            return
        start, cell = tensor.offset, tensor.layer * tensor.count
        for at in range(cell, cell + tensor.count):
            end = start + tensor.slice_bytes
            self._whole[at] += -(-end // PAGE_BYTES) - start // PAGE_BYTES
            start = end

    def _add(self, tensor: ExpertTensor, index: int, cached: int) -> None:
        for cell in self._cells(tensor, index):
            self._cached[cell] += cached

    def _cells(self, tensor: ExpertTensor, index: int) -> range:
        """A slice belongs to one expert, or to several neighbours where a layer has fewer slices than experts."""
        experts, before = self._map.experts, tensor.layer * self._map.experts
        if tensor.alone is not None:
            return range(before + tensor.alone, before + tensor.alone + 1)
        # Exactly the experts e with e * count // experts == index, as gguf.experts.expert_slices has it.
        first, last = -(-index * experts // tensor.count), -(-(index + 1) * experts // tensor.count)
        return range(before + first, before + last)


def _pages(tensor: ExpertTensor, index: int, stop: int) -> tuple[int, int]:
    """Pages (first, past the last) that hold a byte of the slices `index` up to `stop`."""
    start, end = tensor.offset + index * tensor.slice_bytes, tensor.offset + stop * tensor.slice_bytes
    return start // PAGE_BYTES, -(-end // PAGE_BYTES)
