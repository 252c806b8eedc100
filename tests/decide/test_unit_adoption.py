"""Drop-ins for units: what they say, and what is refused. The kinds are the real ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned import backends
from moetuned.decide import unit_adoption
from moetuned.decide.unit_adoption import (
    Adoption,
    AdoptionError,
    Kind,
    made_directory,
    plan_adoption,
    set_by,
    undo_words,
)
from moetuned.host import service as service_module
from moetuned.parse.persisted_file import Standing, standing
from moetuned.parse.unit_file import UnitFile, merge_service

UNIT = "/etc/systemd/system/llama.service"
ENVIRONMENT = "/run/moetuned/backends/glm.env"
DROP_IN = "/etc/systemd/system/llama.service.d/zz-moetuned.conf"


def find(argv: Sequence[str]) -> Kind | None:
    kind = backends.find(argv)
    return None if kind is None else Kind(kind.NAME, kind.SETTINGS)


def adopt(
    *lines: str,
    more: Sequence[UnitFile] = (),
    read_now: Sequence[str] = (),
    files_say: Mapping[str, str] = MappingProxyType({}),
    makes_directory: bool = False,
) -> Adoption:
    files = [UnitFile(UNIT, "[Service]\n" + "".join(f"{line}\n" for line in lines)), *more]
    return plan_adoption(
        "llama.service",
        "glm",
        files,
        find,
        "/run/moetuned/backends",
        read_now,
        files_say=files_say,
        makes_directory=makes_directory,
    )


def command_of(plan: Adoption) -> str | None:
    """The command in its drop-in; None: it has none."""
    commands = merge_service([UnitFile(plan.path, plan.text or "")]).commands
    return commands[-1][1] if commands else None


def refused(*lines: str, more: Sequence[UnitFile] = ()) -> str:
    with pytest.raises(AdoptionError) as caught:
        adopt(*lines, more=more)
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_what_may_be_set_is_what_the_service_interface_says() -> None:
    assert unit_adoption.VALUES == service_module.VALUES
    for name in backends.names():
        assert set(backends.load(name).SETTINGS) <= set(service_module.VALUES)


def test_a_llama_server_with_its_values_on_the_command() -> None:
    plan = adopt("ExecStart=/opt/llama-server -m /m.gguf -c 32768 -np 1 --cache-ram=2048 -fa on")
    assert plan.path == DROP_IN
    assert plan.text is not None
    assert plan.text.partition("\n[Service]\n")[2] == (
        "# What its command said. The file below goes before; where it is not there, this counts.\n"
        "Environment=MOETUNED_CONTEXT=32768 MOETUNED_PROMPT_CACHE_MIB=2048 MOETUNED_SLOTS=1\n"
        f"EnvironmentFile=-{ENVIRONMENT}\n"
        "ExecStart=\n"
        "ExecStart=/opt/llama-server -m /m.gguf -c ${MOETUNED_CONTEXT} -np ${MOETUNED_SLOTS}"
        " --cache-ram=${MOETUNED_PROMPT_CACHE_MIB} -fa on\n"
        "\n"
        "[X-Moetuned]\n"
        "# For moetuned; systemd passes it over.\n"
        "context=MOETUNED_CONTEXT\n"
        "prompt_cache_mib=MOETUNED_PROMPT_CACHE_MIB\n"
        "slots=MOETUNED_SLOTS\n"
        "checkpoints=LLAMA_ARG_CTX_CHECKPOINTS\n"
        "cache_type=LLAMA_ARG_CACHE_TYPE_K LLAMA_ARG_CACHE_TYPE_V\n"
    )
    assert {each.name: each.now for each in plan.settings} == {
        "context": ("32768",), "prompt_cache_mib": ("2048",), "slots": ("1",), "checkpoints": (None,), "cache_type": (None, None),
    }  # fmt: skip
    assert standing(plan.text, undo_words("llama.service")) is Standing.OURS
    assert plan.left_out == ()


def test_a_unit_that_says_it_by_variables_keeps_its_command() -> None:
    plan = adopt("Environment=LLAMA_ARG_CTX_SIZE=8192", "ExecStart=llama-server -m /m.gguf")
    assert plan.text is not None
    assert "ExecStart" not in plan.text
    assert "Environment=" not in plan.text
    assert plan.settings[0].variables == ("LLAMA_ARG_CTX_SIZE",)
    assert plan.settings[0].now == ("8192",)


def test_the_command_goes_before_the_variable_and_a_variable_on_it_is_used() -> None:
    plan = adopt(
        "Environment=LLAMA_ARG_CTX_SIZE=1 CTX=4096", "ExecStart=llama-server -c ${CTX} -ctk q8_0 -ctv f16 -fa auto"
    )
    settings = {each.name: each for each in plan.settings}
    assert (settings["context"].variables, settings["context"].now) == (("CTX",), ("4096",))
    assert settings["cache_type"].variables == ("MOETUNED_CACHE_TYPE_K", "MOETUNED_CACHE_TYPE_V")
    assert plan.text is not None
    assert "Environment=MOETUNED_CACHE_TYPE_K=q8_0 MOETUNED_CACHE_TYPE_V=f16\n" in plan.text


@pytest.mark.parametrize("flash", ["", "-fa off", "-fa ${FA}"])
def test_a_quantised_cache_needs_flash_attention(flash: str) -> None:
    plan = adopt(f"ExecStart=llama-server -c 4096 {flash}")
    assert [(each.name, "-fa on" in each.reason) for each in plan.left_out] == [("cache_type", True)]
    assert not any(
        each.name == "cache_type"
        for each in adopt("Environment=LLAMA_ARG_FLASH_ATTN=on", "ExecStart=llama-server").left_out
    )


def test_ollama_takes_its_context_by_slot() -> None:
    plan = adopt("ExecStart=/usr/local/bin/ollama serve", "Environment=OLLAMA_CONTEXT_LENGTH=8192")
    assert {each.name: each.variables for each in plan.settings} == {
        "context": ("OLLAMA_CONTEXT_LENGTH",),
        "prompt_cache_mib": ("LLAMA_ARG_CACHE_RAM",),
        "slots": ("OLLAMA_NUM_PARALLEL",),
        "cache_type": ("OLLAMA_KV_CACHE_TYPE",),
    }
    several = adopt("ExecStart=ollama serve", "Environment=OLLAMA_NUM_PARALLEL=4")
    assert "context" not in {each.name for each in several.settings}
    assert "OLLAMA_NUM_PARALLEL is 4" in next(each.reason for each in several.left_out if each.name == "context")


def test_koboldcpp_and_llama_cpp_python() -> None:
    kobold = adopt("ExecStart=/opt/koboldcpp --model /m.gguf --contextsize 8192")
    assert command_of(kobold) == "/opt/koboldcpp --model /m.gguf --contextsize ${MOETUNED_CONTEXT}"
    assert "does not say it (--contextsize)" in refused("ExecStart=/opt/koboldcpp --model /m.gguf")
    assert "config file" in refused("ExecStart=/opt/koboldcpp --config /k.kcpps")
    python = adopt("ExecStart=/v/bin/python -m llama_cpp.server --n_ctx 4096")
    assert command_of(python) == "/v/bin/python -m llama_cpp.server --n_ctx ${MOETUNED_CONTEXT}"
    assert adopt("ExecStart=/v/bin/python -m llama_cpp.server").settings[0].variables == ("N_CTX",)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("ExecStart=/bin/sh -c 'exec llama-server -c 4096'", "runs /bin/sh, which moetuned does not know"),
        ("ExecStart=/usr/bin/numactl -N 0 llama-server -c 4096", "does not know"),
        ("ExecStart=/usr/bin/engine -c 4096", "does not know"),
        ("ExecStart=%h/llama-server -c 4096", "does not know"),
        ("ExecStart=llama-server $OPTIONS", r"may be flags ($OPTIONS): write them out"),
        ("ExecStart=llama-server -c 4096 ; /bin/true", "more than one command"),
        ("Type=oneshot\nExecStart=llama-server -c 1", "oneshot"),
        ("ExecStart=:llama-server -c 4096", "begins with :"),
        ("User=me", "has no ExecStart="),
        ("ExecStart=llama-server -c 'x", "quote"),
        ("ExecStart=llama-server -c", "-c without a value"),
    ],
)
def test_what_cannot_be_done_with_certainty_says_what_to_do_by_hand(line: str, said: str) -> None:
    text = refused(line)
    assert said in text
    assert f"EnvironmentFile=-{ENVIRONMENT}" in text
    assert "${MOETUNED_CONTEXT}" in text


@pytest.mark.parametrize("value", ["%i", "4${K}", "many", "-1x", "9999999999", "4096;", "q8_0", "''"])
def test_a_value_that_is_no_plain_one_is_left_out(value: str) -> None:
    plan = adopt(f"ExecStart=llama-server -c {value}")
    assert "context" in {each.name for each in plan.left_out}


def test_a_variable_that_the_unit_takes_away_is_left_out() -> None:
    plan = adopt("ExecStart=llama-server", "UnsetEnvironment=LLAMA_ARG_CACHE_RAM X=1")
    assert next((each.name, each.reason) for each in plan.left_out) == (
        "prompt_cache_mib", "UnsetEnvironment= takes LLAMA_ARG_CACHE_RAM away",
    )  # fmt: skip


def test_the_command_of_an_owners_drop_in_counts() -> None:
    override = UnitFile(
        f"{UNIT}.d/override.conf", "[Service]\nExecStart=\nExecStart=llama-server -c 8192\nEnvironmentFile=/etc/x\n"
    )
    plan = adopt("ExecStart=llama-server -c 4096", more=[override])
    assert command_of(plan) == "llama-server -c ${MOETUNED_CONTEXT}"


@pytest.mark.parametrize("line", ["ExecStart=\nExecStart=llama-server -c 1", "EnvironmentFile=/etc/llama"])
def test_what_is_read_later_and_would_undo_it_is_refused(line: str) -> None:
    later = UnitFile(f"{UNIT}.d/zzz.conf", f"[Service]\n{line}\n")
    text = refused("ExecStart=llama-server -c 4096", more=[later])
    assert text.startswith(f"{UNIT}.d/zzz.conf is read after zz-moetuned.conf")


def test_adopting_again_gives_the_same_and_passes_over_its_own() -> None:
    first = adopt("ExecStart=llama-server -c 4096", makes_directory=True)
    assert first.text is not None
    own = UnitFile(DROP_IN, first.text)
    again = adopt("ExecStart=llama-server -c 4096", more=[own], read_now=[ENVIRONMENT], makes_directory=True)
    assert again == first
    assert made_directory(first.text)
    without = adopt("ExecStart=llama-server -c 4096").text
    assert without is not None
    assert not made_directory(without)


def test_a_unit_whose_owner_wrote_it_so_needs_no_drop_in() -> None:
    lines = ("ExecStart=/opt/start-it -c ${MOETUNED_CONTEXT}", "EnvironmentFile=-/run/moetuned/backends/%i.env")
    section = ("[X-Moetuned]", "context=MOETUNED_CONTEXT", "slots=MOETUNED_SLOTS")
    plan = adopt(*lines, *section, read_now=["/etc/x", ENVIRONMENT])
    assert (plan.text, [each.name for each in plan.settings]) == (None, ["context"])
    assert [(each.name, each.reason) for each in plan.left_out] == [("slots", "its command has no ${MOETUNED_SLOTS}")]
    with pytest.raises(AdoptionError, match="nothing in it sets anything"):
        adopt("ExecStart=/opt/start-it", *section, read_now=[ENVIRONMENT])


def test_what_is_said_now_is_what_the_owners_files_say() -> None:
    """EnvironmentFile= goes before Environment=."""
    lines = (
        "ExecStart=/opt/it -c ${MOETUNED_CONTEXT} -np ${MOETUNED_SLOTS}",
        "Environment=MOETUNED_CONTEXT=1 MOETUNED_SLOTS=2",
    )
    section = ("[X-Moetuned]", "context=MOETUNED_CONTEXT", "slots=MOETUNED_SLOTS")
    plan = adopt(*lines, *section, read_now=[ENVIRONMENT], files_say={"MOETUNED_CONTEXT": "8192"})
    assert [each.now for each in plan.settings] == [("8192",), ("2",)]
    plan = adopt("ExecStart=llama-server -c ${CONTEXT}", files_say={"CONTEXT": "4096", "LLAMA_ARG_N_PARALLEL": "3"})
    assert {each.name: each.now for each in plan.settings if each.now[0]} == {"context": ("4096",), "slots": ("3",)}


def test_what_a_restart_can_change_is_what_the_unit_has_now() -> None:
    plan = adopt("ExecStart=llama-server -c 4096 -fa on")
    assert plan.text is not None
    files = [UnitFile(UNIT, "[Service]\nExecStart=llama-server -c 4096 -fa on\n"), UnitFile(DROP_IN, plan.text)]
    found = set_by(merge_service(files), ENVIRONMENT, [ENVIRONMENT])
    assert found.variables == {each.name: each.variables for each in plan.settings}
    assert set_by(merge_service(files), ENVIRONMENT, []).variables == {}
    assert set_by(merge_service(files), ENVIRONMENT, [ENVIRONMENT, "/etc/later"]).variables == {}
    stale = UnitFile(
        f"{UNIT}.d/zzz.conf",
        "[Service]\nExecStart=\nExecStart=llama-server -c 1\nUnsetEnvironment=LLAMA_ARG_CACHE_RAM\n",
    )
    later = set_by(merge_service([*files, stale]), ENVIRONMENT, [ENVIRONMENT])
    assert set(later.variables) == {"slots", "checkpoints", "cache_type"}
    assert dict(later.unusable) == {
        "context": "its command has no ${MOETUNED_CONTEXT}", "prompt_cache_mib": "UnsetEnvironment= takes LLAMA_ARG_CACHE_RAM away",
    }  # fmt: skip


@pytest.mark.parametrize("said", ["", "lower", "A=1", "../x", "MOETUNED_X; y"])
def test_a_section_that_names_no_variable_sets_nothing(said: str) -> None:
    file = UnitFile(UNIT, f"[Service]\nExecStart=sh -c '{said}'\n[X-Moetuned]\ncontext={said}\nother=A\n")
    assert set_by(merge_service([file]), ENVIRONMENT, [ENVIRONMENT]).variables == {}


flag = st.sampled_from(["-c", "--ctx-size", "-np", "-cram", "-ctk", "-ctv", "-fa", "-m", "--port", "--alias"])
value = st.sampled_from(["1", "4096", "q8_0", "on", '"a b"', "%i", "${V}", "$W", "x=1", "100%%", "'", "\\x20", ";"])


@given(st.lists(st.tuples(flag, value), max_size=8), st.booleans())
def test_every_plan_says_what_it_does(pairs: list[tuple[str, str]], joined: bool) -> None:
    between = "=" if joined else " "
    raw = " ".join(["llama-server", *(f"{name}{between}{text}" for name, text in pairs)])
    unit = UnitFile(UNIT, f"[Service]\nExecStart={raw}\n")
    try:
        plan = plan_adoption("llama.service", "glm", [unit], find, "/run/moetuned/backends")
    except AdoptionError:
        return
    assert plan.text is not None
    service = merge_service([unit, UnitFile(plan.path, plan.text)])
    assert len(service.commands) == 1
    assert set_by(service, ENVIRONMENT, [ENVIRONMENT]).variables == {
        each.name: each.variables for each in plan.settings
    }
    # With the defaults in the place of the variables the command is what it was.
    defaults = dict(word.split("=", 1) for _, text in service.environment for word in text.split())
    again = service.commands[0][1]
    for name, text in defaults.items():
        again = again.replace(f"${{{name}}}", text)
    assert again.replace('"', "").replace("'", "") == raw.replace('"', "").replace("'", "")


@pytest.mark.parametrize("engine", ["docker", "podman"])
def test_a_container_is_not_the_units_and_it_says_whose(engine: str) -> None:
    command = f"ExecStart=/usr/bin/{engine} run --name llama ghcr.io/x/llama.cpp:server -m /m.gguf -c 4096"
    text = refused(command)
    assert f"supervise: {{by: docker, engine: {engine}," in text
    owned = adopt_owned(command.replace("4096", "${MOETUNED_CONTEXT}"))
    assert f"engine: {engine}" in owned


def adopt_owned(command: str) -> str:
    """Why a unit is refused whose owner made it read the file of variables."""
    lines = (f"EnvironmentFile=-{ENVIRONMENT}", command, "[X-Moetuned]", "context=MOETUNED_CONTEXT")
    with pytest.raises(AdoptionError) as caught:
        adopt(*lines, read_now=(ENVIRONMENT,))
    return str(caught.value)


def test_a_container_whose_monitor_podman_tells_systemd_is_its_owners_to_set() -> None:
    lines = (
        "Type=notify",
        f"EnvironmentFile=-{ENVIRONMENT}",
        "ExecStart=/usr/bin/podman run --sdnotify=conmon x -c ${MOETUNED_CONTEXT}",
        "[X-Moetuned]",
        "context=MOETUNED_CONTEXT",
    )
    assert [each.name for each in adopt(*lines, read_now=(ENVIRONMENT,)).settings] == ["context"]
    assert "does not know" in refused("Type=notify", "ExecStart=/usr/bin/podman run --sdnotify=conmon x -c 4096")
