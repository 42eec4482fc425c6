from typing import Any

import pytest

from mooring.framework.verdicts import PreFilterResult, Unschedulable
from mooring.model.pod import parse_pod
from mooring.plugins.node_affinity import NodeAffinity, NodeAffinityArgs
from mooring.state.cluster_view import ClusterView
from mooring.testing.builders import cluster, node, pod
from mooring.testing.fakes import handle
from node_selectors import expression, named, required_nodes
from plugin_answers import PluginAnswers, Rejected

SOFT = "preferredDuringSchedulingIgnoredDuringExecution"
OUT = Rejected(("node(s) didn't match Pod's node affinity/selector",), resolvable=False)
ENFORCED = Rejected(("node(s) didn't match scheduler-enforced node affinity",), resolvable=False)

NODES = (
    node("ssd-2", labels={"disk": "ssd", "cores": "2"}),
    node("ssd-8", labels={"disk": "ssd", "cores": "8"}),
    node("hdd-8", labels={"disk": "hdd", "cores": "8"}),
    node("plain"),
)
ALL = {raw["metadata"]["name"] for raw in NODES}


def term(*expressions: dict[str, Any], names: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"matchExpressions": [*expressions]} | named(*names)


def requiring(*terms: dict[str, Any], **features: Any) -> dict[str, Any]:
    return pod(affinity=required_nodes(*terms), **features)


def preferring(*weighted: tuple[int, dict[str, Any]]) -> dict[str, Any]:
    terms = [{"weight": weight, "preference": preference} for weight, preference in weighted]
    return pod(affinity={"nodeAffinity": {SOFT: terms}})


def fitting(raw: dict[str, Any], **args: Any) -> set[str]:
    rejections = PluginAnswers(NodeAffinity, *NODES, **args).rejections(raw)
    assert rejections is not None
    return ALL - rejections.keys()


@pytest.mark.parametrize(
    ("wanted", "fits"),
    [
        (expression("disk", "In", "ssd", "nvme"), {"ssd-2", "ssd-8"}),
        (expression("disk", "NotIn", "ssd"), {"hdd-8", "plain"}),
        (expression("disk", "Exists"), {"ssd-2", "ssd-8", "hdd-8"}),
        (expression("disk", "DoesNotExist"), {"plain"}),
        (expression("cores", "Gt", "2"), {"ssd-8", "hdd-8"}),
        (expression("cores", "Lt", "8"), {"ssd-2"}),
        (expression("disk", "Gt", "2"), set()),
        (expression("cores", "Gt", "many"), set()),
        (expression("disk", "In"), set()),
    ],
)
def test_an_expression_selects_by_its_operator(wanted: dict[str, Any], fits: set[str]) -> None:
    assert fitting(requiring(term(wanted))) == fits


def test_expressions_of_a_term_are_anded_and_terms_ored() -> None:
    ssd, eight = expression("disk", "In", "ssd"), expression("cores", "In", "8")
    assert fitting(requiring(term(ssd, eight))) == {"ssd-8"}
    assert fitting(requiring(term(ssd), term(eight))) == {"ssd-2", "ssd-8", "hdd-8"}


def test_an_empty_term_selects_nothing() -> None:
    assert fitting(requiring(term())) == set()
    assert fitting(requiring(term(), term(expression("disk", "Exists")))) == ALL - {"plain"}


def test_the_node_selector_and_the_affinity_must_both_hold() -> None:
    wanted = requiring(term(expression("cores", "In", "8")), node_selector={"disk": "ssd"})
    assert fitting(wanted) == {"ssd-8"}
    assert fitting(pod(node_selector={"disk": "ssd"})) == {"ssd-2", "ssd-8"}


def test_a_node_is_out_for_good() -> None:
    asking = PluginAnswers(NodeAffinity, *NODES)
    assert asking.rejections(pod(node_selector={"disk": "tape"})) == dict.fromkeys(ALL, OUT)


def test_a_pod_without_node_affinity_is_skipped() -> None:
    asking = PluginAnswers(NodeAffinity, *NODES)
    assert asking.rejections(pod()) is None
    assert asking.scores(pod()) is None


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        (requiring(term(names=("plain",))), {"plain"}),
        (requiring(term(names=("plain",)), term(names=("hdd-8",))), {"plain", "hdd-8"}),
        (requiring(term(expression("disk", "Exists"), names=("ssd-2",))), {"ssd-2"}),
    ],
)
def test_where_every_term_goes_by_name_only_those_nodes_are_looked_at(
    wanted: dict[str, Any], names: set[str]
) -> None:
    state = cluster(*NODES)
    answer = NodeAffinity(NodeAffinityArgs(), handle(state)).pre_filter(
        parse_pod(wanted), ClusterView(state)
    )
    assert isinstance(answer, PreFilterResult)
    assert answer.node_names == names


def test_names_that_exclude_each_other_reject_the_pod() -> None:
    state = cluster(*NODES)
    answer = NodeAffinity(NodeAffinityArgs(), handle(state)).pre_filter(
        parse_pod(requiring(term(names=("plain", "hdd-8")))), ClusterView(state)
    )
    assert answer == Unschedulable("pod affinity terms conflict", resolvable=False)


def test_weights_of_the_preferred_terms_that_match_add_up() -> None:
    wanted = preferring(
        (10, term(expression("disk", "In", "ssd"))), (30, term(expression("cores", "In", "8")))
    )
    assert PluginAnswers(NodeAffinity, *NODES).scores(wanted) == {
        "ssd-2": 25,
        "ssd-8": 100,
        "hdd-8": 75,
        "plain": 0,
    }


def test_the_profiles_own_affinity_is_added_to_every_pods() -> None:
    added = required_nodes(term(expression("disk", "Exists")))["nodeAffinity"]
    asking = PluginAnswers(NodeAffinity, *NODES, addedAffinity=added)
    assert asking.rejections(pod()) == {"plain": ENFORCED}
    assert asking.rejections(pod(node_selector={"cores": "2"})) == {
        "ssd-8": OUT,
        "hdd-8": OUT,
        "plain": ENFORCED,
    }


def test_the_profiles_own_preferences_score_too() -> None:
    added = {SOFT: [{"weight": 5, "preference": term(expression("disk", "In", "hdd"))}]}
    scores = PluginAnswers(NodeAffinity, *NODES, addedAffinity=added).scores(pod())
    assert scores == {"ssd-2": 0, "ssd-8": 0, "hdd-8": 100, "plain": 0}


def test_a_profile_may_disable_pre_filter_and_pre_score() -> None:
    asking = PluginAnswers(NodeAffinity, *NODES)
    wanted = requiring(term(expression("disk", "Exists"), names=("ssd-2",)))
    assert asking.rejections(wanted, pre_filter=False) == dict.fromkeys(ALL - {"ssd-2"}, OUT)
    assert asking.rejections(pod(), pre_filter=False) == {}
    preferred = preferring((5, term(expression("disk", "In", "hdd"))))
    assert asking.scores(preferred, pre_score=False) == asking.scores(preferred)
    assert asking.scores(pod(), pre_score=False) == dict.fromkeys(ALL, 0)


def test_a_node_added_or_relabelled_queues_if_it_matches_now() -> None:
    asking, wanted = PluginAnswers(NodeAffinity), pod(node_selector={"disk": "ssd"})
    plain, ssd = node("n1"), node("n1", labels={"disk": "ssd"})
    assert asking.queueing_hint(wanted, after=ssd)
    assert asking.queueing_hint(wanted, before=plain, after=ssd)
    assert not asking.queueing_hint(wanted, after=plain)
    assert not asking.queueing_hint(wanted, before=ssd, after=ssd)
    assert not asking.queueing_hint(wanted, before=plain, after=node("n1", cpu="64"))
