"""moetunectl, one file a command."""
