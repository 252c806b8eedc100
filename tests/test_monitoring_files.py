"""What ships for Prometheus and Grafana: well-formed, and of metrics, labels and states that there are."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from fakes.debian_programs import program

from moetuned.api.metric_catalogue import Metric, catalogue

sys.path.insert(0, str(Path(__file__).parent / "api"))
from api_examples import known_snapshot

ROOT = Path(__file__).resolve().parent.parent
RULES = ROOT / "etc/prometheus/moetuned.rules.yml"
DASHBOARD = ROOT / "etc/grafana/moetuned.json"
SCRAPE_LABELS = {"instance", "job"}
METRICS = {metric.name: metric for metric in catalogue()}
WORD = re.compile(r"\b(moetuned_\w+)\b(?:\s*\{([^}]*)\})?")
MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*("(?:[^"\\]|\\.)*"|%q)')
VARIABLES = {"$instance", "$backend"}
CHANGING = {"backend", "kind", "model", "source", "version"}
"""Labels whose values nobody can list."""


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(DASHBOARD.read_text())
    return found


def expressions() -> Iterator[tuple[str, str]]:
    """Where, and the expression."""
    for rule in rules():
        yield rule["alert"], rule["expr"]
        for text in rule["annotations"].values():
            for query in re.findall(r'printf "((?:[^"\\]|\\.)*%q(?:[^"\\]|\\.)*)"', text):
                yield f"{rule['alert']}, text", query
    board = dashboard()
    for panel in board["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]
    for note in board["annotations"]["list"]:
        if "expr" in note:
            yield note["name"], note["expr"]
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], variable["query"]["query"]


EXPRESSIONS = [pytest.param(text, id=where) for where, text in expressions()]


def values_of(metric: Metric, label: str) -> set[str]:
    place = metric.labels.index(label)
    return {labels[place] for labels, _ in metric.samples(known_snapshot())}


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_every_metric_label_and_state_of_it_is_in_the_catalogue(text: str) -> None:
    names = WORD.findall(text)
    assert names or text.startswith("ALERTS{")
    for name, selector in names:
        assert name in METRICS, f"there is no metric {name}"
        metric = METRICS[name]
        matchers = MATCHER.findall(selector)
        assert re.sub(r"[\s,]", "", MATCHER.sub("", selector)) == "", f"{selector} is not understood"
        for label, operator, quoted in matchers:
            assert label in {*metric.labels, *SCRAPE_LABELS}, f"{name} has no label {label}"
            if label in CHANGING | SCRAPE_LABELS:
                continue
            wanted = quoted.strip('"').split("|") if "~" in operator else [quoted.strip('"')]
            assert set(wanted) <= values_of(metric, label), f"{name} has no such {label}: {quoted}"


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_labels_that_it_groups_by_are_there(text: str) -> None:
    every = {label for name, _ in WORD.findall(text) for label in METRICS[name].labels} | SCRAPE_LABELS
    for labels in re.findall(r"\b(?:by|without|on)\s*\(([^)]*)\)", text):
        assert {label.strip() for label in labels.split(",")} <= every


def test_the_checks_above_see_what_is_wrong() -> None:
    wrong = [
        "moetuned_nothing",
        'moetuned_backend_paging{colour="red"}',
        'moetuned_backend_paging{state="thrash"}',
        'moetuned_backend_state{state=~"hung|slow"}',
    ]
    for text in wrong:
        with pytest.raises(AssertionError):
            test_every_metric_label_and_state_of_it_is_in_the_catalogue(text)


def test_every_rule_says_how_bad_it_is_and_what_to_do() -> None:
    for rule in rules():
        assert re.fullmatch(r"Moetuned[A-Z][A-Za-z]+", rule["alert"])
        assert re.fullmatch(r"\d+(s|m)", rule["for"])
        assert rule["labels"]["severity"] in ("warning", "critical")
        said = rule["annotations"]
        assert set(said) == {"summary", "description", "runbook"}
        assert len(said["summary"]) < 90
        assert re.fullmatch(r"docs/alerts/\w+\.md", said["runbook"])
        assert (ROOT / said["runbook"]).is_file(), f"{rule['alert']}: {said['runbook']} leads nowhere"


def test_promtool_likes_the_rules() -> None:
    done = subprocess.run(
        [program("promtool"), "check", "rules", str(RULES)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(rules())} rules found" in done.stdout


def test_the_rules_fire_as_they_should() -> None:
    tests = RULES.with_name("moetuned.rules.test.yml")
    tried = {
        case["alertname"] for test in yaml.safe_load(tests.read_text())["tests"] for case in test["alert_rule_test"]
    }
    assert tried == {rule["alert"] for rule in rules()}
    done = subprocess.run(
        [program("promtool"), "test", "rules", str(tests)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_likes_the_scrape_config(tmp_path: Path) -> None:
    text = (ROOT / "etc/prometheus/prometheus.yml").read_text()
    assert "- /etc/prometheus/moetuned.rules.yml\n" in text
    config = tmp_path / "prometheus.yml"
    config.write_text(text.replace("/etc/prometheus/moetuned.rules.yml", str(RULES)))
    done = subprocess.run(
        [program("promtool"), "check", "config", str(config)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


# The dashboard


def test_the_dashboard_can_be_provisioned() -> None:
    board = dashboard()
    assert "id" not in board
    assert (board["uid"], board["title"]) == ("moetuned", "moetuned")
    assert isinstance(board["schemaVersion"], int)
    assert isinstance(board["version"], int)
    assert {"from", "to"} <= set(board["time"])
    assert "__inputs" not in board, "that is for imports by hand: provisioning leaves it unfilled"
    variables = {variable["name"]: variable for variable in board["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    assert variables["datasource"]["query"] == "prometheus"
    for text in (text for _, text in expressions()):
        assert set(re.findall(r"\$\w+", text)) - {"$__rate_interval", "$labels"} <= VARIABLES
    assert {f"${name}" for name in variables} == {*VARIABLES, "$datasource"}


def test_its_panels_ask_the_chosen_data_source_and_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    titles = [panel["title"] for panel in dashboard()["panels"]]
    assert len(set(titles)) == len(titles)
    for panel in dashboard()["panels"]:
        assert "id" not in panel
        assert {"type", "title", "description", "fieldConfig", "options", "targets", "gridPos", "datasource"} <= set(
            panel
        )
        for asked in (panel["datasource"], *(target["datasource"] for target in panel["targets"])):
            assert asked == {"type": "prometheus", "uid": "${datasource}"}
        references = [target["refId"] for target in panel["targets"]]
        assert len(set(references)) == len(references)
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, f"{panel['title']} lies on another panel"
        taken |= cells


def test_states_are_drawn_with_their_own_names() -> None:
    timelines = [panel for panel in dashboard()["panels"] if panel["type"] == "state-timeline"]
    assert len(timelines) == 3
    for panel in timelines:
        (target,) = panel["targets"]
        numbers = {int(number): word for word, number in re.findall(r'state="(\w+)"[^}]*\} \* (\d+)', target["expr"])}
        (mapping,) = panel["fieldConfig"]["defaults"]["mappings"]
        texts = {int(number): shown["text"].replace(" ", "_") for number, shown in mapping["options"].items()}
        metric = METRICS[WORD.findall(target["expr"])[0][0]]
        assert texts == {0: "unknown", **numbers}
        assert set(texts.values()) == values_of(metric, "state")


@pytest.mark.parametrize("name", ["provisioning.yml", "datasource.yml"])
def test_what_provisions_it_is_of_the_form_that_grafana_reads(name: str) -> None:
    found = yaml.safe_load((DASHBOARD.parent / name).read_text())
    assert found["apiVersion"] == 1
    (one,) = found["providers" if name == "provisioning.yml" else "datasources"]
    assert one["type"] == ("file" if name == "provisioning.yml" else "prometheus")
