"""A plugin that breaks a rule fails the contract's test of this rule."""

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest

from mooring.framework.handle import Handle
from mooring.framework.plugin import Normalize
from mooring.framework.registry import NoArgs
from mooring.framework.verdicts import Explanation, Skip
from mooring.model.pod import Pod, Uid
from mooring.state.cluster_view import ClusterView
from mooring.state.columns import IntArray
from mooring.state.view import BoolArray, NodeView
from mooring.testing.builders import node, pod
from mooring.testing.contract import PluginContract, Scenario


class LargeNodes:
    """A correct plugin: it requires 4 cores and prefers more."""

    name: ClassVar[str] = "LargeNodes"
    depends_on_node_only: ClassVar[bool] = True
    normalize: ClassVar[Normalize] = Normalize.MAX

    def __init__(self, _args: NoArgs, handle: Handle) -> None:
        self.cluster = handle.cluster

    def filter(self, _pod: Pod, nodes: NodeView, _: Any) -> BoolArray:
        return nodes.allocatable("cpu") >= 4000

    def explain(self, _pod: Pod, nodes: NodeView, _: Any) -> Explanation:
        return Explanation.single("node(s) were small", len(nodes), resolvable=False)

    def score(self, _pod: Pod, nodes: NodeView, _: Any) -> IntArray:
        return nodes.allocatable("cpu").copy()


class GivesIntegers(LargeNodes):
    def filter(self, _pod: Pod, nodes: NodeView, _: Any) -> Any:
        return (nodes.allocatable("cpu") >= 4000).astype(np.int64)


class GivesOneForAll(LargeNodes):
    def filter(self, _pod: Pod, _nodes: NodeView, _: Any) -> Any:
        return np.zeros(1, np.bool_)


class KeepsSilent(LargeNodes):
    def explain(self, _pod: Pod, nodes: NodeView, _: Any) -> Explanation:
        bits = np.zeros(len(nodes), np.uint64)
        return Explanation(("node(s) were small",), bits, np.zeros(len(nodes), np.bool_))


class NamesNoReason(LargeNodes):
    def explain(self, _pod: Pod, nodes: NodeView, _: Any) -> Explanation:
        bits = np.full(len(nodes), 2, np.uint64)
        return Explanation(("node(s) were small",), bits, np.zeros(len(nodes), np.bool_))


class HasVeryManyReasons(LargeNodes):
    """A correct plugin whose explanation needs several words of bits per node."""

    def explain(self, _pod: Pod, nodes: NodeView, _: Any) -> Explanation:
        every = np.ones(len(nodes), np.bool_)
        masks = [(f"node(s) were small, for reason {i}", every) for i in range(100)]
        return Explanation.from_masks(masks, resolvable=~every)


class NamesTooFewOfVeryManyReasons(HasVeryManyReasons):
    def explain(self, _pod: Pod, nodes: NodeView, _: Any) -> Explanation:
        why = super().explain(_pod, nodes, _)
        return Explanation(why.reasons[:-1], why.bits, why.resolvable)


class ComparesNodes(LargeNodes):
    def filter(self, _pod: Pod, nodes: NodeView, _: Any) -> BoolArray:
        cpu = nodes.allocatable("cpu")
        largest: BoolArray = cpu >= cpu.max(initial=0)
        return largest


class ScoresBelowZero(LargeNodes):
    def score(self, _pod: Pod, nodes: NodeView, _: Any) -> IntArray:
        return nodes.allocatable("cpu") - 3000


class ScoresAboveOneHundred(LargeNodes):
    normalize: ClassVar[Normalize] = Normalize.NONE


class ScoresByRank(LargeNodes):
    def score(self, _pod: Pod, nodes: NodeView, _: Any) -> IntArray:
        return np.argsort(nodes.allocatable("cpu"), kind="stable")


class ReadsTheClusterEarly(LargeNodes):
    def pre_filter(self, _pod: Pod, cluster: ClusterView) -> Skip | int:
        return cluster.node_count

    def filter(self, _pod: Pod, nodes: NodeView, count: int) -> BoolArray:
        return nodes.allocatable("cpu") >= 2000 * count


class Remembers(LargeNodes):
    asked = 0

    def score(self, _pod: Pod, nodes: NodeView, _: Any) -> IntArray:
        self.asked += 1
        return np.full(len(nodes), self.asked, np.int64)


class CountsRows(LargeNodes):
    def score(self, _pod: Pod, nodes: NodeView, _: Any) -> IntArray:
        return nodes.rows.copy()


class Writes(LargeNodes):
    def filter(self, _pod: Pod, nodes: NodeView, _: Any) -> BoolArray:
        self.cluster._state.nodes.pod_count.data[0] += 1
        return np.ones(len(nodes), np.bool_)


class Nominates(LargeNodes):
    def filter(self, pod: Pod, nodes: NodeView, _: Any) -> BoolArray:
        self.cluster._state.nominate(pod, "small")
        return np.ones(len(nodes), np.bool_)


class BeginsEvictions(LargeNodes):
    def filter(self, pod: Pod, nodes: NodeView, _: Any) -> BoolArray:
        victims = [placed.pod for placed in self.cluster._state.pods]
        self.cluster._state.begin_evictions(pod, victims)
        return np.ones(len(nodes), np.bool_)


class CountsMembers(LargeNodes):
    def filter(self, pod: Pod, nodes: NodeView, _: Any) -> BoolArray:
        member = replace(pod, uid=Uid("another"), scheduling_group="gang")
        self.cluster.pod_groups.put_unscheduled(member)
        return np.ones(len(nodes), np.bool_)


class ForgetsPods(LargeNodes):
    depends_on_node_only: ClassVar[bool] = True
    depends_on_node_object_only: ClassVar[bool] = True

    def filter(self, _pod: Pod, nodes: NodeView, _: Any) -> BoolArray:
        return np.less(nodes.pod_count, 1)


class FiltersByMoreThanItsKey(LargeNodes):
    def filter_key(self, _pod: Pod) -> int:
        return 0

    def filter(self, pod: Pod, nodes: NodeView, _: Any) -> BoolArray:
        return nodes.allocatable("cpu") >= 80 * pod.spec.demand.resources.get("cpu", 0)


class ScoresByMoreThanItsKey(LargeNodes):
    def score_key(self, _pod: Pod) -> int:
        return 0

    def score(self, pod: Pod, nodes: NodeView, _: Any) -> IntArray:
        return nodes.allocatable("cpu") + len(pod.name)


class RegistersEventsWithoutAHint(LargeNodes):
    events_to_register: ClassVar[frozenset[Any]] = frozenset()


class MisspellsScore(LargeNodes):
    def pre_scores(self, _pod: Pod, _nodes: NodeView, _cluster: ClusterView) -> None: ...


class RejectsNothing(LargeNodes):
    def filter(self, _pod: Pod, nodes: NodeView, _: Any) -> BoolArray:
        return np.ones(len(nodes), np.bool_)


class ScoresAllTheSame(LargeNodes):
    def score(self, _pod: Pod, nodes: NodeView, _: Any) -> IntArray:
        return np.full(len(nodes), 7)


class OnlyPermits:
    """A correct plugin without filter and score."""

    name: ClassVar[str] = "OnlyPermits"
    depends_on_node_only: ClassVar[bool] = False

    def __init__(self, _args: NoArgs, _handle: Handle) -> None: ...

    def permit(self, _pod: Pod, _node: str) -> None: ...


RULES = [name for name in vars(PluginContract) if name.startswith("test_")]
SCENARIOS = [
    Scenario(
        nodes=(node("small", cpu="2"), node("large", cpu="8"), node("mid")),
        pod=pod("web"),
        others=(pod("other", node="mid"),),
    ),
    Scenario(nodes=(node("small", cpu="2"), node("large", cpu="8")), pod=pod("worker", cpu="50m")),
]


def contract_of(of: type[Any]) -> PluginContract:
    class Contract(PluginContract):
        plugin = of
        scenarios = SCENARIOS

    return Contract()


@pytest.mark.parametrize("plugin", [LargeNodes, HasVeryManyReasons, OnlyPermits])
@pytest.mark.parametrize("rule", RULES)
def test_a_correct_plugin_keeps_every_rule(plugin: type[Any], rule: str) -> None:
    getattr(contract_of(plugin), rule)()


@pytest.mark.parametrize(
    ("plugin", "rule"),
    [
        (GivesIntegers, "test_it_filters_with_one_bool_per_node"),
        (GivesOneForAll, "test_it_filters_with_one_bool_per_node"),
        (KeepsSilent, "test_it_explains_every_rejected_node_with_a_reason"),
        (NamesNoReason, "test_it_explains_every_rejected_node_with_a_reason"),
        (NamesTooFewOfVeryManyReasons, "test_it_explains_every_rejected_node_with_a_reason"),
        (ComparesNodes, "test_it_filters_some_nodes_as_it_filters_all"),
        (
            ScoresBelowZero,
            "test_it_scores_with_one_integer_per_node_that_normalizes_to_0_to_100",
        ),
        (
            ScoresAboveOneHundred,
            "test_it_scores_with_one_integer_per_node_that_normalizes_to_0_to_100",
        ),
        (ScoresByRank, "test_it_scores_some_nodes_as_it_scores_all_if_it_is_node_only"),
        (
            ReadsTheClusterEarly,
            "test_pre_filter_and_pre_score_do_not_read_the_cluster_if_it_is_node_only",
        ),
        (Remembers, "test_it_returns_the_same_when_it_runs_again"),
        (CountsRows, "test_it_returns_the_same_whatever_the_order_of_nodes"),
        (Writes, "test_it_changes_nothing_while_it_decides"),
        (Nominates, "test_it_changes_nothing_while_it_decides"),
        (CountsMembers, "test_it_changes_nothing_while_it_decides"),
        (BeginsEvictions, "test_it_changes_nothing_while_it_decides"),
        (
            ForgetsPods,
            "test_it_returns_the_same_without_pods_if_it_depends_on_the_node_object_only",
        ),
        (FiltersByMoreThanItsKey, "test_pods_with_equal_keys_have_equal_results"),
        (ScoresByMoreThanItsKey, "test_pods_with_equal_keys_have_equal_results"),
        (MisspellsScore, "test_it_has_no_misspelt_method"),
        (RejectsNothing, "test_its_filter_rejects_a_node_in_some_scenario"),
        (ScoresAllTheSame, "test_its_scores_differ_in_some_scenario"),
        (RegistersEventsWithoutAHint, "test_it_has_a_queueing_hint_if_it_registers_events"),
    ],
)
def test_a_plugin_that_breaks_a_rule_fails_its_test(plugin: type[Any], rule: str) -> None:
    with pytest.raises(AssertionError):
        getattr(contract_of(plugin), rule)()


class NeedsArguments(LargeNodes):
    Args = NoArgs

    def __init__(self, args: NoArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        if not args.model_fields_set:
            raise ValueError("no cores")


def test_a_plugin_that_cannot_be_built_with_its_defaults_fails() -> None:
    with pytest.raises(ValueError, match="no cores"):
        contract_of(NeedsArguments).test_it_can_be_built_with_default_arguments()
