"""What `llama-fit-params --fit-print on` prints: one line a device, "Host 2 16 32": MiB of model, context and compute."""

from __future__ import annotations

import re

import msgspec

_LINE = re.compile(r"^(\S{1,64}) (\d{1,9}) (\d{1,9}) (\d{1,9})\s*$", re.MULTILINE)


class FitParams(msgspec.Struct, frozen=True):
    """MiB on all devices together."""

    model_mib: int
    context_mib: int
    compute_mib: int


def parse_fit_params(text: str) -> FitParams | None:
    """The sums; None when the text has no such line."""
    lines = _LINE.findall(text)
    if not lines:
        return None
    sums = [sum(int(line[column]) for line in lines) for column in (1, 2, 3)]
    return FitParams(*sums)
