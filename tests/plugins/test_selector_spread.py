from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.model.node import REGION, ZONE
from mooring.plugins.selector_spread import SelectorSpread, ServiceSpreading
from mooring.testing.builders import api_object, node, pod, service
from plugin_answers import PluginAnswers

WEB = {"app": "web"}
NODES = (node("a1", zone="a"), node("a2", zone="a"), node("b1", zone="b"), node("nowhere"))


def placed(*nodes: str, **fields: Any) -> list[dict[str, Any]]:
    fields = {"labels": WEB} | fields
    return [pod(f"placed-{i}-{name}", node=name, **fields) for i, name in enumerate(nodes)]


def replica_set(labels: dict[str, str]) -> dict[str, Any]:
    spec = {"selector": {"matchLabels": labels}}
    return api_object("ReplicaSet", "web", namespace="default", spec=spec)


OWNER = {"kind": "ReplicaSet", "name": "web", "uid": "1"}


def test_zones_count_two_thirds_and_nodes_one_third() -> None:
    asking = PluginAnswers(
        SelectorSpread, *NODES, service("web", WEB), *placed("a1", "a1", "a2", "b1")
    )
    # nodes have 2, 1, 1 and 0 of at most 2; zones have 3 and 1 of at most 3
    assert asking.scores(pod(labels=WEB)) == {
        "a1": 0,
        "a2": int(100 * (1 / 2) / 3),
        "b1": int(100 * (1 / 2) / 3 + 100 * (2 / 3) * 2 / 3),
        "nowhere": 100,
    }


def test_without_zones_only_nodes_count() -> None:
    nodes = [node(name) for name in ("n1", "n2", "n3")]
    asking = PluginAnswers(
        SelectorSpread, *nodes, service("web", WEB), *placed("n1", "n1", "n1", "n2")
    )
    assert asking.scores(pod(labels=WEB)) == {"n1": 0, "n2": 66, "n3": 100}


def test_only_feasible_nodes_are_compared() -> None:
    asking = PluginAnswers(
        SelectorSpread, *NODES, service("web", WEB), *placed("a1", "a1", "a2", "b1")
    )
    assert asking.scores(pod(labels=WEB), "a2", "b1") == {"a2": 0, "b1": 0}


def test_a_zone_is_a_zone_of_a_region() -> None:
    nodes = [node(f"n{i}", labels={REGION: f"r{i}", ZONE: "a"}) for i in range(2)]
    asking = PluginAnswers(SelectorSpread, *nodes, service("web", WEB), *placed("n0"))
    assert asking.scores(pod(labels=WEB)) == {"n0": 0, "n1": 100}


def test_the_default_selector_joins_all_services_and_the_owner() -> None:
    asking = PluginAnswers(
        SelectorSpread,
        node("n1"),
        node("n2"),
        node("n3"),
        service("web", WEB),
        replica_set({"version": "1"}),
        *placed("n1", labels=WEB),
        *placed("n2", labels={**WEB, "version": "1"}),
    )
    incoming = pod(labels={**WEB, "version": "1"}, owner=OWNER)
    assert asking.scores(incoming) == {"n1": 100, "n2": 0, "n3": 100}


def test_service_spreading_does_not_ask_who_owns_a_pod() -> None:
    objects = (
        node("n1"),
        node("n2"),
        replica_set({"version": "1"}),
        *placed("n1"),
        *placed("n2", labels={**WEB, "version": "1"}, terminating=True),
    )
    incoming = pod(labels={**WEB, "version": "1"}, owner=OWNER)
    assert PluginAnswers(ServiceSpreading, *objects).scores(incoming) is None
    with_service = PluginAnswers(ServiceSpreading, *objects, service("web", WEB))
    assert with_service.scores(incoming) == {"n1": 0, "n2": 100}


@pytest.mark.parametrize("plugin", [SelectorSpread, ServiceSpreading])
@pytest.mark.parametrize(
    "objects",
    [
        [],
        [service("web", WEB)],
        [service("other", {"app": "db"}), *placed("a1")],
        [service("web", WEB), *placed("a1", namespace="team-a")],
        [service("web", WEB), *placed("a1", terminating=True)],
        [service("web", WEB, namespace="team-a"), *placed("a1")],
    ],
)
def test_without_a_default_selector_nothing_is_scored(
    plugin: type[Any], objects: list[dict[str, Any]]
) -> None:
    assert PluginAnswers(plugin, *NODES, *objects).scores(pod(labels=WEB)) is None


def test_a_pod_with_spread_constraints_of_its_own_is_left_to_these() -> None:
    asking = PluginAnswers(SelectorSpread, *NODES, service("web", WEB), *placed("a1"))
    constraint = {"topologyKey": ZONE, "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}
    assert asking.scores(pod(labels=WEB, spread=[constraint])) is None


def restated(counts: Counter[str], zones: dict[str, str | None]) -> dict[str, int]:
    """Return the expected scores by the rule of selector_spread.go, computed node by node."""
    by_zone = Counter[str]()
    for name, zone in zones.items():
        if zone:
            by_zone[zone] += counts[name]
    most, most_zone = max(counts[n] for n in zones), max(by_zone.values(), default=0)
    scores = {}
    for name, zone in zones.items():
        score = 100.0 * ((most - counts[name]) / most) if most else 100.0
        if zone:
            in_zone = 100.0 * ((most_zone - by_zone[zone]) / most_zone) if most_zone else 100.0
            score = score * (1.0 - 2.0 / 3.0) + (2.0 / 3.0) * in_zone
        scores[name] = int(score)
    return scores


@given(
    st.lists(st.sampled_from((None, "a", "b", "c")), min_size=1, max_size=6),
    st.lists(st.integers(0, 5), max_size=12),
)
def test_scores_are_what_the_rule_says(zones: list[str | None], where: list[int]) -> None:
    by_name = {f"n{i}": zone for i, zone in enumerate(zones)}
    nodes = [node(name, zone=zone) for name, zone in by_name.items()]
    holders = [f"n{i % len(zones)}" for i in where]
    asking = PluginAnswers(SelectorSpread, *nodes, service("web", WEB), *placed(*holders))
    scores = asking.scores(pod(labels=WEB))
    assert scores == (restated(Counter(holders), by_name) if holders else None)
