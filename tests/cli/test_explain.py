import json
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.running import Running, ask, kubeconfig_of, serving
from deciding import keep
from kube.api_server import ApiServer, Objects
from mooring.cli.explain import explain
from mooring.framework.decision import Decision, NodeScore, PodRef, Rejection
from mooring.model.pod import Uid, parse_pod
from mooring.observe.records import DecisionLog, RecordedStep
from mooring.page.queue_view import Queue
from mooring.testing.builders import pod
from scheduler_states import put_profile, scheduler_state

NO_FREE_CPU = Rejection("NodeResourcesFit", ("Insufficient cpu",), resolvable=True)
PLACED = Decision(
    pod=PodRef.of_key("team-a/web"),
    profile="mine",
    node="n1",
    nominated_node=None,
    victims=(),
    scores={"n1": NodeScore({"A": 3, "B": 4}, 7), "n2": NodeScore({"A": 1}, 1)},
    rejections={},
    message=None,
    profile_generation=3,
    kubernetes_version="1.36",
)
REJECTED = Decision(
    pod=PodRef.of_key("team-a/large"),
    profile="mine",
    node=None,
    nominated_node="n1",
    victims=(PodRef.of_key("team-a/x"),),
    scores=None,
    rejections=dict.fromkeys(("n1", "n2", "n3", "n4"), NO_FREE_CPU),
    message="0/4 nodes are available: 4 Insufficient cpu.",
)

EXPLAINED = yaml.safe_load(Path(__file__).with_name("explained.yaml").read_text())
REPORTS: dict[str, dict[str, Any]] = {
    f"team-a/{name}": each["report"] for name, each in EXPLAINED["pods"].items()
}
SAID = {name: each["said"] for name, each in EXPLAINED["pods"].items() if "said" in each}
GROUP: list[dict[str, Any]] = EXPLAINED["groups"]["train"]


async def pod_groups(namespace: str, name: str) -> list[dict[str, Any]]:
    return GROUP if (namespace, name) == ("team-a", "train") else []


async def pod_report(key: str) -> Mapping[str, Any] | None:
    return REPORTS.get(key)


class Now:
    """A clock that only the test moves."""

    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Running]:
    now = Now()
    decisions = DecisionLog(nodes=3, clock=now, wall=now)
    large = Uid("u1")
    keep(decisions, Uid("u2"), PLACED, 0.0)
    decisions.seen("team-a/large", large, 0.0)
    decisions.admitted(large, "SchedulingGates", 0.0)
    decisions.admitted(large, None, 10.0)
    for second in range(11, 201, 10):
        waits = replace(REJECTED, nominated_node=None, victims=())
        keep(decisions, large, waits, second, cause="Insufficient cpu")
    keep(decisions, large, REJECTED, 201.0, cause="Insufficient cpu")
    now.seconds = 202.0
    async with serving(
        tmp_path, decisions=decisions, pod_report=pod_report, pod_groups=pod_groups
    ) as running:
        yield running


async def test_a_placed_pod_is_explained_by_the_profile_and_the_scores(running: Running) -> None:
    result = await running.answer(explain, "web", "-n", "team-a")
    assert result.exit_code == 0
    *_, first, second, head, one, two = result.stdout.strip().splitlines()
    assert first == "1970-01-01T00:00:00.000+00:00  on n1"
    assert second == "  profile mine, generation 3, Kubernetes 1.36"
    assert [line.split() for line in (head, one, two)] == [
        ["NODE", "TOTAL", "A", "B"],
        ["n1", "7", "3", "4"],
        ["n2", "1", "1", "-"],
    ]


async def test_an_unschedulable_pod_is_explained_by_message_victims_and_reasons(
    running: Running,
) -> None:
    result = await running.answer(explain, "team-a/large")
    assert result.stdout.splitlines()[-7:] == [
        "1970-01-01T00:03:21.000+00:00  not scheduled",
        "  profile mine",
        "  0/4 nodes are available: 4 Insufficient cpu.",
        "  will fit on n1 without team-a/x",
        "  n1, n2, n3: NodeResourcesFit: Insufficient cpu",
        "  (of 4 rejections these are the ones kept)",
        "",
    ]


async def test_the_path_of_a_pod_is_printed_with_equal_attempts_in_one_line(
    running: Running,
) -> None:
    result = await running.answer(explain, "team-a/large")
    lines = result.stdout.splitlines()
    assert lines[4:13] == [
        "  in all: active 3m22s",
        "",
        "AFTER   STEP",
        "0s      seen at 1970-01-01T00:00:00.000+00:00",
        "        gated by SchedulingGates",
        "10s     queued",
        "11s     20 attempts, 3m10s: Insufficient cpu",
        "3m21s   nominated to n1 without team-a/x",
        "",
    ]


async def test_an_unschedulable_pod_is_explained_first_by_its_cause_and_what_would_help(
    running: Running,
) -> None:
    result = await running.answer(explain, "team-a/large")
    assert result.stdout.splitlines()[:4] == [
        "pod team-a/large: unschedulable, pending for 3m12s, 4 attempts",
        "  The cause: Insufficient memory. It would fit",
        "  - on 4 nodes (n1, n2, n3, ...) if it requested at most 3Gi of memory instead of 8Gi",
        "  - when team-b/x on n7 ends",
    ]


@pytest.mark.parametrize("name", SAID)
async def test_a_pod_without_decisions_is_explained_by_where_it_is(
    running: Running, name: str
) -> None:
    result = await running.answer(explain, f"team-a/{name}")
    assert result.exit_code == 0
    assert result.stdout == f"{SAID[name]}\n"


async def test_json_is_passed_on(running: Running) -> None:
    result = await running.answer(explain, "team-a/web", "-o", "json")
    (decision,) = json.loads(result.stdout)["decisions"]
    assert decision["node"] == "n1"


async def test_a_pod_without_recent_decisions_is_exit_code_1(running: Running) -> None:
    result = await running.answer(explain, "other")
    assert result.exit_code == 1
    assert "no recent decision about pod default/other" in result.stderr


async def test_a_pod_may_be_named_as_for_kubectl(running: Running) -> None:
    result = await running.answer(explain, "pod/web", "-n", "team-a")
    assert "  on n1\n  profile mine" in result.stdout


async def test_a_namespace_is_not_given_twice(running: Running) -> None:
    result = await running.answer(explain, "team-a/web", "-n", "team-b")
    assert result.exit_code == 2
    assert result.stderr == "error: --namespace team-b contradicts the namespace of 'team-a/web'\n"
    assert (await running.answer(explain, "team-a/web", "-n", "team-a")).exit_code == 0


@pytest.mark.parametrize("name", ["a/b/c", "a/", "/b"])
async def test_a_name_that_cannot_be_a_pods_is_bad_input(name: str) -> None:
    result = await ask(explain, name)
    assert result.exit_code == 2
    assert (
        "write NAME, TYPE/NAME (pod, deploy, sts, job, podgroup, ...) or NAMESPACE/NAME"
        in result.stderr
    )


@pytest.mark.parametrize(
    "written",
    [
        "podgroup/train",
        "pg/train",
        "podgroups/train",
        "pgs/train",
        "podgroup.scheduling.x-k8s.io/train",
        "podgroup.scheduling.k8s.io/train",
    ],
)
async def test_a_pod_group_is_explained_by_its_members_and_the_domains_tried(
    running: Running, written: str
) -> None:
    result = await running.answer(explain, written, "-n", "team-a")
    assert result.exit_code == 0, result.output
    assert [" ".join(line.split()) for line in result.stdout.splitlines()] == [
        "pod group team-a/train (podgroups.scheduling.k8s.io): Scheduling",
        "needs 12 CPUs more in rack=r3",
        "The cause: Insufficient cpu. It would fit",
        "- when batch/squat on n7 ends",
        "members: 8 unscheduled, minimum 8; priority 5",
        "topology: block > rack (Required)",
        "2026-01-01T00:00:00Z: not placed, 2 placements tried",
        "Not all placements could be tried: one may exist that was not found.",
        "- rack=r3: 7 of 8 fit",
        "(of 9 domains these are the ones kept)",
        "POD STATE NODE",
        "team-a/a unscheduled -",
        "team-a/b unscheduled -",
        "a, b: no CPU",
        "",
    ]


async def test_a_pod_group_is_explained_as_json(running: Running) -> None:
    result = await running.answer(explain, "pg/train", "-n", "team-a", "-o", "json")
    assert json.loads(result.stdout) == {"podGroups": GROUP}


async def test_a_pod_group_that_is_not_known_exits_with_1(running: Running) -> None:
    result = await running.answer(explain, "pg/other", "-n", "team-a")
    assert result.exit_code == 1
    assert "no pod group team-a/other is known" in result.stderr


async def test_a_pod_group_needs_a_name(running: Running) -> None:
    result = await running.answer(explain, "pg/", "-n", "team-a")
    assert result.exit_code == 2
    assert "write podgroup/NAME, and -n NAMESPACE" in result.stderr


DEPLOYMENT = {"kind": "ReplicaSet", "name": "large-5d8f", "uid": "rs", "controller": True}


@pytest.fixture
async def queueing(tmp_path: Path) -> AsyncIterator[Running]:
    """Serve a scheduler that knows a placed, a pending and a gated pod; yield its endpoints."""
    labels = {"pod-template-hash": "5d8f"}
    placed = pod("large-0", namespace="team-a", owner=DEPLOYMENT, labels=labels, node="n1")
    shared = scheduler_state(placed)
    pipeline = put_profile(shared).pipeline
    large = parse_pod(pod("large", namespace="team-a", owner=DEPLOYMENT, labels=labels))
    shared.queue.add(large, pipeline, 0.0)
    popped = shared.queue.pop(0.0)
    assert popped is not None
    shared.queue.add_unschedulable(popped, frozenset(["NodeResourcesFit"]), 0.0)
    shared.decisions.seen(large.key, large.uid, 0.0)
    shared.decisions.note(large.uid, RecordedStep.UNSCHEDULABLE, 0.0, cause="Insufficient cpu")
    gated = pod("held", namespace="team-b", spec={"schedulingGates": [{"name": "shop/quota"}]})
    shared.queue.add(parse_pod(gated), pipeline, 0.0, gated=True)
    queue = Queue(
        shared,
        bound=lambda: 0,
        clock=lambda: 192.0,
        now=lambda: 192.0,
    )
    async with serving(tmp_path, pod_report=pod_report, queue=queue) as at:
        yield at


async def test_everything_that_is_pending_is_counted_by_cause(queueing: Running) -> None:
    result = await queueing.answer(explain, "-A")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == [
        "2 pods pending in all namespaces: 1 unschedulable, 1 gated",
        "",
        "PODS   OLDEST   WAIT FOR",
        "   1   3m12s    Insufficient cpu",
        "   1   3m12s    scheduling gates: shop/quota",
        "",
        "PODS   OLDEST   OF",
        "   1   3m12s    deployment/large -n team-a",
        "   1   3m12s    pod/held -n team-b",
        "",
        "mooring explain TYPE/NAME -n NAMESPACE says what would make them fit",
    ]


async def test_without_a_pod_those_of_the_contexts_namespace_are_counted(
    queueing: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = await queueing.answer(explain)
    assert result.stdout == "no pod is pending in namespace default\n"
    monkeypatch.setattr(
        import_module("mooring.cli.explain"), "default_namespace", lambda *_: "team-b"
    )
    result = await queueing.answer(explain)
    assert result.stdout.splitlines()[0] == "1 pod pending in namespace team-b: 1 gated"
    result = await queueing.answer(explain, "-n", "team-a")
    assert result.stdout.splitlines()[0] == "1 pod pending in namespace team-a: 1 unschedulable"


@pytest.mark.parametrize("written", ["deploy/large", "rs/large-5d8f"])
async def test_of_a_workload_one_pod_is_explained_for_each_cause(
    queueing: Running, written: str
) -> None:
    result = await queueing.answer(explain, written, "-n", "team-a")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0].endswith(": 1 pod on nodes, 1 pending")
    assert lines[2:4] == ["PODS   OLDEST   WAIT FOR", "   1   3m12s    Insufficient cpu"]
    assert lines[5:9] == [
        "pod team-a/large: unschedulable, pending for 3m12s, 4 attempts",
        "  The cause: Insufficient memory. It would fit",
        "  - on 4 nodes (n1, n2, n3, ...) if it requested at most 3Gi of memory instead of 8Gi",
        "  - when team-b/x on n7 ends",
    ]


async def test_a_workload_is_explained_as_json_and_yaml(queueing: Running) -> None:
    as_json = await queueing.answer(explain, "deploy/large", "-n", "team-a", "-o", "json")
    found = json.loads(as_json.stdout)
    assert (found["placed"], found["total"]) == (1, 1)
    assert found["explained"]["team-a/large"]["pod"]["suggestions"][0]["cause"] == "memory"
    as_yaml = await queueing.answer(explain, "deploy/large", "-n", "team-a", "-o", "yaml")
    assert yaml.safe_load(as_yaml.stdout) == found


async def test_a_workload_without_a_pod_exits_with_1(queueing: Running) -> None:
    result = await queueing.answer(explain, "job/none", "-n", "team-a")
    assert result.exit_code == 1
    assert "kubectl get job/none -n team-a" in result.stderr


async def test_all_namespaces_go_without_a_pod(queueing: Running) -> None:
    result = await queueing.answer(explain, "-A", "web")
    assert result.exit_code == 2
    assert "--all-namespaces goes without 'web'" in result.stderr


async def test_a_watch_prints_what_has_changed(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = iter(("unschedulable", "unschedulable", "bound"))

    def sleep(_seconds: float) -> None:
        state = next(steps, None)
        if state is None:
            raise KeyboardInterrupt
        monkeypatch.setitem(REPORTS["team-a/bound"], "state", state)
        monkeypatch.setitem(REPORTS["team-a/bound"], "pendingSeconds", 5.0)
        monkeypatch.setitem(REPORTS["team-a/bound"], "attempts", 1)

    monkeypatch.setattr(time, "sleep", sleep)
    result = await running.answer(explain, "team-a/bound", "--watch")
    assert result.exit_code == 0, result.output
    assert [line for line in result.stdout.splitlines() if line.startswith("pod")] == [
        "pod team-a/bound: bound on n1",
        "pod team-a/bound: unschedulable on n1, pending for 5s, 1 attempt",
        "pod team-a/bound: bound on n1, pending for 5s, 1 attempt",
    ]


async def test_a_watch_whose_first_question_is_not_answered_ends(tmp_path: Path) -> None:
    config = kubeconfig_of(tmp_path, "http://127.0.0.1:1")
    result = await ask(explain, "a/b", "--watch", f"--kubeconfig={config}")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("wbe-1", "there is no pod default/wbe-1, did you mean web-1?"),
        ("zzz", "there is no pod default/zzz; kubectl get pods -n default lists"),
        ("on-a-node", "pod default/on-a-node is on n7, and this replica keeps no decision"),
        ("misspelt", "waits for the scheduler 'moring'"),
    ],
)
async def test_why_nothing_is_known_of_a_pod_is_asked_of_the_api_server(
    running: Running, name: str, said: str
) -> None:
    specs = {"on-a-node": {"nodeName": "n7"}, "misspelt": {"schedulerName": "moring"}}
    pods = {f"/pods/{each}": {**pod(each), "spec": spec} for each, spec in specs.items()}
    async with ApiServer(Objects({**pods, "/pods": [pod("web-1")]})) as server:
        kubeconfig = running.kubeconfig(server.url)
        result = await ask(
            explain,
            name,
            f"--server={running.url}",
            f"--certificate-authority={running.ca}",
            f"--kubeconfig={kubeconfig}",
        )
    assert result.exit_code == 1
    assert said in result.stderr
