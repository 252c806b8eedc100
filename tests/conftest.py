"""Makes `fakes` importable from every test directory (pytest puts this file's directory on the path).

No test asserts how long something takes, hypothesis's deadline included: speed is measured in tests/bench.
"""

from hypothesis import settings

settings.register_profile("moetuned", deadline=None)
settings.load_profile("moetuned")
