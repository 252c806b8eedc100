"""/proc/vmstat: counters of the whole machine, in pages."""

from __future__ import annotations

from moetuned.parse.kernel_numbers import line_number
from moetuned.schema.sample import VmStat


def parse_vmstat(text: str | None) -> VmStat | None:
    """Counters by name; None for no text. Kernels before 5.9 have one `workingset_refault` for file pages."""
    if text is None:
        return None
    refault_file = line_number(text, "workingset_refault_file")
    return VmStat(
        refault_file_pages=line_number(text, "workingset_refault") if refault_file is None else refault_file,
        refault_anon_pages=line_number(text, "workingset_refault_anon"),
        swap_in_pages=line_number(text, "pswpin"),
        swap_out_pages=line_number(text, "pswpout"),
        scan_direct_pages=line_number(text, "pgscan_direct"),
        major_faults=line_number(text, "pgmajfault"),
    )
