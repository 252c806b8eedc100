import re

import msgspec
from msgspec import inspect

from moetuned.parse.config_sample import reference_page, sample_config
from moetuned.parse.config_text import load_with_warnings
from moetuned.schema.config import Config, Profile
from moetuned.schema.event import EventName


def test_the_sample_tunes_and_alerts_and_leaves_the_rest_at_its_defaults():
    config, warnings = load_with_warnings([("sample", sample_config())])
    assert warnings == ()
    assert config.tuning.profile is Profile.MOE_OFFLOAD
    assert config.alerts[0].directory == "/etc/moetuned/hooks.d"
    assert config.alerts[0].on == [EventName.THRASH_BEGIN, EventName.MEMORY_NEAR_LIMIT]
    assert msgspec.structs.replace(config, tuning=Config().tuning, alerts=[]) == Config()


def test_every_key_that_is_off_is_right_when_turned_on():
    off = re.findall(r"(?m)^ *#(?=[^ #\n])", sample_config())
    text = re.sub(r"(?m)^( *)#(?=[^ #\n])", r"\1", sample_config())
    config, warnings = load_with_warnings([("sample", text)])
    assert len(off) > 20
    assert warnings == ()
    assert config.backends[0].name == "glm"
    assert config.tuning.thp == "never"
    assert config.warm.rate == "1GiB"


def test_every_key_of_the_config_is_in_the_sample_and_on_the_page():
    def names(info):
        if isinstance(info, inspect.StructType):
            for field in info.fields:
                yield field.encode_name
                yield from names(field.type)
        for inner in (getattr(info, "type", None), getattr(info, "item_type", None), *getattr(info, "types", ())):
            if inner is not None:
                yield from names(inner)

    every = set(names(inspect.type_info(Config)))
    assert {"tuning", "command", "minimum", "group"} <= every
    sample, page = sample_config(), reference_page()
    for name in every:
        assert re.search(rf"\b{name}:", sample), name
        assert f"| `{name}` |" in page, name


def test_lines_fit_a_screen():
    assert max(len(line) for line in sample_config().split("\n")) <= 120
