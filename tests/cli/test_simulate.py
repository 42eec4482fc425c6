import io
import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from mooring.cli.simulate import TABLE_HEAD, simulate, table_row, write_json
from mooring.framework.decision import Decision, NodeScore
from mooring.simulate.simulation import Attempt
from mooring.testing.builders import api_object, node, pod


def dump(path: Path, *objects: dict[str, Any]) -> str:
    path.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": objects}))
    return str(path)


def invoke(*words: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(simulate, list(words), input=stdin)


def test_the_table_aligns_pod_node_score_and_why(tmp_path: Path) -> None:
    cluster = dump(
        tmp_path / "cluster.json", node("n1"), pod("web", cpu="1"), pod("large", cpu="9")
    )
    result = invoke(cluster)
    head, web, large = result.stdout.splitlines()
    assert head.split() == ["POD", "NODE", "SCORE", "WHY"]
    assert web.split(maxsplit=3)[:3] == ["default/web", "n1", "-"]
    assert large.index("0/1 nodes are available") == head.index("WHY")
    assert result.exit_code == 1


def test_the_exit_code_is_0_if_every_pod_is_scheduled(tmp_path: Path) -> None:
    assert invoke(dump(tmp_path / "a.json", node("n1"), pod())).exit_code == 0


def test_json_has_the_form_of_the_decision_record(tmp_path: Path) -> None:
    cluster = dump(tmp_path / "a.json", node("n1"), node("n2", cpu="1"), pod("web", cpu="2"))
    result = invoke(cluster, "-o", "json")
    (decision,) = json.loads(result.stdout)["decisions"]
    assert decision == {
        "pod": "default/web",
        "profile": "default-scheduler",
        "node": "n1",
        "nominatedNode": None,
        "victims": [],
        "scores": None,
        "rejections": {
            "n2": {
                "plugin": "NodeResourcesFit",
                "reasons": ["Insufficient cpu"],
                "resolvable": False,
            }
        },
        "message": None,
    }


def test_the_same_input_and_seed_print_the_same_bytes(tmp_path: Path) -> None:
    nodes, pods = [node(f"n{i}") for i in range(9)], [pod(f"p{i}") for i in range(9)]
    cluster = dump(tmp_path / "a.json", *nodes, *pods)
    first = invoke(cluster, "-o", "json", "--seed", "4").stdout
    assert first == invoke(cluster, "-o", "json", "--seed", "4").stdout
    assert first != invoke(cluster, "-o", "json", "--seed", "5").stdout


def test_a_dash_means_standard_input_also_beside_files(tmp_path: Path) -> None:
    nodes = dump(tmp_path / "nodes.json", node("n1"))
    result = invoke(nodes, "-", stdin=json.dumps(pod()))
    assert "default/web" in result.stdout
    assert result.exit_code == 0


def test_profile_option_replaces_the_defaults(tmp_path: Path) -> None:
    profile = tmp_path / "config.yaml"
    profile.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\n"
        "kind: KubeSchedulerConfiguration\n"
        "parallelism: 4\n"
        "profiles: [{schedulerName: mine}]\n"
    )
    cluster = dump(tmp_path / "a.json", node("n1"), pod(spec={"schedulerName": "mine"}))
    result = invoke(cluster, "--profile", str(profile))
    assert result.exit_code == 0
    assert f"note: {profile}: parallelism: is left out" in result.stderr


def test_ignored_kinds_are_named_on_standard_error(tmp_path: Path) -> None:
    result = invoke(dump(tmp_path / "a.json", api_object("ConfigMap", "c")))
    assert "ignored objects of kinds that no decision reads: ConfigMap (1)" in result.stderr


def test_the_exit_code_is_2_if_there_is_nothing_to_schedule(tmp_path: Path) -> None:
    stored = api_object("Deployment", "web") | {"apiVersion": "apps/v1"}
    result = invoke(dump(tmp_path / "a.json", node("n1"), stored))
    assert "note: Deployment default/web: a cluster has stored it" in result.stderr
    assert "error: there is no pod without a node to schedule" in result.stderr
    assert (result.stdout, result.exit_code) == ("", 2)


def test_bad_input_is_one_line_and_the_exit_code_is_2(tmp_path: Path) -> None:
    cluster = dump(tmp_path / "a.json", pod(cpu="1x"))
    result = invoke(cluster)
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith(
        f"error: {cluster}, document 1, items[0]: Pod default/web "
        "spec.containers[0].resources.requests.cpu: '1x' is not a quantity"
    )


def test_a_missing_file_argument_is_a_usage_error() -> None:
    assert invoke().exit_code == 2


def decision(
    node: str | None = None,
    *,
    scores: dict[str, NodeScore] | None = None,
    victims: tuple[str, ...] = (),
    message: str | None = None,
) -> Decision:
    nominated = "n9" if victims else None
    return Decision("default/web", "mine", node, nominated, victims, scores, {}, message)


def test_json_is_one_document_with_a_record_per_line() -> None:
    out = io.BytesIO()
    write_json([Attempt(decision("n1")), Attempt(decision("n2"))], out)
    assert [d["node"] for d in json.loads(out.getvalue())["decisions"]] == ["n1", "n2"]
    assert len(out.getvalue().splitlines()) == 4


def test_json_without_any_attempt_is_an_empty_list() -> None:
    out = io.BytesIO()
    assert write_json([], out)
    assert json.loads(out.getvalue()) == {"decisions": []}


def test_writing_json_returns_false_if_a_pod_has_no_node() -> None:
    assert write_json([Attempt(decision("n1"))], io.BytesIO())
    assert not write_json([Attempt(decision("n1")), Attempt(decision())], io.BytesIO())


def test_a_row_shows_the_score_and_the_number_of_feasible_nodes() -> None:
    scores = {"n1": NodeScore({"A": 3}, 7), "n2": NodeScore({"A": 1}, 5)}
    row = table_row(Attempt(decision("n1", scores=scores), feasible=2))
    assert dict(zip(TABLE_HEAD, row, strict=True)) == {
        "POD": "default/web",
        "NODE": "n1",
        "SCORE": "7",
        "WHY": "best of 2 nodes that fit",
    }


def test_a_row_without_scores_says_that_only_one_node_fits() -> None:
    assert table_row(Attempt(decision("n1"), feasible=1))[1:] == (
        "n1",
        "-",
        "the only node that fits",
    )


def test_a_row_of_an_unschedulable_pod_gives_the_message_and_the_victims() -> None:
    victims = ("a/1", "a/2", "a/3", "a/4", "a/5")
    row = table_row(Attempt(decision(victims=victims, message="No fit.")))
    assert row[1:] == (
        "-",
        "-",
        "No fit. It can run on n9 once a/1, a/2, a/3 and 2 more are gone.",
    )


def test_it_says_whose_extenders_were_not_called(tmp_path: Path) -> None:
    profile = api_object(
        "SchedulingProfile", "gpu", spec={"extenders": [{"urlPrefix": "http://gpu"}]}
    )
    profile["apiVersion"] = "scheduling.mooring.dev/v1alpha1"
    cluster = dump(tmp_path / "a.json", node("n1"), pod("web"), profile)
    assert invoke(cluster).stderr.splitlines()[0] == (
        "note: extenders were not called (--extenders calls them): those of gpu"
    )
    assert "extenders" not in invoke(cluster, "--extenders").stderr
