from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from moetuned import alerts


def test_find_by_name():
    from moetuned.alerts import exec as exec_sink

    assert alerts.find("exec").send is exec_sink.send


def test_unknown_kind_names_the_known_ones():
    with pytest.raises(LookupError, match=r"no sink 'nope'; there are: .*exec"):
        alerts.find("nope")


def test_finding_kinds_imports_none():
    code = "import sys, moetuned.alerts as a; a.kinds(); print([m for m in sys.modules if m.startswith('moetuned.alerts.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_every_sink_has_a_manual_entry_and_send():
    for kind in alerts.kinds():
        module = importlib.import_module(f"moetuned.alerts.{kind}")
        assert module.__doc__
        assert callable(module.send)


def test_what_the_daemon_imports_of_sinks_is_small():
    large = {"http.client", "ssl", "email", "email.message", "urllib.request", "urllib.parse", "asyncio", "html"}
    code = (
        "import sys; from moetuned import alerts; before = set(sys.modules); [alerts.find(kind) for kind in alerts.kinds()]\n"
        "print('\\n'.join(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not large & set(done.stdout.split())
