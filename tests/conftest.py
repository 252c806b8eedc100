"""Makes `fakes` importable from every test directory (pytest puts this file's directory on the path)."""
