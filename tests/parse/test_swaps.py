from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.parse.swaps import parse_swaps, zram_number
from moetuned.schema.swap import ActiveSwap

HEAD = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"
REAL = (
    HEAD + "/dev/nvme0n1p3                          partition\t16777212\t\t524288\t\t-2\n"
    "/tmp/swap/a\\040b\\134c\\012#f             file\t\t65532\t\t0\t\t5\n"
    "/var/swapfile\\040(deleted)              file\t\t65532\t\t12\t\t-3\n"
    "/dev/zram0                              partition\t4194300\t\t0\t\t100\n"
)


def kernel_line(swap: ActiveSwap) -> str:
    """As swap_show of mm/swapfile.c writes it (seq_file_path escapes blank, tab, newline and backslash)."""
    name = "".join(f"\\{ord(one):03o}" if one in " \t\n\\" else one for one in swap.name)
    name += "\\040(deleted)" if swap.deleted else ""
    size, used = swap.size_bytes >> 10, swap.used_bytes >> 10
    kind = "partition" if swap.kind == "partition" else "file\t"
    return (
        f"{name}{' ' * max(1, 40 - len(name))}{kind}\t{size}\t{'' if size >= 10000000 else chr(9)}"
        f"{used}\t{'' if used >= 10000000 else chr(9)}{swap.priority}\n"
    )


def test_what_a_kernel_wrote() -> None:
    assert parse_swaps(REAL) == (
        ActiveSwap("/dev/nvme0n1p3", "partition", 16777212 * 1024, 524288 * 1024, -2),
        ActiveSwap("/tmp/swap/a b\\c\n#f", "file", 65532 * 1024, 0, 5),
        ActiveSwap("/var/swapfile", "file", 65532 * 1024, 12 * 1024, -3, deleted=True),
        ActiveSwap("/dev/zram0", "partition", 4194300 * 1024, 0, 100),
    )


@pytest.mark.parametrize("text", ["", HEAD, "Filename", HEAD + "/dev/sda2 partition 10 0 -2"])
def test_no_swap_or_a_line_that_was_cut(text: str) -> None:
    assert parse_swaps(text) == ()


@pytest.mark.parametrize(
    "line",
    ["/x file 10 0", "/x file 10 0 1 2", "/x file ten 0 1", "/x file 10 -1 1", "/x file 10 0 --1", "/x file 10 0 1.5"],
)
def test_strange_lines_are_left_out(line: str) -> None:
    good = "/dev/sda2 partition 10 0 -2\n"
    assert [swap.name for swap in parse_swaps(f"{HEAD}{line}\n{good}")] == ["/dev/sda2"]


@pytest.mark.parametrize(
    ("name", "kind", "number"),
    [
        ("/dev/zram0", "partition", 0),
        ("/zram12", "partition", 12),
        ("/dev/zram", "partition", None),
        ("/dev/zram0p1", "partition", None),
        ("/data/zram0", "file", None),
        ("/dev/zram١", "partition", None),
    ],
)
def test_which_zram(name: str, kind: str, number: int | None) -> None:
    assert zram_number(ActiveSwap(name, kind, 4096, 0, 1)) == number


NAMES = st.text(
    st.characters(exclude_characters="\0", exclude_categories=("Cs",)) | st.sampled_from(" \t\n\\"),
    min_size=1,
    max_size=60,
).filter(lambda name: not name.endswith(" (deleted)"))
# What else splits lines in Python is an ordinary character of a name.
SWAPS = st.builds(
    ActiveSwap,
    name=NAMES.map(lambda name: f"/{name}"),
    kind=st.sampled_from(("partition", "file")),
    size_bytes=st.integers(0, 1 << 40).map(lambda size: size * 1024),
    used_bytes=st.integers(0, 1 << 40).map(lambda size: size * 1024),
    priority=st.integers(-32768, 32767),
    deleted=st.booleans(),
)


@given(st.lists(SWAPS, max_size=4))
def test_what_the_kernel_writes_is_read_back(swaps: list[ActiveSwap]) -> None:
    assert parse_swaps(HEAD + "".join(map(kernel_line, swaps))) == tuple(swaps)


@given(st.text(max_size=300))
def test_any_text_is_read_without_an_error(text: str) -> None:
    for swap in parse_swaps(text):
        assert swap.size_bytes >= 0
        zram_number(swap)


@given(st.text(st.sampled_from("\\0147 x/\t\n-9"), max_size=80))
def test_any_escapes_are_read_without_an_error(text: str) -> None:
    parse_swaps(HEAD + text)
