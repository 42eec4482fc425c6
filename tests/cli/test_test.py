import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import yaml
from click.testing import CliRunner, Result

from device_builders import device_class, request, resource_slice
from mooring.__main__ import main
from mooring.simulate.policy_tests import read_policy_tests
from mooring.testing.builders import api_object, node, pod

ROOT = Path(__file__).parents[2]
PASSES = {"pod": "web", "node": "n1"}
FAILS = {"pod": "large", "node": "n1"}
MISTAKEN = {"pod": "wep", "node": "n1"}


def invoke(*words: str) -> Result:
    return CliRunner().invoke(main, ["test", *words])


def written(folder: Path, *expectations: dict[str, Any]) -> str:
    """Write a policy test with one case for each expectation; return its path."""
    document = {
        "apiVersion": "test.mooring.dev/v1alpha1",
        "kind": "PolicyTest",
        "metadata": {"name": "mine"},
        "objects": [node("n1", cpu="1"), node("n2", cpu="1"), pod(), pod("large", cpu="9")],
        "cases": [
            {"name": f"case {number}", "expect": [expectation]}
            for number, expectation in enumerate(expectations)
        ],
    }
    path = folder / "a.yaml"
    path.write_text(yaml.safe_dump(document))
    return str(path)


@pytest.mark.parametrize(
    ("expectations", "code", "summary"),
    [
        ([PASSES], 0, "1 case: 1 passed"),
        ([PASSES, FAILS], 1, "2 cases: 1 passed, 1 failed"),
        ([FAILS, MISTAKEN], 2, "2 cases: 1 failed, 1 could not be run"),
    ],
)
@pytest.mark.parametrize("output", ["text", "junit", "json", "github"])
def test_the_exit_code_says_whether_all_is_as_expected(
    tmp_path: Path, output: str, expectations: list[dict[str, Any]], code: int, summary: str
) -> None:
    result = invoke(written(tmp_path, *expectations), "-o", output)
    assert result.exit_code == code
    if output in ("text", "github"):
        assert result.stdout.splitlines()[-1] == summary


def test_a_failure_is_told_with_the_decision_explained(tmp_path: Path) -> None:
    path = written(tmp_path, PASSES, FAILS)
    head, passed, failed, failure, decision, *why, _ = invoke(path).stdout.splitlines()
    assert head == f"{path}: mine"
    assert passed == "  PASS  case 0"
    assert failed == "  FAIL  case 1"
    assert failure.strip() == "expect[0].node: pod default/large has no node, expected n1"
    assert decision.strip() == "default/large  not scheduled  (profile default-scheduler)"
    assert "2 Insufficient cpu" in why[0]
    assert why[1].strip() == "n1, n2: NodeResourcesFit: Insufficient cpu"


def test_a_policy_may_be_tested_with_devices_and_claims_of_templates(tmp_path: Path) -> None:
    template = api_object("ResourceClaimTemplate", "two", namespace="default")
    template["spec"] = {"spec": {"devices": {"requests": [request("gpus", 2)]}}}
    entries = [{"name": "gpus", "resourceClaimTemplateName": "two"}]
    pods = [pod(name, spec={"resourceClaims": entries}) for name in ("first", "second")]
    for raw in pods:  # as a user writes them
        del raw["metadata"]["uid"]
    path = Path(written(tmp_path))
    document = yaml.safe_load(path.read_text())
    document["objects"] = [
        *(node(name) for name in ("n1", "n2")),
        device_class("gpu"),
        resource_slice("s1", ["d0"], node="n1"),
        resource_slice("s2", ["d0", "d1"], node="n2"),
        template,
        *pods,
    ]
    expected = [{"pod": "first", "node": "n2"}, {"pod": "second", "node": "n1"}]
    document["cases"] = [{"name": each["pod"], "expect": [each]} for each in expected]
    path.write_text(yaml.safe_dump(document))
    result = invoke(str(path))
    lines = [line.strip() for line in result.stdout.splitlines()]
    assert lines[1:3] == ["PASS  first", "FAIL  second"]
    assert "n1, n2: DynamicResources: cannot allocate all claims" in lines
    assert result.exit_code == 1


def test_a_pod_on_another_node_is_explained_by_the_scores(tmp_path: Path) -> None:
    result = invoke(written(tmp_path, {"pod": "web", "node": "n3"}))
    tie, *rows = result.stdout.splitlines()[4:8]
    assert tie.strip() == "a tie of 2: one of them is chosen at random"
    table = [line.split() for line in rows]
    assert table[0][:2] == ["NODE", "TOTAL"]
    assert {table[1][0], table[2][0]} == {"n1", "n2"}


def test_a_mistake_in_a_case_is_told_and_the_others_are_run(tmp_path: Path) -> None:
    lines = invoke(written(tmp_path, MISTAKEN, PASSES)).stdout.splitlines()
    assert lines[1:4] == [
        "  ERROR case 0",
        "        expect[0].pod: there is no pod default/wep, did you mean default/web?",
        "  PASS  case 1",
    ]


@pytest.mark.parametrize("output", ["text", "json"])
def test_objects_that_no_decision_reads_are_named_on_standard_error(
    tmp_path: Path, output: str
) -> None:
    path = Path(written(tmp_path, PASSES, PASSES))
    path.write_text(path.read_text().replace("kind: Node", "kind: Ndoe", 1))
    result = invoke(str(path), "-o", output)
    said = "ignored objects of kinds that no decision reads: Ndoe (1)"
    assert result.stderr == f"note: {path}: {said}\n"
    assert "Ndoe" not in result.stdout


def test_junit_has_a_suite_per_test_and_the_explanation_of_each_failure(tmp_path: Path) -> None:
    path = written(tmp_path, PASSES, FAILS, MISTAKEN)
    (suite,) = ET.fromstring(invoke(path, "-o", "junit").stdout)  # noqa: S314 - our own
    counts = {name: suite.get(name) for name in ("name", "tests", "failures", "errors")}
    assert counts == {"name": "mine", "tests": "3", "failures": "1", "errors": "1"}
    passed, failed, mistaken = suite
    assert (passed.get("name"), passed.get("file"), len(passed)) == ("case 0", path, 0)
    failure, error = failed.find("failure"), mistaken.find("error")
    assert failure is not None
    assert "NodeResourcesFit: Insufficient cpu" in str(failure.text)
    assert error is not None
    assert "there is no pod" in str(error.get("message"))


def test_a_text_of_a_dump_cannot_control_the_terminal(tmp_path: Path) -> None:
    path = Path(written(tmp_path, {"pod": "web", "node": "n1"}))
    document = yaml.safe_load(path.read_text())
    document["objects"][2]["spec"]["schedulerName"] = "my\x1b]0;title\x07"
    path.write_text(yaml.safe_dump(document))
    result = invoke(str(path))
    assert r'schedulerName "my\x1b]0;title\x07"' in result.stdout
    assert all(line.isprintable() for line in result.stdout.splitlines())


def test_junit_replaces_what_xml_cannot_contain(tmp_path: Path) -> None:
    path = Path(written(tmp_path, PASSES))
    path.write_text(path.read_text().replace("case 0", r'"bell \x07"'))
    (suite,) = ET.fromstring(invoke(str(path), "-o", "junit").stdout)  # noqa: S314 - our own
    assert suite[0].get("name") == "bell \N{REPLACEMENT CHARACTER}"


def test_json_has_every_case_with_its_line_and_the_decisions(tmp_path: Path) -> None:
    result = invoke(written(tmp_path, PASSES, FAILS), "-o", "json")
    ((passed, failed),) = (test["cases"] for test in json.loads(result.stdout)["tests"])
    assert (passed["passed"], passed["failures"]) == (True, [])
    assert failed["line"] > passed["line"]
    assert failed["failures"][0]["decisions"][0]["pod"] == "default/large"


def test_github_is_told_the_line_of_the_case_in_one_line(tmp_path: Path) -> None:
    path = written(tmp_path, PASSES, FAILS)
    (file,) = read_policy_tests([path])
    annotation, _ = invoke(path, "-o", "github").stdout.splitlines()
    assert annotation.startswith(
        f"::error file={path},line={file.lines[1]},title=mine%3A case 1::"
        "expect[0].node: pod default/large has no node, expected n1%0A"
    )


def test_a_malformed_test_is_a_line_on_standard_error_and_the_exit_code_is_2(
    tmp_path: Path,
) -> None:
    result = invoke(written(tmp_path, {"pod": "web", "nod": "n1"}))
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"error: {tmp_path}/a.yaml, document 1: cases[0].expect[0].nod")


def test_without_a_path_the_exit_code_is_2() -> None:
    result = invoke()
    assert result.exit_code == 2
    assert "mooring test PATH..." in result.stderr


def test_a_path_that_does_not_exist_is_bad_input(tmp_path: Path) -> None:
    result = invoke(f"{tmp_path}/no")
    assert (result.exit_code, result.stderr) == (
        2,
        f"error: {tmp_path}/no: no such file or directory\n",
    )


def test_the_schema_is_printed_as_json() -> None:
    result = invoke("--schema")
    assert (result.exit_code, json.loads(result.stdout)["title"]) == (0, "PolicyTest")


def test_the_tests_of_the_shipped_profiles_pass() -> None:
    result = invoke(str(ROOT / "manifests"))
    assert result.exit_code == 0, result.stdout


def test_every_shipped_profile_has_a_test() -> None:
    tested = {
        (Path(file.path).parent / profile).resolve()
        for file in read_policy_tests([str(ROOT / "manifests")])
        for case in file.test.cases
        for profile in case.profiles or file.test.profiles
    }
    shipped = {
        path.resolve()
        for path in (ROOT / "manifests").rglob("*.yaml")
        if "kind: SchedulingProfile\n" in path.read_text() and "chart" not in path.parts
    }
    assert shipped - tested == set()


def test_the_version_is_that_of_the_case_or_of_the_test_unless_it_is_given(tmp_path: Path) -> None:
    """Only up to 1.36, the message says that there are no claims to deallocate."""
    path = Path(written(tmp_path, {"pod": "large", "unschedulable": {}}, FAILS, FAILS))
    document = yaml.safe_load(path.read_text())
    document["kubernetesVersion"] = "1.35"
    document["cases"][2]["kubernetesVersion"] = "1.37"
    path.write_text(yaml.safe_dump(document))

    def says_no_claims(*words: str) -> list[bool]:
        cases = json.loads(invoke(str(path), "-o", "json", *words).stdout)["tests"][0]["cases"]
        return ["no new claims" in str(case) for case in cases[1:]]

    assert says_no_claims() == [True, False]
    assert says_no_claims("--kubernetes", "1.37") == [False, False]
    assert says_no_claims("--kubernetes", "1.36") == [True, True]
