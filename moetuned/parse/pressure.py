"""PSI files: /proc/pressure/* and a cgroup's *.pressure (Documentation/accounting/psi.rst).

Only `total` is read: shares over the daemon's own interval are made from it; the kernel's averages lag.
"""

from __future__ import annotations

from moetuned.parse.kernel_numbers import line_value, whole_number
from moetuned.schema.sample import Pressure


def parse_pressure(text: str | None) -> Pressure | None:
    """Stall totals in microseconds; None for no text or text without any total (PSI switched off)."""
    if text is None:
        return None
    some, full = _total(text, "some"), _total(text, "full")
    return None if some is None and full is None else Pressure(some_total_us=some, full_total_us=full)


def _total(text: str, kind: str) -> int | None:
    line = line_value(text, kind, " ")
    if line is None:
        return None
    _, marker, value = line.rpartition("total=")
    return whole_number(value) if marker else None
