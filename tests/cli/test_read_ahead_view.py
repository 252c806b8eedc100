"""The plot of `tune readahead`: within the width, present and best value marked, nothing but text."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.cli.read_ahead_view import ReadAheadReport, ValueLine, plot, render

VALUES = (
    ValueLine(16, 400, 111e6, 1.2, 0.76),
    ValueLine(128, 400, 162e6, 2.1, 1.0),
    ValueLine(8192, 20, 4.4e6, 39.5, 0.022),
)
REPORT = ReadAheadReport(
    model="/models/a.gguf", model_bytes=900 << 20, slice_bytes=442368, device="vda",
    setting="/sys/block/vda/bdi/read_ahead_kb", now_kib=8192, best_kib=128, computed_kib=128, computed_because="",
    cached_bytes=500 << 20, cached_ratio=0.5, threads=2, seconds=31.0, read_bytes=1 << 30, values=VALUES,
    notes=("what was read is not in memory any more",),
)  # fmt: skip


def test_the_whole_of_it() -> None:
    assert render(REPORT) == (
        "Read-ahead of vda for expert slices of 432 KiB, 2 readers, with 500 MiB of the\n"
        "model's 900 MiB in memory:\n"
        "\n"
        "   KiB  slices at    read  expected speed\n"
        "    16   111 MB/s    1.2x  ############################# 76 %\n"
        "   128   162 MB/s    2.1x  ###################################### 100 %  <- best\n"
        "  8192   4.4 MB/s   39.5x  # 2 %  <- now\n"
        "\n"
        "Expected speed: slices a second, less what reading in vain pushes out of memory,\n"
        "as a share of the fastest; of those within 10 % of the fastest the smallest is\n"
        "best, as it reads least (below 64 KiB only if 20 % faster).\n"
        "\n"
        "128 KiB is the best of them here: 45 times as fast as the present 8192 KiB,\n"
        "reading 5 % as much.\n"
        "note: what was read is not in memory any more\n"
    )


def test_the_present_value_may_be_the_best() -> None:
    lines = plot(VALUES, 128, 128, 80)
    assert [line for line in lines if "<-" in line] == [lines[2]]
    assert lines[2].endswith("<- now and best")
    assert "The present 128 KiB is the best" in render(msgspec.structs.replace(REPORT, now_kib=128))


def test_what_the_kernel_does_not_count_is_a_question_mark() -> None:
    assert "    ?  #" in plot((ValueLine(64, 10, 1e8, None, 1.0),), 64, 64, 80)[1]


@given(
    st.lists(
        st.builds(
            ValueLine, st.integers(4, 65536), st.integers(1, 9999), st.floats(0, 1e11),
            st.none() | st.floats(0, 1e4), st.floats(0, 1),
        ),
        min_size=1, max_size=16,
    ),
    st.integers(60, 120),
)  # fmt: skip
def test_no_line_is_wider_than_the_terminal(values: list[ValueLine], width: int) -> None:
    lines = plot(values, values[0].kib, values[-1].kib, width)
    assert len(lines) == 1 + len(values)
    assert max(map(len, lines)) <= width
    assert all(line.isascii() and line.isprintable() for line in lines)


def test_another_computed_value_is_said() -> None:
    assert "computed" not in render(REPORT)
    assert "The profiles set 256 KiB, computed" in render(msgspec.structs.replace(REPORT, computed_kib=256))


@pytest.mark.parametrize("width", [10, 60, 80])
def test_the_report_fits_too(width: int) -> None:
    assert max(map(len, render(REPORT, width).splitlines())) <= max(60, width)


def test_noise_is_said_and_the_computed_value_proposed() -> None:
    text = " ".join(render(msgspec.structs.replace(REPORT, noisy=True, noise_ratio=0.46, computed_kib=128)).split())
    assert "<- computed" in text
    assert "Too noisy to tell: the rounds differ by up to 46 %, more than the values do, so 128 KiB, computed" in text
    assert "is the best" not in text
    kept = msgspec.structs.replace(REPORT, noisy=True, best_kib=8192, computed_kib=None)
    assert "the present 8192 KiB is kept" in " ".join(render(kept).split())


def test_where_all_fits_into_memory_nothing_is_pushed_out() -> None:
    assert "as all fits into memory" in " ".join(render(msgspec.structs.replace(REPORT, cached_ratio=1.0)).split())
