from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from moetuned import alerts
from moetuned.schema.alert import JOURNAL, Alert


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


ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("kind", alerts.kinds())
def test_every_sink_is_whole(kind):
    """Its manual entry, what the daemon needs of it, its test, and its place in the docs with an example."""
    module = importlib.import_module(f"moetuned.alerts.{kind}")
    assert (module.__doc__ or "").startswith(f"Sink `{kind}`: ")
    assert alerts.find(kind).send is module.send
    assert (ROOT / "tests" / "alerts" / f"test_alerts_{kind}.py").exists()
    sinks = (ROOT / "docs" / "alerts.md").read_text().partition("\n## Sinks\n")[2].partition("\n## ")[0]
    section = sinks.partition(f"\n### {kind}\n")[2].partition("\n### ")[0]
    assert f"kind: {kind}\n" in section or kind == JOURNAL
    assert "\n```" in section


def test_what_a_config_may_name_is_there():
    assert {str(each.__struct_config__.tag) for each in get_args(Alert)} == {*alerts.kinds()} - {JOURNAL}


def test_what_the_daemon_imports_of_sinks_is_small():
    large = {"http.client", "ssl", "email", "email.message", "urllib.request", "urllib.parse", "asyncio", "html"}
    code = (
        "import sys; from moetuned import alerts; before = set(sys.modules); [alerts.find(kind) for kind in alerts.kinds()]\n"
        "print('\\n'.join(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not large & set(done.stdout.split())
