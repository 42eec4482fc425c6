from math import log
from typing import Any

import pytest

from mooring.model.node import HOSTNAME, ZONE
from mooring.model.pod import parse_pod
from mooring.plugins.pod_topology_spread.plugin import PodTopologySpread
from mooring.testing.builders import api_object, node, pod, service, uid_of
from plugin_answers import PluginAnswers, Rejected

WEB = {"app": "web"}
NODES = (node("a1", zone="a"), node("a2", zone="a"), node("b1", zone="b"), node("nowhere"))

TOO_MANY = Rejected(("node(s) didn't match pod topology spread constraints",), resolvable=True)
NO_LABEL = Rejected(
    ("node(s) didn't match pod topology spread constraints (missing required label)",),
    resolvable=False,
)


def hard(key: str = ZONE, labels: dict[str, str] | None = WEB, **fields: Any) -> dict[str, Any]:
    selector = {} if labels is None else {"labelSelector": {"matchLabels": labels}}
    return (
        {
            "topologyKey": key,
            "maxSkew": 1,
            "whenUnsatisfiable": "DoNotSchedule",
        }
        | selector
        | fields
    )


def soft(key: str = ZONE, labels: dict[str, str] | None = WEB, **fields: Any) -> dict[str, Any]:
    return hard(key, labels, **{"whenUnsatisfiable": "ScheduleAnyway"} | fields)


def web(*spread: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return pod(**{"labels": WEB, "spread": spread} | fields)


def placed(*on: str, **fields: Any) -> list[dict[str, Any]]:
    return [pod(f"p{i}", node=name, **{"labels": WEB} | fields) for i, name in enumerate(on)]


def asking(*objects: dict[str, Any], **args: Any) -> PluginAnswers:
    return PluginAnswers(PodTopologySpread, *NODES, *objects, **args)


def rejected(incoming: dict[str, Any], *objects: dict[str, Any], **args: Any) -> set[str]:
    """Return the nodes that are rejected because their domain has too many pods."""
    rejections = asking(*objects, **args).rejections(incoming)
    assert rejections is not None
    return {name for name, why in rejections.items() if why == TOO_MANY}


def test_a_pod_without_hard_constraints_is_not_filtered() -> None:
    assert asking(*placed("a1")).rejections(web(soft())) is None
    assert asking(service("web", WEB), *placed("a1")).rejections(web()) is None


def test_a_domain_may_have_max_skew_pods_more_than_the_least() -> None:
    assert asking(*placed("a1")).rejections(web(hard())) == {
        "a1": TOO_MANY,
        "a2": TOO_MANY,
        "nowhere": NO_LABEL,
    }
    assert rejected(web(hard(maxSkew=2)), *placed("a1")) == set()
    assert rejected(web(hard(maxSkew=2)), *placed("a1", "a2")) == {"a1", "a2"}


def test_a_pod_that_its_own_constraint_does_not_select_adds_nothing() -> None:
    assert rejected(web(hard(), labels={"app": "db"}), *placed("a1")) == set()
    assert rejected(web(hard(), labels={"app": "db"}), *placed("a1", "a2")) == {"a1", "a2"}


def test_pods_of_other_namespaces_and_those_being_deleted_do_not_count() -> None:
    assert rejected(web(hard()), *placed("a1", "a2", namespace="team-a")) == set()
    assert rejected(web(hard()), *placed("a1", "a2", terminating=True)) == set()


def test_from_1_38_on_an_empty_selector_counts_all_pods_of_the_namespace() -> None:
    others = [*placed("a1", "a2"), *placed("a2", labels={"app": "db"})]
    elsewhere = placed("b1", "b1", "b1", namespace="team-a")
    for version, expected in (("1.37", set[str]()), ("1.38", {"a1", "a2"})):
        found = rejected(web(hard(labels={})), *others, *elsewhere, kubernetes=version)
        assert found == expected


def test_no_selector_counts_nothing() -> None:
    assert rejected(web(hard(labels=None)), *placed("a1", "a2", "a2")) == set()


def test_match_label_keys_count_pods_with_the_same_values_only() -> None:
    others = placed("a1", "a2", labels={**WEB, "hash": "1"})
    same_hash = hard(matchLabelKeys=["hash", "not-a-label-of-the-pod"])
    assert rejected(web(same_hash, labels={**WEB, "hash": "2"}), *others) == set()
    assert rejected(web(same_hash, labels={**WEB, "hash": "1"}), *others) == {"a1", "a2"}


def test_with_fewer_domains_than_min_domains_the_least_is_zero() -> None:
    objects = placed("a1", "b1")
    assert rejected(web(hard(minDomains=2)), *objects) == set()
    assert rejected(web(hard(minDomains=3)), *objects) == {"a1", "a2", "b1"}


def test_the_first_constraint_that_fails_gives_the_reason() -> None:
    by_zone, by_rack = hard(ZONE), hard("rack", maxSkew=9)
    racks = [node(n, zone=n[0], labels={"rack": "r"}) for n in ("a1", "b1")]
    rejections = asking(*racks, *placed("a1")).rejections(web(by_zone, by_rack))
    assert rejections == {"a1": TOO_MANY, "a2": TOO_MANY, "nowhere": NO_LABEL}
    rejections = asking(*racks, *placed("a1")).rejections(web(by_rack, by_zone))
    assert rejections == {"a1": TOO_MANY, "a2": NO_LABEL, "nowhere": NO_LABEL}


def test_only_nodes_with_every_key_make_domains() -> None:
    rack = node("c1", zone="c", labels={"rack": "r"})
    by_rack = hard("rack", maxSkew=9)
    # b has no pod, but no rack either: only c is counted, with one pod
    assert rejected(web(hard()), rack, *placed("c1")) == {"c1"}
    assert rejected(web(hard(), by_rack), rack, *placed("c1")) == set()


@pytest.mark.parametrize(("policy", "expected"), [("Honor", set()), ("Ignore", {"a1"})])
def test_nodes_the_pod_does_not_choose_count_only_if_affinity_is_ignored(
    policy: str, expected: set[str]
) -> None:
    incoming = web(hard(nodeAffinityPolicy=policy), node_selector={HOSTNAME: "a1"})
    assert rejected(incoming, *placed("a1")) & {"a1"} == expected


@pytest.mark.parametrize(("policy", "expected"), [("Honor", set()), ("Ignore", {"a1", "a2"})])
def test_tainted_nodes_count_unless_taints_are_honored(policy: str, expected: set[str]) -> None:
    tainted = node("b1", zone="b", taints=["dedicated=gpu:NoSchedule"])
    incoming = web(hard(nodeTaintsPolicy=policy))
    assert rejected(incoming, tainted, *placed("a1")) == expected


def test_pods_beyond_the_counted_nodes_do_not_fill_a_domain() -> None:
    incoming = web(hard(nodeTaintsPolicy="Honor"))
    tainted = node("a2", zone="a", taints=["dedicated=gpu:NoSchedule"])
    assert rejected(incoming, tainted, *placed("a2", "a2", "a2")) == set()


def test_a_trial_is_filtered_on_the_counts_as_they_would_be() -> None:
    ask = asking(*placed("a1"))
    with ask.state.trial() as trial:
        trial.remove(uid_of("p0"))
        trial.add(parse_pod(pod("new", labels=WEB)), ask.state.nodes.row_of["b1"])
        assert ask.rejections(web(hard())) == {"b1": TOO_MANY, "nowhere": NO_LABEL}
    assert ask.rejections(web(hard())) == {"a1": TOO_MANY, "a2": TOO_MANY, "nowhere": NO_LABEL}


def test_emptier_domains_score_higher_and_nodes_outside_score_nothing() -> None:
    objects = placed("a1", "a2", "a2", "b1")
    raw = {"a": round(3 * log(4)), "b": round(1 * log(4))}
    full = int(100 * raw["b"] / raw["a"])
    assert asking(*objects).scores(web(soft())) == {
        "a1": full,
        "a2": full,
        "b1": 100,
        "nowhere": 0,
    }


def test_hostnames_are_counted_on_the_node_itself() -> None:
    raw = {"a1": round(2 * log(6)), "a2": round(log(6)), "b1": 0, "nowhere": 0}
    expected = {name: 100 * (raw["a1"] - score) // raw["a1"] for name, score in raw.items()}
    assert asking(*placed("a1", "a1", "a2")).scores(web(soft(HOSTNAME))) == expected


def test_only_the_domains_of_feasible_nodes_give_the_weight() -> None:
    nodes = [node(f"n{i}", zone=f"z{i}") for i in range(4)]
    ask = PluginAnswers(PodTopologySpread, *nodes, *placed("n0", "n0", "n0", "n1"))
    incoming = web(soft(maxSkew=3))
    raw = {"n0": round(3 * log(4) + 2), "n1": round(log(4) + 2)}
    assert ask.scores(incoming, "n0", "n1") == {"n0": 100 * raw["n1"] // raw["n0"], "n1": 100}
    raw = {name: round(count * log(6) + 2) for name, count in (("n0", 3), ("n1", 1), ("n2", 0))}
    scores = ask.scores(incoming)
    assert scores is not None
    assert scores["n1"] == 100 * (raw["n0"] + raw["n2"] - raw["n1"]) // raw["n0"]


def test_constraints_add_up() -> None:
    both = asking(*placed("a1", "b1", "b1")).scores(web(soft(ZONE), soft(HOSTNAME, maxSkew=5)))
    raw = {
        "a1": round(log(4) + log(5) + 4),
        "a2": round(log(4) + 4),
        "b1": round(2 * log(4) + 2 * log(5) + 4),
    }
    expected = {
        name: 100 * (raw["b1"] + raw["a2"] - score) // raw["b1"] for name, score in raw.items()
    }
    assert both == {**expected, "nowhere": 0}


def test_where_nothing_is_counted_all_nodes_with_the_labels_are_best() -> None:
    assert asking().scores(web(soft())) == {"a1": 100, "a2": 100, "b1": 100, "nowhere": 0}
    everything = asking(*placed("a1", "a2")).scores(web(soft(labels={})))
    assert everything == {"a1": 100, "a2": 100, "b1": 100, "nowhere": 0}


def test_where_no_node_has_the_label_all_score_nothing() -> None:
    assert asking().scores(web(soft("rack"))) == dict.fromkeys(("a1", "a2", "b1", "nowhere"), 0)


def test_scores_count_only_the_nodes_that_the_policies_include() -> None:
    tainted = node("a2", zone="a", taints=["dedicated=gpu:NoSchedule"])
    ask = asking(tainted, *placed("a2", "a2", "b1"))
    assert ask.scores(web(soft(nodeTaintsPolicy="Honor")), "a1", "b1") == {"a1": 100, "b1": 0}
    ignoring = ask.scores(web(soft()), "a1", "b1")
    assert ignoring is not None
    assert ignoring["a1"] < ignoring["b1"]


def test_a_pod_without_constraints_is_spread_with_its_service_over_hosts_and_zones() -> None:
    ask = asking(service("web", WEB), *placed("a1"))
    raw = {
        "a1": round(log(6) + 2 + log(5) + 4),
        "a2": round(2 + log(5) + 4),
        "b1": 6,
        "nowhere": 2,  # scored by host alone; without the zone's label it is a zone too
    }
    expected = {
        name: 100 * (raw["a1"] + raw["nowhere"] - score) // raw["a1"] for name, score in raw.items()
    }
    assert ask.scores(web()) == expected
    assert ask.scores(pod(labels={"app": "db"})) is None


def test_a_node_without_a_hostname_is_spread_by_zone_alone() -> None:
    unnamed = node("b1", zone="b")
    del unnamed["metadata"]["labels"][HOSTNAME]
    scores = asking(unnamed, service("web", WEB), *placed("a1", "b1", "b1")).scores(web())
    raw = {"a1": round(log(6) + 2 + log(5) + 4), "b1": round(2 * log(5) + 4), "nowhere": 2}
    assert scores is not None
    assert scores["b1"] == 100 * (raw["a1"] + raw["nowhere"] - raw["b1"]) // raw["a1"]


def test_the_owner_alone_is_enough_for_the_defaults() -> None:
    replicas = api_object(
        "ReplicaSet", "web", namespace="default", spec={"selector": {"matchLabels": WEB}}
    )
    owner = {"kind": "ReplicaSet", "name": "web", "uid": "1"}
    scores = asking(replicas, *placed("a1")).scores(web(owner=owner))
    assert scores is not None
    assert scores["a1"] < scores["a2"] < scores["b1"]


def test_any_constraint_of_its_own_replaces_all_defaults() -> None:
    assert asking(service("web", WEB), *placed("a1")).scores(web(hard())) is None


def listed(*constraints: dict[str, Any]) -> dict[str, Any]:
    return {
        "defaultingType": "List",
        "defaultConstraints": [
            {k: v for k, v in given.items() if k != "labelSelector"} for given in constraints
        ],
    }


def test_listed_defaults_filter_and_score_pods_with_a_service_or_controller() -> None:
    defaults = listed(hard(ZONE), soft(HOSTNAME))
    ask = asking(service("web", WEB), *placed("a1"), **defaults)
    assert ask.rejections(web()) == {"a1": TOO_MANY, "a2": TOO_MANY, "nowhere": NO_LABEL}
    scores = ask.scores(web())
    assert scores is not None
    assert scores["a1"] < scores["a2"] == scores["b1"]
    assert asking(*placed("a1"), **defaults).rejections(web()) is None


def test_listed_defaults_score_only_nodes_with_every_label() -> None:
    ask = asking(service("web", WEB), *placed("a1"), **listed(soft(ZONE), soft(HOSTNAME)))
    scores = ask.scores(web())
    assert scores is not None
    assert scores["nowhere"] == 0


@pytest.mark.parametrize(
    ("terms", "incoming", "expected"),
    [
        ({}, web(), {"a1", "a2"}),
        ({"maxSkew": 2}, web(), set()),
        ({"minDomains": 3}, web(), {"a1", "a2", "b1"}),
        ({"nodeAffinityPolicy": "Ignore"}, web(node_selector={"disk": "ssd"}), {"a1", "a2"}),
        ({}, web(node_selector={"disk": "ssd"}), set()),
        ({"nodeTaintsPolicy": "Honor"}, web(), set()),
    ],
)
def test_listed_defaults_keep_their_own_terms(
    terms: dict[str, Any], incoming: dict[str, Any], expected: set[str]
) -> None:
    dedicated = node("b1", zone="b", taints=["dedicated=gpu:NoSchedule"])
    objects = (
        node("a1", zone="a", labels={"disk": "ssd"}),
        dedicated,
        service("web", WEB),
        *placed("a1", "a2", "b1"),
    )
    assert rejected(incoming, *objects, **listed(hard(ZONE, **terms))) == expected


def test_an_empty_list_of_defaults_spreads_nothing() -> None:
    ask = asking(service("web", WEB), *placed("a1"), defaultingType="List")
    assert ask.rejections(web()) is None
    assert ask.scores(web()) is None
