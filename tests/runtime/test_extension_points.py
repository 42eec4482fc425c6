"""A plugin with a wrong result fails the attempt; the error has its name and distribution."""

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pytest

from deciding import Deciding
from driving import driven
from mooring.framework.handle import Handle
from mooring.framework.hints import QueueingHint
from mooring.framework.placements import Placement, PodGroupAssignments
from mooring.framework.plugin import Normalize, PodGroupPostFilterPlugin
from mooring.framework.post_filter import (
    GroupNomination,
    GroupPreemption,
    Nomination,
    NotEligible,
    PodGroupPostFilterState,
    PostFilterState,
)
from mooring.framework.registry import NoArgs
from mooring.framework.verdicts import (
    Explanation,
    PluginError,
    PreFilterResult,
    Skip,
    Unschedulable,
    Wait,
)
from mooring.groups.model.pod_group import GroupKey, GroupSource
from mooring.groups.state.pod_groups import PodGroupState
from mooring.model.pod import Pod, Uid, parse_pod
from mooring.pausing import Interrupted, Work, pause
from mooring.runtime.extension_points import (
    run_generate_placements,
    run_pod_group_post_filter,
    run_score_placement,
)
from mooring.scheduling.outcome import FitError, ScheduleResult
from mooring.state.cluster_view import ClusterView
from mooring.state.view import NodeView
from mooring.testing.builders import node, pod

Answer = Callable[[NodeView], Any]


def always(answer: Any) -> Callable[[object], Any]:
    """Return a function that ignores its argument and returns `answer`."""
    return lambda _: answer


NODES = (node("n1"), node("n2"), node("n3"))


class Odd:
    """A plugin that accepts every pod and scores nothing, except where a test replaces a method."""

    name: ClassVar[str] = "Odd"
    depends_on_node_only: ClassVar[bool] = False
    normalize: ClassVar[Normalize] = Normalize.MAX
    answers: ClassVar[dict[str, Answer]] = {}

    def __init__(self, _args: NoArgs, _handle: Handle) -> None: ...

    def pre_filter(self, _pod: Pod, cluster: ClusterView) -> Any:
        return self._answer("pre_filter", cluster.nodes, None)

    def filter(self, _pod: Pod, nodes: NodeView, _: Any) -> Any:
        return self._answer("filter", nodes, np.ones(len(nodes), np.bool_))

    def explain(self, _pod: Pod, nodes: NodeView, _: Any) -> Any:
        why = Explanation.single("odd", len(nodes), resolvable=True)
        return self._answer("explain", nodes, why)

    def post_filter(self, state: PostFilterState) -> Any:
        rejection = Unschedulable("odd", resolvable=True)
        return self._answer("post_filter", state.cluster.nodes, rejection)

    def pre_score(self, _pod: Pod, nodes: NodeView, _cluster: ClusterView) -> Any:
        return self._answer("pre_score", nodes, None)

    def score(self, _pod: Pod, nodes: NodeView, _: Any) -> Any:
        return self._answer("score", nodes, np.zeros(len(nodes), np.int64))

    def _answer(self, method: str, nodes: NodeView, usual: Any) -> Any:
        return self.answers[method](nodes) if method in self.answers else usual


class OddRows(Odd):
    """An Odd plugin whose results are cached per spec."""

    depends_on_node_only: ClassVar[bool] = True


class OddPercentages(Odd):
    """An Odd plugin whose scores are not normalized."""

    normalize: ClassVar[Normalize] = Normalize.NONE


def deciding(plugin: type[Odd] = Odd, **answers: Answer) -> Deciding:
    class WithAnswers(plugin):  # type: ignore[misc,valid-type]  # the base is a parameter
        pass

    WithAnswers.answers = answers
    enabled = {"multiPoint": {"enabled": [{"name": "Odd"}]}}
    return Deciding(*NODES, extra=(WithAnswers,), plugins=enabled)


def blame(found: Deciding, raw: dict[str, Any] | None = None) -> str:
    """Decide about the pod, which fails; return the error's text of one line."""
    with pytest.raises(PluginError) as error:
        found.outcome(raw or pod())
    text = str(error.value)
    assert "\n" not in text
    assert text.startswith("plugin Odd of mooring-scheduler: ")
    return text.removeprefix("plugin Odd of mooring-scheduler: ")


def test_a_plugin_that_returns_what_it_should_is_used() -> None:
    assert isinstance(deciding().outcome(pod()), ScheduleResult)


@pytest.mark.parametrize("plugin", [Odd, OddRows])
@pytest.mark.parametrize(
    ("mask", "found"),
    [
        (lambda _: np.ones(1, np.bool_), "an array bool[1]"),
        (lambda _: np.True_, "bool"),
        (lambda _: True, "bool"),
        (lambda n: [True] * len(n), "list"),
        (lambda n: np.ones(len(n), np.int64), "an array int64[3]"),
        (lambda n: np.ones((len(n), 1), np.bool_), "an array bool[3,1]"),
        (lambda n: np.ones(len(n) + 1, np.bool_), "an array bool[4]"),
        (lambda _: None, "None"),
    ],
)
def test_a_filter_returns_one_bool_per_node(plugin: type[Odd], mask: Answer, found: str) -> None:
    text = blame(deciding(plugin, filter=mask))
    assert text == f"filter returned {found}; it must return an array bool[3]"


def test_a_single_false_does_not_stand_for_all_nodes() -> None:
    """Numpy would silently broadcast it, so that a rejected node could be chosen."""
    assert "bool[1]" in blame(deciding(filter=lambda _: np.zeros(1, np.bool_)))


@pytest.mark.parametrize("plugin", [Odd, OddRows])
@pytest.mark.parametrize(
    ("raw", "found"),
    [
        (lambda _: np.ones(1, np.int64), "an array int64[1]"),
        (lambda n: np.full(len(n), np.nan), "an array float64[3]"),
        (lambda n: np.ones(len(n)), "an array float64[3]"),
        (lambda n: np.ones(len(n), np.int32), "an array int32[3]"),
        (lambda _: 1, "int"),
        (lambda n: [1] * len(n), "list"),
    ],
)
def test_a_score_is_one_int64_per_node(plugin: type[Odd], raw: Answer, found: str) -> None:
    text = blame(deciding(plugin, score=raw))
    assert text == f"score returned {found}; it must return an array int64[3]"


@pytest.mark.parametrize("plugin", [Odd, OddRows])
def test_a_raw_score_is_not_negative(plugin: type[Odd]) -> None:
    assert blame(deciding(plugin, score=lambda n: np.arange(len(n)) - 1)) == (
        "score returned numbers from -1 to 1; they must not be negative, "
        "nor larger than 92233720368547758"
    )


def test_a_raw_score_is_small_enough_to_be_multiplied() -> None:
    assert "larger" in blame(deciding(score=lambda n: np.full(len(n), 2**60)))


def test_a_score_that_is_not_normalized_is_between_0_and_100() -> None:
    """kube-scheduler checks this after normalizing (framework/runtime)."""
    assert blame(deciding(OddPercentages, score=lambda n: np.full(len(n), 101))) == (
        "score returned numbers from 101 to 101; they must be from 0 to 100"
    )
    fine = deciding(OddPercentages, score=lambda n: np.full(len(n), 100))
    assert isinstance(fine.outcome(pod()), ScheduleResult)


@pytest.mark.parametrize(
    ("why", "problem"),
    [
        (lambda _: None, "explain returned None; it must return an Explanation"),
        (
            lambda _: Explanation.single("odd", 1, resolvable=True),
            "explain returned bits that are an array uint64[1]; they must be an array uint64[3]",
        ),
        (
            lambda n: Explanation(("odd",), np.ones(len(n), np.int64), np.ones(len(n), np.bool_)),
            "explain returned bits that are an array int64[3]; they must be an array uint64[3]",
        ),
        (
            lambda n: Explanation(("odd",), np.ones(len(n), np.uint64), np.ones(1, np.bool_)),
            "explain returned resolvable that is an array bool[1]; it must be an array bool[3]",
        ),
        (
            lambda n: Explanation(
                ("odd",) * 65, np.ones(len(n), np.uint64), np.ones(len(n), np.bool_)
            ),
            "explain returned bits that are an array uint64[3]; they must be an array uint64[3,2]",
        ),
        (
            lambda n: Explanation(
                ("odd",), np.ones(len(n), np.uint64), np.ones(len(n), np.bool_), ("a", "b")
            ),
            "explain returned 2 details for 1 reasons",
        ),
        (
            lambda n: Explanation("odd", np.ones(len(n), np.uint64), np.ones(len(n), np.bool_)),  # type: ignore[arg-type]  # what is tested
            "explain returned reasons or details that are no tuple of texts",
        ),
    ],
)
def test_an_explanation_is_about_every_rejected_node(why: Answer, problem: str) -> None:
    none = deciding(filter=lambda n: np.zeros(len(n), np.bool_), explain=why)
    assert blame(none) == problem


@pytest.mark.parametrize("plugin", [Odd, OddRows])
@pytest.mark.parametrize(
    "answer", [Wait(1), QueueingHint.QUEUE, Skip, Unschedulable, Nomination("n1", ())]
)
def test_a_pre_filter_returns_a_state_or_its_own_verdicts(plugin: type[Odd], answer: Any) -> None:
    text = blame(deciding(plugin, pre_filter=always(answer)))
    assert text.startswith("pre_filter returned ")
    assert text.endswith(
        "; it must return a state for filter, SKIP, PreFilterResult or Unschedulable"
    )


@pytest.mark.parametrize("names", ["n1", ["n1"], None, frozenset({1})])
def test_the_node_names_of_a_pre_filter_are_a_set_of_texts(names: Any) -> None:
    """A text would be read as a set of letters."""
    assert blame(deciding(pre_filter=always(PreFilterResult(None, node_names=names)))) == (
        "pre_filter returned a PreFilterResult whose node_names are no frozenset of texts"
    )


@pytest.mark.parametrize("plugin", [Odd, OddRows])
@pytest.mark.parametrize(
    "answer", [Wait(1), Unschedulable("no"), PreFilterResult(None, frozenset())]
)
def test_a_pre_score_returns_a_state_or_skip(plugin: type[Odd], answer: Any) -> None:
    text = blame(deciding(plugin, pre_score=always(answer)))
    assert text.endswith("; it must return a state for score or SKIP")


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (
            None,
            "post_filter returned None; it must return Nomination, Unschedulable or NotEligible",
        ),
        (
            Nomination("n9", ()),
            "post_filter nominated the node 'n9', which does not exist",
        ),
        (
            Nomination("n1", ("default/victim",)),  # type: ignore[arg-type]  # what is tested
            "post_filter returned victims that are no tuple of pods",
        ),
        (
            Nomination("n1", (parse_pod(pod("elsewhere")),) * 1_000_000),
            "post_filter returned victims that are not on the nominated node",
        ),
        (
            Unschedulable(7),  # type: ignore[arg-type]  # what is tested
            "post_filter returned a reason that is int; it must be a text",
        ),
    ],
)
def test_a_post_filter_returns_one_of_its_verdicts(answer: Any, problem: str) -> None:
    assert blame(deciding(post_filter=always(answer)), pod(cpu="99")) == problem


def test_a_nomination_of_a_node_and_pods_is_used() -> None:
    nomination = Nomination("n2", (parse_pod(pod("victim")),))
    found = deciding(post_filter=always(nomination))
    found.place(pod("victim"), "n2")
    outcome = found.outcome(pod(cpu="99"))
    assert isinstance(outcome, FitError)
    assert outcome.nomination is nomination


class OddForGroups(Odd):
    """A plugin whose results for groups a test chooses."""

    def generate_placements(self, _group: Any, parent: Placement, cluster: ClusterView) -> Any:
        return self._answer("generate_placements", cluster.nodes, (parent,))

    def score_placement(self, _group: Any, _assignments: Any, cluster: ClusterView) -> Any:
        return self._answer("score_placement", cluster.nodes, 0)

    def pod_group_post_filter(self, state: PodGroupPostFilterState) -> Any:
        rejection = Unschedulable("odd", resolvable=True)
        return self._answer("pod_group_post_filter", state.cluster.nodes, rejection)


ROWS = np.zeros(1, np.int64)


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (None, "returned None; it must return a tuple of Placements or Unschedulable"),
        ([Placement(ROWS)], "returned list; it must return a tuple of Placements"),
        ((Placement(ROWS.astype(np.int32)),), "returned rows that are an array int32[1]"),
        ((Placement(ROWS + 99),), "returned rows that are not among those of the parent"),
        ((Placement(ROWS, "key", 5),), "returned a placement whose key or value is no text"),  # type: ignore[arg-type] # wrong on purpose
    ],
)
def test_generate_placements_returns_parts_of_the_parent(answer: Any, problem: str) -> None:
    found = deciding(OddForGroups, generate_placements=always(answer))
    plugin = next(p for p in found.pipeline.placement_generate if p.name == "Odd")
    parent = Placement(found.cluster.nodes_in_order)
    group = PodGroupState(GroupKey(GroupSource.PODS, "default", "g"))
    with pytest.raises(PluginError, match=re.escape(problem)):
        run_generate_placements(found.pipeline, plugin, group, parent, found.cluster)


@pytest.mark.parametrize("answer", [None, -1, 0.5, 2**63])
def test_score_placement_returns_a_number_that_can_be_normalized(answer: Any) -> None:
    found = deciding(OddForGroups, score_placement=always(answer))
    scorer = next(s for s in found.pipeline.placement_scores if s.plugin.name == "Odd")
    group = PodGroupState(GroupKey(GroupSource.PODS, "default", "g"))
    assignments = PodGroupAssignments(Placement(ROWS), {}, 0)
    with pytest.raises(PluginError, match="score_placement returned"):
        run_score_placement(found.pipeline, scorer.plugin, group, assignments, found.cluster)


STRANGER = parse_pod(pod("stranger", node="n1"))


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (None, "it must return GroupNomination, Unschedulable or NotEligible"),
        (GroupNomination({}, ()), "returned nodes that are not one for each member"),
        (GroupNomination({Uid("m"): "n9"}, ()), "nominated a node that does not exist"),
        (
            GroupNomination({Uid("m"): "n1"}, (STRANGER,)),
            "victims that are no tuple of pods on nodes",
        ),
        (GroupNomination({Uid("m"): "n1"}, [1]), "victims that are no tuple of pods on nodes"),  # type: ignore[arg-type] # wrong on purpose
    ],
)
@pytest.mark.parametrize("pauses", [0, 2])
def test_a_group_nomination_names_nodes_and_pods_that_exist(
    answer: Any, problem: str, pauses: int
) -> None:
    with pytest.raises(PluginError, match=problem):
        driven(group_post_filter(after_pauses(pauses, answer)))


def after_pauses(pauses: int, answer: Any) -> Callable[[object], Any]:
    def answered(_state: object) -> Any:
        for _ in range(pauses):
            pause()
        if isinstance(answer, Exception):
            raise answer
        return answer

    return answered


def group_post_filter(answer: Callable[[object], Any]) -> Callable[[], GroupPreemption]:
    """Return a function that runs a plugin with this method for a group of one member."""
    found = deciding(OddForGroups, pod_group_post_filter=answer)
    plugin = next(p for p in found.pipeline.post_filter if p.name == "Odd")
    assert isinstance(plugin, PodGroupPostFilterPlugin)
    group = PodGroupState(GroupKey(GroupSource.PODS, "default", "g"))
    member = replace(parse_pod(pod("m")), uid=Uid("m"))
    state = PodGroupPostFilterState(
        group,
        (member,),
        found.cluster,
        always(None),
        bool,
        found.pipeline.preemption,
        0.0,
    )
    return partial(run_pod_group_post_filter, found.pipeline, plugin, state)


def test_a_plugin_for_groups_may_pause() -> None:
    nomination = GroupNomination({Uid("m"): "n1"}, ())
    assert driven(group_post_filter(after_pauses(2, nomination))) == (nomination, 2)


def test_a_plugin_for_groups_has_not_failed_if_it_is_cancelled_in_a_pause(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with Work(group_post_filter(after_pauses(1, NotEligible("never")))) as work:
        assert not work.advance()
    with pytest.raises(Interrupted):
        work.result()
    assert not caplog.records


@pytest.mark.parametrize("method", ["pre_filter", "filter", "pre_score", "score"])
def test_a_plugin_has_not_failed_if_its_attempt_is_cancelled_in_a_pause(
    method: str, caplog: pytest.LogCaptureFixture
) -> None:
    done = list[str]()

    def pauses(_nodes: NodeView) -> None:
        pause()
        done.append("went on")

    found = deciding(Odd, **{method: pauses})
    with Work(lambda: found.outcome(pod())) as work:
        assert not work.advance()
    with pytest.raises(Interrupted):
        work.result()
    assert not done
    assert not caplog.records


def test_what_a_plugin_for_groups_raises_after_a_pause_is_its_failure() -> None:
    with pytest.raises(PluginError, match='running PostFilter plugin "Odd": broken'):
        driven(group_post_filter(after_pauses(1, ValueError("broken"))))
