"""Plans as documents: total gain, nodes before and after, and hidden names of pods."""

from dataclasses import replace

from mooring.framework.decision import PodRef
from mooring.model.pod import parse_pod
from mooring.observe.documents import HIDDEN, dumps, plain
from mooring.rebalancing.report import NodeRequests
from mooring.testing.builders import pod
from planning import emptying, making_room, plan, reported, spread_step


def test_a_node_that_is_left_has_less_and_its_target_more() -> None:
    first, second = reported(plan(emptying("n1", "n2", "a", "b"))).nodes
    assert (first.node, second.node) == ("n1", "n2")
    assert (first.before, first.after) == (NodeRequests(2, 50.0, 25.0), NodeRequests(0, 0.0, 0.0))
    assert (second.before, second.after) == (
        NodeRequests(1, 50.0, 25.0),
        NodeRequests(3, 100.0, 50.0),
    )


def test_a_node_that_has_gone_since_is_left_out() -> None:
    report = reported(plan(spread_step("a", "n1", "gone")))
    assert [each.node for each in report.nodes] == ["n1"]


def test_a_plan_says_in_sum_what_its_steps_gain() -> None:
    waiting = parse_pod(pod("big", namespace="ml"))
    steps = (emptying("n1", "n2", "a", "b"), making_room("c", "n2", "n1", waiting))
    report = reported(plan(*steps, it_is_too_young=2, its_budget_allows_none=3, nothing=0))
    assert (report.moves, report.emptied, report.violations) == (3, ("n1",), 0)
    assert report.fits == (PodRef.of(waiting),)
    assert [(each.reason, each.pods) for each in report.refused] == [
        ("its budget allows none", 3),
        ("it is too young", 2),
    ]


def test_json_has_from_and_to_of_each_move() -> None:
    (step,) = plain(reported(plan(spread_step("a", "n1", "n2"))))["steps"]
    assert step["moves"] == [{"pod": "shop/a", "owner": "ReplicaSet", "from": "n1", "to": "n2"}]
    assert "group" not in step


def test_json_says_how_many_pods_were_looked_at_only_where_the_goals_ask_for_it() -> None:
    assert plain(reported(plan(examined=3, spent=True)))["examined"] == 3
    assert "examined" not in plain(reported(plan()))


def test_a_user_reads_no_names_of_pods_that_he_may_not_get() -> None:
    waiting = parse_pod(pod("big", namespace="ml"))
    whole = replace(spread_step("a", "n1", "n2"), group="shop/secret-group")
    report = reported(plan(whole, making_room("c", "n2", "n1", waiting)))
    text = dumps(report, lambda _: False).decode()
    assert HIDDEN in text
    for name in ("shop/a", "shop/c", "ml/big", "secret-group"):
        assert name not in text
    assert "a pod fits" in text
    assert "n1" in text
