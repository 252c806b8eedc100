from __future__ import annotations

from moetuned.tunables import vm_overcommit_memory


def test_strict_accounting_is_warned_of() -> None:
    assert vm_overcommit_memory.warn("1") is None
    assert vm_overcommit_memory.warn("2")
