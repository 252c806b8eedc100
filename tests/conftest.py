"""Makes `fakes` importable from every test directory (pytest puts this file's directory on the path).

No test asserts how long something takes, hypothesis's deadline included: speed is measured in tests/bench.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.booted_systemd import BootedSystemd, booted
from fakes.debian_package import build
from hypothesis import HealthCheck, settings

# What daemons of tests have to say is nothing for the machine's journal; a test that wants one makes it.
os.environ["MOETUNED_JOURNAL_SOCKET"] = ""

# Each run draws other examples, so that a few each time come to many. --hypothesis-profile=thorough: many at once.
settings.register_profile("moetuned", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("thorough", settings.get_profile("moetuned"), max_examples=1000)
settings.load_profile("moetuned")


@pytest.fixture(scope="module")
def booted_systemd() -> Iterator[BootedSystemd]:
    """A systemd for all tests of a module; mark them `systemd`."""
    with booted() as machine:
        yield machine


@pytest.fixture(scope="session")
def debian_package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Debian package of this checkout, built once."""
    return build(tmp_path_factory.mktemp("deb"))
