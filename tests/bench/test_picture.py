"""The bars of `bench.picture`, from files as the benches write them."""

import json
from pathlib import Path
from xml.etree import ElementTree as ET

from click.testing import CliRunner

from bench.live import LiveRun, write_json
from bench.picture import Pair, main, pairs_of, svg


def live(folder: Path, *runs: tuple[str, float, float]) -> Path:
    """Write a file of runs: scheduler, rate and seconds of CPU for 100 pods."""
    made = [LiveRun(label, rate, 100, 100, cpu, ()) for label, rate, cpu in runs]
    return write_json(folder, made)


def test_a_pair_has_the_medians_of_the_runs_of_a_load(tmp_path: Path) -> None:
    ours = [("mooring", 50.0, cpu) for cpu in (0.1, 0.2, 0.9)]
    path = live(tmp_path, *ours, ("kube-scheduler", 50.0, 0.5))
    assert [*pairs_of(json.loads(path.read_text()))] == [Pair("50 pods/s", 2.0, 5.0)]


def test_a_load_that_one_scheduler_alone_has_run_is_left_out(tmp_path: Path) -> None:
    path = live(tmp_path, ("mooring", 0.0, 0.1))
    assert [*pairs_of(json.loads(path.read_text()))] == []


def test_runs_of_scheduler_perf_with_a_fault_are_left_out() -> None:
    def run(label: str, cost: float, fault: str = "") -> dict[str, object]:
        return {"scheduler": label, "fault": fault, "measured": [{"cpu_ms_per_pod": cost}]}

    runs = [run("mooring", 1.0), run("mooring", 9.0, "void"), run("kube-scheduler", 3.0)]
    found = [*pairs_of({"workloads": [{"name": "Basic", "runs": runs}]})]
    assert found == [Pair("Basic", 1.0, 3.0)]


def test_bars_are_as_long_as_the_costs() -> None:
    text = svg([Pair("a < b", 1.0, 4.0)], "Kubernetes")
    picture = ET.fromstring(text)  # noqa: S314 - written a line above
    bars = [each for each in picture if each.get("height") == "15"]
    ours, theirs = (float(bar.get("width", 0)) for bar in bars)
    assert abs(theirs - 4 * ours) < 0.5
    assert "a < b" in [each.text for each in picture]


def test_the_command_draws_what_the_bench_has_written(tmp_path: Path) -> None:
    path = live(tmp_path, ("mooring", 50.0, 0.1), ("kube-scheduler", 50.0, 0.5))
    output = tmp_path / "picture.svg"
    done = CliRunner().invoke(main, [str(output), str(path)])
    assert done.exit_code == 0
    assert "50 pods/s" in output.read_text()
