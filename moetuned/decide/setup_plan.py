"""What `moetunectl setup` will do, from facts and answers: deeds as data, in order, and the record that lets all of it be taken back."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from moetuned.decide.setup_config import UNDO, config_text, environment_text, unit_of
from moetuned.decide.setup_questions import Answers, chosen
from moetuned.decide.unit_adoption import Adoption
from moetuned.parse.persisted_file import Standing, standing
from moetuned.schema.setup import Candidate, PlannedDeed, SetupFacts, SetupPlan, SetupRecord, Step, Way

SERVICE = "moetuned.service"
BACKENDS_DIRECTORY = "/etc/moetuned/backends"


TELLING = (Step.RESTART_BACKEND, Step.RELOAD_SERVICE)
"""Steps by which a unit that runs takes what was written."""


def environment_file(name: str) -> str:
    """The file of variables of a unit that setup makes."""
    return f"{BACKENDS_DIRECTORY}/{name}.env"


def make_plan(
    facts: SetupFacts,
    answers: Answers,
    adoptions: Mapping[str, Adoption],
    before: SetupRecord = SetupRecord(),  # noqa: B008  frozen
) -> SetupPlan:
    """The plan. `adoptions`: for units that were chosen and are not yet adopted, what that writes; `before`: what setup made earlier."""
    backends = chosen(facts, answers)
    created = [each for each in backends if each.way is Way.CREATED]
    deeds = [*_files(facts, answers, created), *_dropped_files(facts, before, created)]
    deeds += [
        PlannedDeed(
            Step.ADOPT,
            each.unit,
            "takes what a restart may change from moetuned, from its next start on",
            each.name,
            after=adoption.text,
        )
        for each in backends
        if each.unit is not None and (adoption := adoptions.get(each.unit)) is not None and adoption.text is not None
    ]
    stopped = _dropped_units(before, created)
    deeds += [PlannedDeed(Step.STOP_BACKEND, unit, "is not wanted any more") for unit in stopped]
    started: list[str] = []
    if facts.systemd and facts.service.template:
        changed = {deed.target for deed in deeds if deed.step is Step.WRITE}
        for each in created:
            unit = unit_of(each.name)
            if unit not in facts.enabled_units or unit not in facts.active_units:
                started += [] if unit in facts.enabled_units else [unit]
                deeds.append(
                    PlannedDeed(Step.START_BACKEND, unit, f"llama-server with {each.model}, now and at every boot")
                )
            elif environment_file(each.name) in changed or unit in before.pending:
                deeds.append(PlannedDeed(Step.RESTART_BACKEND, unit, "so that it takes what was changed"))
    deeds += _service(facts, SERVICE in before.pending or any(deed.target == facts.config_path for deed in deeds))
    record = SetupRecord(
        files=tuple(dict.fromkeys((*before.files, *(each.target for each in deeds if each.step is Step.WRITE)))),
        adopted=tuple(dict.fromkeys((*before.adopted, *(each.target for each in deeds if each.step is Step.ADOPT)))),
        enabled=tuple(
            dict.fromkeys(
                (
                    *before.enabled,
                    *started,
                    *(each.target for each in deeds if each.step is Step.START_SERVICE and not facts.service.enabled),
                )
            )
        ),
        directories=tuple(dict.fromkeys((*before.directories, *facts.directories_missing))),
        pending=tuple(dict.fromkeys((*before.pending, *(each.target for each in deeds if each.step in TELLING)))),
    )
    return SetupPlan(tuple(deeds), record, tuple(_notes(facts, backends)))


def only_watched(facts: SetupFacts, answers: Answers, names: Collection[str]) -> tuple[SetupFacts, Answers]:
    """With these units as servers that moetuned may not restart: what runs in a unit need not be what the unit is for."""
    candidates = tuple(
        msgspec.structs.replace(each, way=Way.KEPT, unit=None) if each.name in names else each
        for each in facts.candidates
    )
    left = {key: value for key, value in answers.items() if key.partition(" ")[2] not in names}
    return msgspec.structs.replace(facts, candidates=candidates), left


def _files(facts: SetupFacts, answers: Answers, created: list[Candidate]) -> list[PlannedDeed]:
    found = []
    for each in created:
        path = environment_file(each.name)
        found.append(
            _file(
                path,
                facts.environment_texts.get(path),
                environment_text(each, answers),
                f"what {unit_of(each.name)} is started with",
            )
        )
    found.append(
        _file(
            facts.config_path,
            facts.config_text,
            config_text(facts, answers),
            "moetuned's config, read after moetuned.yaml",
            closed=facts.config_closed,
        )
    )
    return [each for each in found if each is not None]


def _file(path: str, before: str | None, after: str | None, why: str, *, closed: bool = False) -> PlannedDeed | None:
    if before == after:
        return None
    edited = before is not None and standing(before, UNDO) is not Standing.OURS
    return PlannedDeed(
        Step.WRITE if after is not None else Step.REMOVE,
        path,
        why,
        before=before,
        after=after,
        edited=edited,
        closed=closed,
    )


def _dropped_files(facts: SetupFacts, before: SetupRecord, created: list[Candidate]) -> list[PlannedDeed]:
    """Files of units that were made earlier and are not wanted any more; one that was edited stays."""
    kept = {facts.config_path, *(environment_file(each.name) for each in created)}
    return [
        PlannedDeed(Step.REMOVE, path, "is not needed any more", before=text)
        for path in before.files
        if path not in kept
        and (text := facts.environment_texts.get(path)) is not None
        and standing(text, UNDO) is Standing.OURS
    ]


def _dropped_units(before: SetupRecord, created: list[Candidate]) -> list[str]:
    wanted = {unit_of(each.name) for each in created}
    return [unit for unit in before.enabled if unit != SERVICE and unit not in wanted]


def _service(facts: SetupFacts, config_changes: bool) -> list[PlannedDeed]:
    if not facts.systemd or not facts.service.installed:
        return []
    if facts.service.active and facts.service.enabled:
        return (
            [PlannedDeed(Step.RELOAD_SERVICE, SERVICE, "so that it reads its config again")] if config_changes else []
        )
    found = [PlannedDeed(Step.START_SERVICE, SERVICE, "now and at every boot")]
    if facts.service.active and config_changes:
        found.append(PlannedDeed(Step.RELOAD_SERVICE, SERVICE, "so that it reads its config again"))
    return found


def _notes(facts: SetupFacts, backends: tuple[Candidate, ...]) -> list[str]:
    found = []
    for each in backends:
        if each.way is Way.PROCESS:
            found.append(
                f"{each.name} was started by hand, so moetuned watches it and cannot restart it; for that it needs a unit, a container or moetuned itself"
            )
        elif each.way is Way.CONTAINER:
            found.append(
                f"{each.name} is watched; for moetuned to restart it, write the words of your `docker run` into the config (supervise: {{by: docker}})"
            )
        if each.doubt is not None:
            found.append(f"{each.name}: {each.doubt}, so others decide what it is")
        if each.fits is False:
            found.append(f"{each.name}: {each.judgement}")
    if not facts.systemd:
        found.append("systemd does not run here, so nothing starts moetuned; run it with: sudo moetuned run")
    elif not facts.service.installed:
        found.append(
            "moetuned is not installed as a service; run it with: sudo moetuned run, or install it: sudo make install"
        )
    return found


def undo_deeds(
    record: SetupRecord, texts: Mapping[str, str], config_path: str, *, service_active: bool
) -> tuple[tuple[PlannedDeed, ...], tuple[str, ...]]:
    """What takes back all that setup made, in order, and the files that stay because they were edited. `texts`: of files that are there.

    Units are given back first: that is what may be refused, and then nothing has been stopped or removed.
    """
    kept = []
    deeds = [
        PlannedDeed(Step.GIVE_BACK, unit, "setup adopted it; from its next start on it is as its own files say")
        for unit in record.adopted
    ]
    if SERVICE in record.enabled:
        deeds.append(PlannedDeed(Step.STOP_BACKEND, SERVICE, "setup enabled it; what it changed is put back"))
    deeds += [PlannedDeed(Step.STOP_BACKEND, unit, "setup made it") for unit in record.enabled if unit != SERVICE]
    for path in dict.fromkeys((config_path, *record.files)):
        if (text := texts.get(path)) is None:
            continue
        match standing(text, UNDO):
            case Standing.OURS:
                deeds.append(PlannedDeed(Step.REMOVE, path, "setup wrote it", before=text))
            case _:
                kept.append(path)
    if service_active and SERVICE not in record.enabled and any(each.target == config_path for each in deeds):
        deeds.append(PlannedDeed(Step.RELOAD_SERVICE, SERVICE, "so that it reads its config again"))
    return tuple(deeds), tuple(kept)
