import pytest

from mooring.plugins.taint_toleration import TaintToleration
from mooring.testing.builders import node, pod, toleration
from plugin_answers import PluginAnswers, Rejected

REFUSAL = Rejected(("node(s) had untolerated taint(s)",), resolvable=False)


@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute"])
def test_a_hard_taint_keeps_pods_away(effect: str) -> None:
    asking = PluginAnswers(TaintToleration, node("free"), node("tainted", taints=[f"k=v:{effect}"]))
    assert asking.rejections(pod()) == {"tainted": REFUSAL}


def test_a_soft_taint_keeps_nobody_away() -> None:
    assert (
        PluginAnswers(TaintToleration, node("n1", taints=["k=v:PreferNoSchedule"])).rejections(
            pod()
        )
        == {}
    )


@pytest.mark.parametrize(
    ("wanted", "tolerated"),
    [
        ({"key": "k", "operator": "Equal", "value": "v"}, True),
        ({"key": "k", "value": "v"}, True),
        ({"key": "k", "operator": "Equal", "value": "w"}, False),
        ({"key": "k", "operator": "Exists"}, True),
        ({"key": "k", "operator": "Exists", "effect": "NoSchedule"}, True),
        ({"key": "k", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"operator": "Exists"}, True),
        ({"key": "other", "operator": "Exists"}, False),
    ],
)
def test_a_toleration_matches_by_key_operator_value_and_effect(
    wanted: dict[str, str], *, tolerated: bool
) -> None:
    asking = PluginAnswers(TaintToleration, node("n1", taints=["k=v:NoSchedule"]))
    assert asking.rejections(pod(tolerations=[wanted])) == ({} if tolerated else {"n1": REFUSAL})


def test_every_hard_taint_must_be_tolerated() -> None:
    asking = PluginAnswers(TaintToleration, node("n1", taints=["a:NoSchedule", "b:NoExecute"]))
    assert asking.rejections(pod(tolerations=[toleration("a")])) == {"n1": REFUSAL}
    assert asking.rejections(pod(tolerations=[toleration("a"), toleration("b")])) == {}


def test_fewer_untolerated_soft_taints_score_higher() -> None:
    asking = PluginAnswers(
        TaintToleration,
        node("none"),
        node("one", taints=["a:PreferNoSchedule"]),
        node("two", taints=["a:PreferNoSchedule", "b:PreferNoSchedule"]),
    )
    assert asking.scores(pod()) == {"none": 100, "one": 50, "two": 0}
    assert asking.scores(pod(tolerations=[toleration("a")])) == {"none": 100, "one": 100, "two": 0}


def test_a_toleration_of_a_hard_effect_says_nothing_about_soft_taints() -> None:
    asking = PluginAnswers(
        TaintToleration, node("none"), node("one", taints=["a:PreferNoSchedule"])
    )
    hard = pod(tolerations=[toleration("a", effect="NoSchedule")])
    soft = pod(tolerations=[toleration("a", effect="PreferNoSchedule")])
    assert asking.scores(hard) == {"none": 100, "one": 0}
    assert asking.scores(soft) == {"none": 100, "one": 100}


def test_without_soft_taints_all_nodes_are_best() -> None:
    asking = PluginAnswers(TaintToleration, node("n1"), node("n2", taints=["a:NoSchedule"]))
    assert asking.scores(pod()) == {"n1": 100, "n2": 100}


def test_a_node_added_or_changed_queues_if_its_taints_are_tolerated_now() -> None:
    asking = PluginAnswers(TaintToleration)
    tainted, free = node("n1", taints=["a:NoSchedule"]), node("n1")
    assert asking.queueing_hint(pod(), after=free)
    assert asking.queueing_hint(pod(), before=tainted, after=free)
    assert not asking.queueing_hint(pod(), after=tainted)
    assert not asking.queueing_hint(pod(), before=free, after=free)
