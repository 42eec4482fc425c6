import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from mooring.simulate.manifests import InputError
from mooring.simulate.policy_tests import API_VERSION, KIND, read_policy_tests, schema

SCHEDULED = {"pod": "web", "scheduled": True}


def policy_test(*cases: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": "mine"},
        "cases": [*cases] or [case()],
        **fields,
    }


def case(name: str = "it works", *expect: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"name": name, "expect": [*expect] or [SCHEDULED], **fields}


def written(path: Path, *documents: dict[str, Any]) -> str:
    path.write_text(yaml.safe_dump_all(documents))
    return str(path)


def mistakes(path: Path, *documents: dict[str, Any]) -> list[str]:
    with pytest.raises(InputError) as caught:
        read_policy_tests([written(path, *documents)])
    return str(caught.value).splitlines()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "test.yaml"


def test_a_folder_is_searched_for_tests_and_may_contain_anything_else(tmp_path: Path) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    second = written(tmp_path / "deep" / "er" / "b.yml", policy_test())
    first = written(tmp_path / "a.yaml", {"kind": "Namespace"}, policy_test(), policy_test())
    (tmp_path / "chart.yaml").write_text("{{ no yaml }}: [")
    (tmp_path / "notes.txt").write_text(API_VERSION)
    assert [file.path for file in read_policy_tests([str(tmp_path)])] == [first, first, second]


@pytest.mark.parametrize("version", ["test.mooring.dev/v1", "test.moring.dev/v1alpha1", "v1"])
def test_a_test_of_another_version_is_a_mistake_in_a_folder_too(
    tmp_path: Path, version: str
) -> None:
    written(tmp_path / "a.yaml", policy_test())
    written(tmp_path / "b.yaml", policy_test(apiVersion=version))
    with pytest.raises(InputError, match=r"b\.yaml, document 1: apiVersion: must be "):
        read_policy_tests([str(tmp_path)])


def test_a_path_without_a_test_is_a_mistake(tmp_path: Path) -> None:
    (line,) = mistakes(tmp_path / "a.yaml", {"kind": "Namespace"})
    assert line == f"{tmp_path}/a.yaml: contains no PolicyTest"
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="empty: contains no PolicyTest"):
        read_policy_tests([str(tmp_path / "empty")])


def test_a_case_knows_its_line(path: Path) -> None:
    path.write_text(
        "kind: Namespace\n---\n"
        f"apiVersion: {API_VERSION}\n"
        f"kind: {KIND}\n"
        "metadata: {name: mine}\n"
        "cases:\n"
        "- name: one\n"
        "  expect: [{pod: web, scheduled: true}]\n"
        "# a remark\n"
        "- name: two\n"
        "  expect: [{pod: web, scheduled: true}]\n"
    )
    (file,) = read_policy_tests([str(path)])
    assert file.lines == (7, 10)


def test_a_test_in_a_list_has_no_line_of_its_own(path: Path) -> None:
    text = written(path, {"apiVersion": "v1", "kind": "List", "items": [policy_test()]})
    (file,) = read_policy_tests([text])
    assert file.lines == (1,)


def test_a_test_in_json_that_is_no_yaml_is_read(path: Path) -> None:
    """Programs write an emoji in JSON as two escapes, which YAML does not allow."""
    path.write_text(json.dumps(policy_test(case("works \N{GRINNING FACE}"))))
    (file,) = read_policy_tests([str(path)])
    assert file.test.cases[0].name == "works \N{GRINNING FACE}"
    assert file.lines == (1,)


def test_unknown_fields_are_mistakes_with_their_path_and_a_suggestion(path: Path) -> None:
    document = policy_test(case("a", {**SCHEDULED, "nodeSelecter": {}}, object=[]), profile="x")
    found = {line.removeprefix(f"{path}, document 1: ") for line in mistakes(path, document)}
    assert found == {
        'profile: unknown field "profile", did you mean profiles?',
        'cases[0].object: unknown field "object", did you mean objects?',
        'cases[0].expect[0].nodeSelecter: unknown field "nodeSelecter", did you mean nodeSelector?',
    }


def test_the_mistakes_of_all_files_are_told(tmp_path: Path) -> None:
    written(tmp_path / "a.yaml", policy_test(x=1))
    written(tmp_path / "b.yaml", policy_test(y=1))
    with pytest.raises(InputError) as caught:
        read_policy_tests([str(tmp_path)])
    assert [line.split(", ")[0] for line in str(caught.value).splitlines()] == [
        f"{tmp_path}/a.yaml",
        f"{tmp_path}/b.yaml",
    ]


def test_another_kind_of_the_group_is_a_mistake_with_a_suggestion(path: Path) -> None:
    (line,) = mistakes(path, {**policy_test(), "kind": "PolicyTests"})
    assert line.endswith('kind: unknown kind "PolicyTests", did you mean PolicyTest?')


def test_two_cases_of_one_name_are_a_mistake(path: Path) -> None:
    (line,) = mistakes(path, policy_test(case("a"), case("b"), case("a")))
    assert line.endswith("cases[2].name: is the name of cases[0] already")


@pytest.mark.parametrize(
    ("expectation", "message"),
    [
        ({"scheduled": True}, "needs either pod or pods"),
        ({"pod": "a", "pods": {}, "scheduled": True}, "needs either pod or pods"),
        ({"pod": "a"}, "expects nothing"),
        ({"pods": {}, "maxSkew": 1}, "needs both of maxSkew and topologyKey"),
        ({"pods": {}, "topologyKey": "zone"}, "needs both of maxSkew and topologyKey"),
        ({"pod": "a", "maxNodes": 1}, "maxNodes: goes with pods only"),
        ({"pods": {}, "victims": []}, "victims: goes with pod only"),
        ({"pods": {}, "nominatedNode": "n1"}, "nominatedNode: goes with pod only"),
        ({"pod": "a", "node": "n1", "unschedulable": {}}, "contradicts the node"),
        ({"pod": "a", "node": "n1", "scheduled": False}, "contradicts the node"),
        ({"pod": "a", "unschedulable": {"node": "n1"}}, "plugin: is required where node is set"),
        ({"pod": "a/b/c", "scheduled": True}, "pod: "),
    ],
)
def test_an_expectation_that_makes_no_sense_is_a_mistake(
    path: Path, expectation: dict[str, Any], message: str
) -> None:
    found = mistakes(path, policy_test(case("a", expectation)))
    assert any(message in line for line in found)


def test_the_schema_says_what_fields_there_are() -> None:
    found = schema()
    assert found["properties"]["apiVersion"]["const"] == API_VERSION
    assert found["additionalProperties"] is False
    fields = found["$defs"]["Expectation"]["properties"]
    assert "the pod's node" in fields["nodeSelector"]["description"]
