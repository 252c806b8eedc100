"""Inference servers moetuned knows, one file each, found by name."""
