"""Facts of machines for the tests of `moetunectl setup`, and the command on a terminal with such facts instead of this machine's."""

from __future__ import annotations

import msgspec

from moetuned.schema.config import Config
from moetuned.schema.setup import Candidate, Looked, ServiceState, SettingChange, SetupFacts, Way

CONFIG_PATH = "/etc/moetuned/conf.d/50-setup.yaml"
MODEL = Candidate(
    "glm-4.5-air",
    Way.CREATED,
    "model /models/glm-4.5-air-00001-of-00002.gguf, 62.1 GiB, glm4moe",
    model="/models/glm-4.5-air-00001-of-00002.gguf",
    size_bytes=62 << 30,
    fits=True,
    judgement="streams from the disk, a forecast of 3.1 to 7.4 tokens/s",
    context=16384,
    longest=32768,
    trained=131072,
    slots=1,
    environment=(
        ("MODEL", "/models/glm-4.5-air-00001-of-00002.gguf"),
        ("HOST", "127.0.0.1"),
        ("PORT", "8080"),
        ("MOETUNED_CONTEXT", "16384"),
        ("MOETUNED_SLOTS", "1"),
    ),
)
TOO_LARGE = Candidate(
    "kimi",
    Way.CREATED,
    "model /models/kimi.gguf, 400 GiB",
    model="/models/kimi.gguf",
    fits=False,
    judgement="does not fit: 12 GiB are missing",
)
FACTS = SetupFacts(
    CONFIG_PATH,
    Config(),
    Config(),
    systemd=True,
    service=ServiceState(installed=True, template=True),
    candidates=(MODEL, TOO_LARGE),
    looked=(Looked("/models", 2), Looked("/srv", 0, "not looked at all of it: it takes too long")),
    settings=(SettingChange("vm.swappiness", "60", "10"),),
)
DRIVER = """
import contextlib, os, sys
import msgspec
from moetuned.cli import main, setup_deeds, setup_run
from moetuned.host.setup_record import SetupRecord
from moetuned.schema.setup import SetupFacts
facts = msgspec.json.decode(sys.argv[1], type=SetupFacts)
setup_run.gather = lambda *_: facts
setup_run._record = SetupRecord
setup_run.only_one = lambda _: contextlib.nullcontext()
setup_run.load_checked = lambda _: None
os.geteuid = lambda: 0
setup_deeds.check_writable = lambda _: None
def carry_out(deeds, record, directory, say):
    print("CARRIED OUT", len(deeds))
    return []
setup_deeds.carry_out = carry_out
setup_deeds.wait_for_daemon = lambda *_: None
setup_run.wait_for_units = lambda *_: {}
sys.exit(main.run(sys.argv[2:]))
"""


def packed(facts: SetupFacts = FACTS) -> str:
    """For `DRIVER`."""
    return msgspec.json.encode(facts).decode()
