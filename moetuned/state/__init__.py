"""What outlives a tick: undo journal, history, traces."""
