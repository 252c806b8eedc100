from __future__ import annotations

import pytest
from fakes.fake_kernel import Text, add_disk, usual_kernel

from moetuned.schema.swap import SwapKind, SwapStep, SwapStepKind
from moetuned.schema.tunable import Targets
from moetuned.tunables import vm_page_cluster, vm_swappiness

HEAD = "Filename\tType\tSize\tUsed\tPriority\n"


@pytest.mark.parametrize(
    ("swaps", "release", "profile", "value", "says"),
    [
        ("", "6.12.0", "moe-offload", None, "no swap is on"),
        ("/dev/zram0 partition 4096 0 5\n", "6.12.0", "moe-offload", "133", "compressed in RAM"),
        ("/dev/zram0 partition 4096 0 5\n", "5.4.0-generic", "moe-offload", "100", "takes no more than 100"),
        ("/dev/sda partition 4096 0 5\n", "6.12.0", "moe-offload", "10", "rotational disk: /dev/sda"),
        ("", "6.12.0", "moe-offload-zram", None, "no swap is on"),
        ("/dev/zram0 partition 4096 0 5\n", "6.12.0", "moe-offload-zram", "133", "compressed in RAM"),
    ],
)
def test_its_value_follows_where_swap_lives(
    swaps: str, release: str, profile: str, value: str | None, says: str
) -> None:
    kernel = usual_kernel()
    add_disk(kernel, "sda", "8:0", 128, rotational=True)
    kernel.files["/proc/swaps"] = Text(HEAD + swaps)
    kernel.files["/proc/sys/kernel/osrelease"] = Text(release + "\n")
    kernel.files["/proc/self/mountinfo"] = Text("1 1 0:6 / /dev rw - devtmpfs devtmpfs rw\n")
    (spec,) = vm_swappiness.instances(kernel, Targets(profile=profile), lambda _path: (8, 0))
    assert (None if spec.skip else spec.wanted[profile]) == value
    assert says in (spec.skip or spec.because)


@pytest.mark.parametrize(
    ("kind", "value", "says"),
    [(SwapStepKind.MAKE, "133", "swap zram (to be made)"), (SwapStepKind.SKIPPED, None, "swap zram: there is no zram")],
)
def test_what_is_planned_counts_only_where_it_will_be_made(kind: SwapStepKind, value: str | None, says: str) -> None:
    reason = "there is no zram" if kind is SwapStepKind.SKIPPED else ""
    step = SwapStep("swap zram", SwapKind.ZRAM, kind, "auto", reason=reason, priority=100)
    targets = Targets(profile="moe-offload-zram", swap=(step,))
    for module in (vm_swappiness, vm_page_cluster):
        (spec,) = module.instances(usual_kernel(), targets, lambda _path: (8, 0))
        assert (spec.skip is None) is (value is not None)
        assert says in (spec.skip or spec.because)
