from __future__ import annotations

import hashlib
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.host.own_sha256 import sha256


@given(st.lists(st.binary(max_size=300), max_size=8))
def test_it_is_what_everybody_else_calls_sha_256(pieces: list[bytes]) -> None:
    digest = sha256()
    for piece in pieces:
        digest.update(piece)
    assert digest.hexdigest() == hashlib.sha256(b"".join(pieces)).hexdigest()
    assert sha256(b"".join(pieces)).hexdigest() == digest.hexdigest()


def test_where_python_has_none_of_its_own_hashlib_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_sha2", "_sha256"):
        monkeypatch.setitem(sys.modules, name, None)
    assert sha256(b"abc").hexdigest() == hashlib.sha256(b"abc").hexdigest()


def test_openssl_is_not_loaded() -> None:
    pytest.importorskip("_sha256" if sys.version_info < (3, 12) else "_sha2")
    script = (
        "import sys; from moetuned.host.own_sha256 import sha256; sha256(b'abc').hexdigest();"
        "print('hashlib' in sys.modules, 'libcrypto' in open('/proc/self/maps').read())"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "False False\n"
