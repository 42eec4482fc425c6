"""The alerts and the dashboard use only metrics and labels that exist and are documented."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parent.parent
MONITORING = ROOT / "manifests" / "monitoring"
DOCUMENT = (ROOT / "docs" / "metrics.md").read_text()
ROW = re.compile(r"^\| `(?P<name>\w+)` \| (?P<type>\w+) \|(?P<labels>[^|]*)\|", re.MULTILINE)
GROUPED = re.compile(r"\b(?:sum|max|min) by \((?P<labels>[^)]*)\)")
SELECTED = re.compile(r"(?P<metric>\w+)\{(?P<labels>[^}]*)\}")
METRIC = re.compile(r"\b(?:scheduler|mooring|leader)_\w+")
OF_PROMETHEUS = {"le", "pod"}
"""Labels of histograms' buckets and of scrape targets."""


def labels_by_metric() -> dict[str, set[str]]:
    """Return each metric's labels from docs/metrics.md; test_documents.py checks that document."""
    return {
        row["name"]: set(re.findall(r"`(\w+)`", row["labels"])) for row in ROW.finditer(DOCUMENT)
    }


def alerts() -> list[dict[str, Any]]:
    rule = yaml.safe_load((MONITORING / "alerts.yaml").read_text())
    return [alert for group in rule["spec"]["groups"] for alert in group["rules"]]


def dashboard() -> Any:
    return json.loads((MONITORING / "dashboard.json").read_text())


def expressions() -> list[str]:
    panels = [target["expr"] for panel in dashboard()["panels"] for target in panel["targets"]]
    return [*(alert["expr"] for alert in alerts()), *panels]


def base(metric: str) -> str:
    """Return the metric's name without the suffix of a histogram's series."""
    return re.sub(r"_(bucket|sum|count)$", "", metric)


@pytest.mark.parametrize("expression", expressions())
def test_every_expression_asks_for_metrics_and_labels_that_exist(expression: str) -> None:
    known = labels_by_metric()
    metrics = {base(metric) for metric in METRIC.findall(expression)}
    assert metrics
    assert metrics <= known.keys()
    labels = OF_PROMETHEUS.union(*(known[metric] for metric in metrics))
    for grouped in GROUPED.finditer(expression):
        assert set(grouped["labels"].split(", ")) <= labels
    for selected in SELECTED.finditer(expression):
        named = set(re.findall(r"(\w+)!?=", selected["labels"]))
        assert named - OF_PROMETHEUS <= known[base(selected["metric"])]


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: alert["alert"])
def test_every_alert_has_a_severity_a_summary_and_a_line_that_says_what_to_do(
    alert: dict[str, Any],
) -> None:
    assert alert["labels"]["severity"] in {"critical", "warning", "info"}
    assert alert["annotations"]["summary"].endswith(".")
    assert f"\n- `{alert['alert']}`: " in DOCUMENT


def test_panels_do_not_overlap() -> None:
    taken = set[tuple[int, int]]()
    for panel in dashboard()["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        taken |= cells
