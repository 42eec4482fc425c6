"""Each alert fires with fitting series and not without them, as Prometheus' own tool shows."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from controlplane.build import TOOLS_MODULE, programs_folder
from e2e.conftest import Cluster

ROOT = Path(__file__).parents[2]
RULES = yaml.safe_load((ROOT / "manifests" / "monitoring" / "alerts.yaml").read_text())["spec"]
CASES: dict[str, dict[str, Any]] = yaml.safe_load(
    Path(__file__).with_name("alerts.yaml").read_text()
)


def promtool(*arguments: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
    program = programs_folder(TOOLS_MODULE) / "promtool"
    return subprocess.run(
        [program, *arguments], input=stdin, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file with the alert rules, without the Kubernetes object around them."""
    file = tmp_path_factory.mktemp("rules") / "rules.yaml"
    file.write_text(yaml.safe_dump(RULES))
    return file


def unit_test(alert: str, *, fires: bool) -> dict[str, Any]:
    case = CASES[alert]
    annotations = {"runbook_url": "docs/metrics.md#alerts", "summary": case["summary"]}
    expected = {"exp_labels": case["labels"], "exp_annotations": annotations}
    last, series = case["minute"], case["fires" if fires else "quiet"]
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "alert_rule_test": [
            {
                "eval_time": f"{minute}m",
                "alertname": alert,
                "exp_alerts": [expected] if fires else [],
            }
            for minute in ([last] if fires else range(case.get("since", 0), last + 1))
        ],
    }


def test_every_alert_has_a_case() -> None:
    alerts = [alert["alert"] for group in RULES["groups"] for alert in group["rules"]]
    assert sorted(CASES) == sorted(alerts)


def test_the_rules_are_what_prometheus_reads(rules: Path) -> None:
    checked = promtool("check", "rules", "--lint=all", "--lint-fatal", str(rules))
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("alert", CASES)
def test_an_alert_fires_with_fitting_series_and_not_without(
    alert: str, rules: Path, tmp_path: Path
) -> None:
    file = tmp_path / "test.yaml"
    tests = [unit_test(alert, fires=True), unit_test(alert, fires=False)]
    document = {"rule_files": [str(rules)], "evaluation_interval": "1m", "tests": tests}
    file.write_text(yaml.safe_dump(document))
    tested = promtool("test", "rules", str(file))
    assert tested.returncode == 0, tested.stdout + tested.stderr


def test_a_scrape_is_what_prometheus_wants_metrics_to_be(cluster: Cluster) -> None:
    status, page = cluster.scheduler.get("/metrics")
    assert status == 200
    checked = promtool("check", "metrics", stdin=page)
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")
