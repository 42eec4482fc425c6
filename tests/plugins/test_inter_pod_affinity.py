from typing import Any

import pytest

from mooring.framework.hints import QueueingHint
from mooring.model.events import Action, ClusterEvent, Kind
from mooring.model.node import HOSTNAME, ZONE
from mooring.model.pod import parse_pod
from mooring.plugins.inter_pod_affinity import InterPodAffinity, InterPodAffinityArgs
from mooring.state.cluster_view import ClusterView
from mooring.testing.builders import cluster, namespace, node, pod, uid_of
from mooring.testing.fakes import handle
from plugin_answers import PluginAnswers, Rejected
from pod_terms import apart, near, to_pods

SOFT = "preferredDuringSchedulingIgnoredDuringExecution"
WEB, DB = {"app": "web"}, {"app": "db"}
NODES = (
    node("a1", zone="a", labels={"rack": "r1"}),
    node("a2", zone="a"),
    node("b1", zone="b", labels={"rack": "r1"}),
    node("nowhere"),
)

NOT_WITH = Rejected(("node(s) didn't match pod affinity rules",), resolvable=False)
AGAINST = Rejected(("node(s) didn't match pod anti-affinity rules",), resolvable=True)
AGAINST_OTHERS = Rejected(
    ("node(s) didn't satisfy existing pods anti-affinity rules",), resolvable=True
)


def term(labels: dict[str, str] = WEB, key: str = ZONE, **fields: Any) -> dict[str, Any]:
    return to_pods(labels, key) | fields


def liking(*terms: tuple[int, dict[str, Any]]) -> dict[str, Any]:
    """Return preferred inter-pod terms; a negative weight means anti-affinity."""
    stated: dict[str, Any] = {"podAffinity": {SOFT: []}, "podAntiAffinity": {SOFT: []}}
    for weight, preferred in terms:
        kind = "podAffinity" if weight > 0 else "podAntiAffinity"
        stated[kind][SOFT].append({"weight": abs(weight), "podAffinityTerm": preferred})
    return stated


def placed(name: str, on: str, labels: dict[str, str] = WEB, **fields: Any) -> dict[str, Any]:
    return pod(name, node=on, labels=labels, **fields)


def rejections(
    incoming: dict[str, Any], *objects: dict[str, Any], **args: Any
) -> dict[str, Rejected] | None:
    return PluginAnswers(InterPodAffinity, *objects, *NODES, **args).rejections(incoming)


def scores(
    incoming: dict[str, Any], *objects: dict[str, Any], **args: Any
) -> dict[str, int] | None:
    return PluginAnswers(InterPodAffinity, *objects, *NODES, **args).scores(incoming)


def test_a_pod_without_terms_that_nobody_avoids_is_skipped() -> None:
    assert rejections(pod(), placed("p", "a1", affinity=near(term()))) is None
    assert scores(pod(), placed("p", "a1")) is None


def test_required_affinity_wants_a_matching_pod_in_the_nodes_domain() -> None:
    incoming = pod(affinity=near(term(DB)))
    assert rejections(incoming, placed("p", "a1", DB)) == {"b1": NOT_WITH, "nowhere": NOT_WITH}


def test_a_pod_must_match_every_required_term_to_count_for_any() -> None:
    front = {"app": "db", "tier": "front"}
    incoming = pod(affinity=near(term(DB), term({"tier": "front"}, HOSTNAME)))
    only_db, both = placed("p", "b1", DB), placed("q", "a1", front)
    assert rejections(incoming, only_db, both) == dict.fromkeys(("a2", "b1", "nowhere"), NOT_WITH)


def test_terms_may_be_met_by_different_pods_in_their_own_domains() -> None:
    incoming = pod(affinity=near(term(DB, ZONE), term(DB, "rack")))
    objects = (placed("p", "a2", DB), placed("q", "b1", DB))
    assert rejections(incoming, *objects) == {"a2": NOT_WITH, "nowhere": NOT_WITH}


def test_the_first_of_a_series_may_go_wherever_the_labels_are() -> None:
    incoming = pod(labels=WEB, affinity=near(term()))
    assert rejections(incoming) == {"nowhere": NOT_WITH}
    assert rejections(incoming, placed("p", "b1", DB)) == {"nowhere": NOT_WITH}


def test_the_first_of_a_series_is_one_that_matches_itself_while_nobody_else_does() -> None:
    everywhere = dict.fromkeys(("a1", "a2", "b1", "nowhere"), NOT_WITH)
    assert rejections(pod(labels=DB, affinity=near(term()))) == everywhere
    incoming = pod(labels=WEB, affinity=near(term()))
    assert rejections(incoming, placed("p", "b1")) == dict.fromkeys(
        ("a1", "a2", "nowhere"), NOT_WITH
    )


def test_a_pod_outside_every_domain_does_not_end_the_series_of_the_first() -> None:
    incoming = pod(labels=WEB, affinity=near(term()))
    assert rejections(incoming, placed("p", "nowhere")) == {"nowhere": NOT_WITH}


def test_required_anti_affinity_rejects_domains_with_a_matching_pod() -> None:
    incoming = pod(affinity=apart(term(DB), term(WEB, HOSTNAME)))
    objects = (placed("p", "a1", DB), placed("q", "b1"))
    assert rejections(incoming, *objects) == {"a1": AGAINST, "a2": AGAINST, "b1": AGAINST}


def test_existing_pods_keep_away_whom_their_anti_affinity_is_about() -> None:
    guard = placed("p", "a1", DB, affinity=apart(term()))
    assert rejections(pod(labels=WEB), guard) == {"a1": AGAINST_OTHERS, "a2": AGAINST_OTHERS}
    assert rejections(pod(labels=DB), guard) is None


def test_the_reason_is_the_first_rule_that_fails() -> None:
    incoming = pod(labels=WEB, affinity=near(term(DB)) | apart(term({"app": "cache"})))
    objects = (
        placed("db", "a1", DB),
        placed("cache", "a2", {"app": "cache"}, affinity=apart(term(WEB, HOSTNAME))),
        placed("guard", "b1", affinity=apart(term(WEB, HOSTNAME))),
    )
    expected = {"a1": AGAINST, "a2": AGAINST, "b1": NOT_WITH, "nowhere": NOT_WITH}
    assert rejections(incoming, *objects) == expected


def test_pods_that_are_being_deleted_count() -> None:
    incoming = pod(affinity=apart(term(WEB, HOSTNAME)))
    assert rejections(incoming, placed("p", "a1", terminating=True)) == {"a1": AGAINST}


@pytest.mark.parametrize(
    ("where", "seen"),
    [
        ({}, {"default"}),
        ({"namespaces": ["team-a"]}, {"team-a"}),
        ({"namespaceSelector": {"matchLabels": {"env": "prod"}}}, {"team-b"}),
        ({"namespaceSelector": {}}, {"default", "team-a", "team-b", "unknown"}),
        (
            {"namespaces": ["team-a"], "namespaceSelector": {"matchLabels": {"env": "prod"}}},
            {"team-a", "team-b"},
        ),
    ],
)
def test_a_term_looks_into_its_namespaces_both_ways(where: dict[str, Any], seen: set[str]) -> None:
    names = {"default": "a1", "team-a": "a2", "team-b": "b1", "unknown": "nowhere"}
    known = (namespace("default"), namespace("team-a"), namespace("team-b", {"env": "prod"}))
    stated = term(key=HOSTNAME, **where)
    others = [placed("p", on, namespace=name) for name, on in names.items()]
    rejected = rejections(pod(affinity=apart(stated)), *known, *others)
    assert rejected == {names[name]: AGAINST for name in seen}
    owner = placed("p", "a1", affinity=apart(stated))
    kept_away = {
        name for name in names if rejections(pod(namespace=name, labels=WEB), *known, owner)
    }
    assert kept_away == seen


def test_preemption_is_tried_on_the_counts_as_they_would_be() -> None:
    asking = PluginAnswers(InterPodAffinity, *NODES, placed("p", "a1", DB), placed("q", "b1", DB))
    incoming = pod(affinity=apart(term(DB)))
    with asking.state.trial() as trial:
        trial.remove(uid_of("q"))
        trial.add(parse_pod(placed("r", "a2", DB)), asking.state.nodes.row_of["a2"])
        assert asking.rejections(incoming) == {"a1": AGAINST, "a2": AGAINST}
    assert asking.rejections(incoming) == {"a1": AGAINST, "a2": AGAINST, "b1": AGAINST}


def test_the_pods_own_preferences_weigh_every_match_in_the_nodes_domains() -> None:
    incoming = pod(affinity=liking((4, term(DB)), (-3, term(WEB, HOSTNAME))))
    objects = (placed("p", "a1", DB), placed("q", "a1", DB), placed("r", "a2"), placed("s", "b1"))
    # sums: a1 8, a2 8 - 3, b1 -3, nowhere 0
    expected = {"a1": 100, "a2": int(100 * 8 / 11), "b1": 0, "nowhere": int(100 * 3 / 11)}
    assert scores(incoming, *objects) == expected


def test_preferences_that_nothing_meets_are_skipped() -> None:
    assert scores(pod(affinity=liking((4, term(DB)))), placed("p", "nowhere", DB)) is None


def test_preferences_of_existing_pods_count_where_they_are() -> None:
    objects = (
        placed("likes", "a1", DB, affinity=liking((5, term()))),
        placed("dislikes", "b1", DB, affinity=liking((-5, term()))),
    )
    assert scores(pod(labels=WEB), *objects) == {"a1": 100, "a2": 100, "b1": 0, "nowhere": 50}


def test_required_affinity_of_existing_pods_counts_with_the_profiles_weight() -> None:
    objects = (
        placed("needs", "a1", DB, affinity=near(term())),
        placed("likes", "b1", DB, affinity=liking((4, term()))),
    )
    expected = {"a1": 25, "a2": 25, "b1": 100, "nowhere": 0}
    assert scores(pod(labels=WEB), *objects) == expected
    assert scores(pod(labels=WEB), *objects, hardPodAffinityWeight=8) == {
        "a1": 100,
        "a2": 100,
        "b1": 50,
        "nowhere": 0,
    }
    only_preferred = scores(pod(labels=WEB), *objects, hardPodAffinityWeight=0)
    assert only_preferred == {"a1": 0, "a2": 0, "b1": 100, "nowhere": 0}
    assert scores(pod(labels=WEB), objects[0], hardPodAffinityWeight=0) is None


def test_preferences_of_others_are_ignored_only_for_pods_without_their_own() -> None:
    objects = (placed("likes", "b1", DB, affinity=liking((4, term()))),)
    ignoring = {"ignorePreferredTermsOfExistingPods": True}
    assert scores(pod(labels=WEB), *objects, **ignoring) is None
    incoming = pod(labels=WEB, affinity=liking((1, term(DB, HOSTNAME))))
    expected = {"a1": 0, "a2": 0, "b1": 100, "nowhere": 0}
    assert scores(incoming, *objects, **ignoring) == expected


def test_scores_that_cancel_out_are_zero_and_not_left_out() -> None:
    objects = (
        placed("p", "a1", DB, affinity=liking((5, term()))),
        placed("q", "a2", DB, affinity=liking((-5, term()))),
    )
    assert scores(pod(labels=WEB), *objects) == dict.fromkeys(("a1", "a2", "b1", "nowhere"), 0)


def test_a_preference_stated_twice_counts_twice() -> None:
    objects = (
        placed("p", "a1", DB, affinity=liking((2, term()), (2, term()))),
        placed("q", "b1", DB, affinity=liking((2, term()))),
    )
    assert scores(pod(labels=WEB), *objects) == {"a1": 100, "a2": 100, "b1": 50, "nowhere": 0}


def test_placed_and_removed_pods_are_noticed() -> None:
    asking = PluginAnswers(InterPodAffinity, *NODES)
    incoming = pod(affinity=apart(term(DB, HOSTNAME)))
    assert asking.rejections(incoming) == {}
    asking.state.assume(parse_pod(pod("p", labels=DB)), asking.state.nodes.row_of["a1"])
    assert asking.rejections(incoming) == {"a1": AGAINST}
    asking.state.delete(Kind.POD, uid_of("p"))
    assert asking.rejections(incoming) == {}


def test_a_node_that_goes_frees_its_domain_of_the_anti_affinity_of_pods_that_are_left() -> None:
    avoiding = placed("avoiding", "a1", affinity=apart(term(DB)))
    state = cluster(avoiding, *NODES)
    gone = state.known(Kind.NODE, "a1")
    state.delete(Kind.NODE, "a1")
    event = ClusterEvent(Kind.NODE, Action.DELETE, gone, None)
    affinity = InterPodAffinity(InterPodAffinityArgs(), handle(state))
    hint = affinity.queueing_hint(parse_pod(pod("db", labels=DB)), event, ClusterView(state))
    assert hint is QueueingHint.QUEUE
