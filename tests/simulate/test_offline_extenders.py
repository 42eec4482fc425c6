"""Simulations that call extenders, which a thread of the test serves."""

from typing import Any

from extending import Answers, extender
from http_servers import served_by_thread
from mooring.framework.decision import Decision
from mooring.framework.registry import Registry
from mooring.plugins import SHIPPED
from mooring.simulate.inputs import inputs_of
from mooring.simulate.manifests import Manifest
from mooring.simulate.simulation import simulate
from mooring.testing.builders import api_object, node, pod, pod_group

REGISTRY = Registry(SHIPPED, {})


def decisions(
    *objects: dict[str, Any], extenders: list[dict[str, Any]], calls: bool = True
) -> dict[str, Decision]:
    profile = api_object("SchedulingProfile", "default-scheduler", spec={"extenders": extenders})
    profile["apiVersion"] = "scheduling.mooring.dev/v1alpha1"
    manifests = [Manifest(f"document {n}", raw) for n, raw in enumerate((*objects, profile))]
    inputs = inputs_of(manifests, REGISTRY, keep_raw=True)
    attempts = simulate(inputs, REGISTRY, seed=0, extenders=calls)
    return {attempt.decision.pod.key: attempt.decision for attempt in attempts}


NODES = (node("a"), node("b"), node("c"))


def test_extenders_filter_and_score_in_a_simulation() -> None:
    failed = {"NodeNames": ["b", "c"], "FailedNodes": {"a": "busy"}}
    answers = Answers(filter=failed, prioritize=[{"Host": "c", "Score": 5}])
    with served_by_thread(answers.application()) as port:
        found = decisions(*NODES, pod("web"), extenders=[extender(port, "filter", "prioritize")])
    decision = found["default/web"]
    assert decision.node == "c"
    assert decision.rejections["a"].plugin == "Extender"
    assert decision.rejections["a"].reasons == ("busy",)
    assert decision.scores is not None
    assert decision.scores["c"].plugins[f"http://127.0.0.1:{port}"] == 50
    assert answers.asked[0][1]["Pod"]["metadata"]["name"] == "web"


def test_extenders_are_not_called_unless_that_is_wanted() -> None:
    answers = Answers(filter={"NodeNames": []})
    with served_by_thread(answers.application()) as port:
        given = [extender(port, "filter")]
        found = decisions(*NODES, pod("web"), extenders=given, calls=False)
    assert found["default/web"].node is not None
    assert answers.asked == []


def test_extenders_get_whole_nodes_and_choose_among_the_candidates_for_preemption() -> None:
    def keeps_b(arguments: dict[str, Any]) -> object:
        (uid,) = (p["metadata"]["uid"] for p in arguments["NodeNameToVictims"]["b"]["Pods"])
        return {"NodeNameToMetaVictims": {"b": {"Pods": [{"UID": uid}], "NumPDBViolations": 0}}}

    full = [pod(f"on-{name}", node=name, cpu="4") for name in "abc"]
    with served_by_thread(Answers(preempt=keeps_b).application()) as port:
        given = [extender(port, "preempt", nodeCacheCapable=False)]
        found = decisions(*NODES, *full, pod("web", cpu="1", priority=9), extenders=given)
    assert found["default/web"].nominated_node == "b"
    assert [v.key for v in found["default/web"].victims] == ["default/on-b"]


def test_a_dead_extender_is_the_pods_message() -> None:
    with served_by_thread(Answers().application()) as port:
        pass
    found = decisions(*NODES, pod("web"), extenders=[extender(port, "filter")])
    assert found["default/web"].message == (
        f'extender "http://127.0.0.1:{port}" failed to filter: Connection refused'
    )


def test_a_filter_that_passes_nothing_is_diagnosed_with_its_reasons() -> None:
    answers = Answers(filter={"FailedNodes": {"a": "busy", "b": "busy"}})
    with served_by_thread(answers.application()) as port:
        found = decisions(*NODES, pod("web"), extenders=[extender(port, "filter")])
    message = found["default/web"].message
    assert message is not None
    assert message.startswith(
        "0/3 nodes are available: 1 node(s) were filtered out by extender "
        f"http://127.0.0.1:{port}, 2 busy."
    )


GANG = (pod_group("g", 2), *(pod(f"g-{i}", group="g", cpu="3") for i in range(2)))


def test_extenders_filter_the_nodes_of_a_group() -> None:
    answers = Answers(filter={"NodeNames": ["a", "c"]})
    with served_by_thread(answers.application()) as port:
        found = decisions(*NODES, *GANG, extenders=[extender(port, "filter")])
    assert sorted(str(found[f"default/g-{i}"].node) for i in range(2)) == ["a", "c"]


def test_a_group_that_extenders_reject_says_so() -> None:
    answers = Answers(filter={"NodeNames": ["c"], "FailedNodes": {"a": "busy", "b": "busy"}})
    with served_by_thread(answers.application()) as port:
        found = decisions(*NODES, *GANG, extenders=[extender(port, "filter")])
    for name in ("g-0", "g-1"):
        assert found[f"default/{name}"].node is None
        reason = f"1 Insufficient cpu, 2 extender http://127.0.0.1:{port}: busy"
        assert reason in str(found[f"default/{name}"].message)


def test_a_dead_extender_is_the_message_of_a_group() -> None:
    with served_by_thread(Answers().application()) as port:
        pass
    found = decisions(*NODES, *GANG, extenders=[extender(port, "filter")])
    text = f'extender "http://127.0.0.1:{port}" failed to filter: Connection refused'
    assert [found[f"default/g-{i}"].message for i in range(2)] == [text, text]


def test_a_group_is_placed_as_if_there_were_no_extenders_unless_they_are_called() -> None:
    answers = Answers(filter={"NodeNames": []}, preempt={})
    with served_by_thread(answers.application()) as port:
        given = [extender(port, "filter", "preempt")]
        found = decisions(*NODES, *GANG, extenders=given, calls=False)
    assert all(found[f"default/g-{i}"].node is not None for i in range(2))
    assert answers.asked == []
