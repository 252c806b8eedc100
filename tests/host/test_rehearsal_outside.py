import errno

import pytest

from moetuned.host import rehearsal_outside
from moetuned.host.rehearsal_outside import error_outside

OPENS = "import sys\ntry: open(sys.argv[1]); print(0)\nexcept OSError as error: print(error.errno)"


def test_the_number_that_the_code_prints(tmp_path):
    (tmp_path / "there").touch()
    assert error_outside(OPENS, str(tmp_path / "there")) == 0
    assert error_outside(OPENS, str(tmp_path / "not there")) == errno.ENOENT


@pytest.mark.parametrize("code", ["", "print('EPERM')", "print(1, 2)", "raise SystemExit(1)"])
def test_what_prints_no_number_is_not_known(code):
    assert error_outside(code) is None


def test_what_comes_too_late_is_not_known(monkeypatch):
    monkeypatch.setattr(rehearsal_outside, "_SECONDS", 0.0)
    assert error_outside("import signal; signal.pause(); print(0)") is None


def test_what_cannot_be_started_is_not_known():
    assert error_outside("print(0)", "a\0b") is None
