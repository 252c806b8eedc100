"""Kernel settings moetuned may change, one file each, found by name."""
