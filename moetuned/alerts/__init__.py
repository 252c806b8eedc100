"""Alert sinks, one file each, found by name."""
