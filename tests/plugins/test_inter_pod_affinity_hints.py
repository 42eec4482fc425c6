"""The events that may cure a rejection by InterPodAffinity."""

from typing import Any

import pytest

from mooring.model.node import HOSTNAME, ZONE
from mooring.plugins.inter_pod_affinity import InterPodAffinity
from mooring.testing.builders import namespace, node, pod
from plugin_answers import PluginAnswers
from pod_terms import to_pods

Raw = dict[str, Any]

HARD = "requiredDuringSchedulingIgnoredDuringExecution"
WEB, DB = {"app": "web"}, {"app": "db"}
A1 = node("a1", zone="a")


def term(labels: dict[str, str], key: str = ZONE, **fields: Any) -> Raw:
    return to_pods(labels, key) | fields


def near(*terms: Raw, **fields: Any) -> Raw:
    return pod("near", affinity={"podAffinity": {HARD: list(terms)}}, **fields)


def apart(*terms: Raw, **fields: Any) -> Raw:
    return pod("apart", affinity={"podAntiAffinity": {HARD: list(terms)}}, **fields)


def placed(name: str = "p", **fields: Any) -> Raw:
    return pod(name, **{"node": "a1"} | fields)


@pytest.mark.parametrize(
    ("before", "after", "cured"),
    [
        (None, placed(labels=WEB | DB), True),
        (placed(), placed(labels=WEB | DB), True),
        (None, placed(labels=WEB | DB, namespace="other"), False),
        (None, placed(), False),
        (placed(labels=WEB | DB), None, False),
        (placed(labels=WEB | DB), placed(labels=WEB | DB, cpu="1"), False),
    ],
)
def test_pods_that_match_all_wanted_terms_queue(
    before: Raw | None, after: Raw | None, *, cured: bool
) -> None:
    waiting = near(term(WEB | DB), term(WEB | DB, HOSTNAME))
    assert (
        PluginAnswers(InterPodAffinity).queueing_hint(waiting, before=before, after=after) is cured
    )


def test_a_pod_that_matches_one_wanted_term_of_two_is_not_enough() -> None:
    waiting = near(term(WEB), term({"tier": "front"}))
    asking = PluginAnswers(InterPodAffinity)
    assert not asking.queueing_hint(waiting, after=placed(labels=WEB))
    assert asking.queueing_hint(waiting, after=placed(labels=WEB | {"tier": "front"}))


@pytest.mark.parametrize(
    ("before", "after", "cured"),
    [
        (placed(labels=WEB), None, True),
        (placed(labels=DB), None, True),
        (placed(labels=WEB, node=None, nominated="a1"), None, True),
        (placed(labels=WEB), placed(), True),
        (placed(labels=WEB), placed(labels=WEB, terminating=True), False),
        (placed(), placed(labels=WEB), False),
        (None, placed(), False),
        (placed(), None, False),
        (placed(labels=WEB, namespace="other"), None, False),
    ],
)
def test_pods_that_match_no_unwanted_term_any_more_queue(
    before: Raw | None, after: Raw | None, *, cured: bool
) -> None:
    waiting = apart(term(WEB), term({"app": "db"}, HOSTNAME))
    assert (
        PluginAnswers(InterPodAffinity).queueing_hint(waiting, before=before, after=after) is cured
    )


def test_a_deleted_pod_queues_pods_that_its_anti_affinity_excluded() -> None:
    asking, gone = PluginAnswers(InterPodAffinity), apart(term(WEB), node="a1")
    assert asking.queueing_hint(pod(labels=WEB), before=gone)
    assert not asking.queueing_hint(pod(labels=DB), before=gone)


def test_the_last_wanted_pod_deleted_queues_a_pod_that_may_be_the_first() -> None:
    """The first pod of a series needs no other pod if it matches its own terms."""
    waiting, gone = near(term(WEB), labels=WEB), placed(labels=WEB)
    another = placed("another", labels=WEB)
    assert PluginAnswers(InterPodAffinity, A1).queueing_hint(waiting, before=gone)
    assert not PluginAnswers(InterPodAffinity, A1, another).queueing_hint(waiting, before=gone)
    assert not PluginAnswers(InterPodAffinity, A1).queueing_hint(near(term(WEB)), before=gone)


MOVED, NO_AFFINITY = node("a1", zone="b"), node("a1")


@pytest.mark.parametrize(
    ("before", "after", "wanted", "unwanted"),
    [
        (None, A1, True, True),
        (None, NO_AFFINITY, False, True),
        (NO_AFFINITY, A1, True, True),
        (A1, NO_AFFINITY, True, True),
        (A1, MOVED, True, True),
        (A1, None, True, True),
        (NO_AFFINITY, None, False, False),
        (A1, A1, False, False),
        (A1, node("a1", zone="a", labels={"disk": "ssd"}), False, False),
    ],
)
def test_nodes_added_deleted_or_moved_to_another_domain_queue(
    before: Raw | None, after: Raw | None, *, wanted: bool, unwanted: bool
) -> None:
    asking = PluginAnswers(InterPodAffinity)
    assert asking.queueing_hint(near(term(WEB)), before=before, after=after) is wanted
    assert asking.queueing_hint(apart(term(WEB)), before=before, after=after) is unwanted


def test_a_node_queues_when_it_leaves_a_domain_with_an_excluding_pod() -> None:
    """The excluding pod may be on the moved node itself, or on another node of the domain."""
    waiting, guard = pod(labels=WEB), apart(term(WEB), node="a1")
    on_it = PluginAnswers(InterPodAffinity, MOVED, guard)
    elsewhere = PluginAnswers(InterPodAffinity, A1, guard)
    assert on_it.queueing_hint(waiting, before=A1, after=MOVED)
    assert elsewhere.queueing_hint(waiting, before=node("a2", zone="a"), after=node("a2", zone="b"))
    assert not PluginAnswers(InterPodAffinity, MOVED).queueing_hint(waiting, before=A1, after=MOVED)


PROD, DEV = namespace("other", {"env": "prod"}), namespace("other", {"env": "dev"})
SELECTED: Raw = {"namespaceSelector": {"matchLabels": {"env": "prod"}}}


@pytest.mark.parametrize(
    ("waiting", "cured"),
    [
        (near(term(WEB, **SELECTED)), True),
        (apart(term(WEB, **SELECTED)), True),
        (near(term(WEB)), False),
        (apart(term(WEB), namespace="other"), True),
    ],
    ids=["wants", "does not want", "names its namespaces", "others may not want it"],
)
def test_a_namespace_queues_by_its_labels_if_terms_may_select_it(
    waiting: Raw, *, cured: bool
) -> None:
    asking = PluginAnswers(InterPodAffinity)
    assert asking.queueing_hint(waiting, before=PROD, after=DEV) is cured
    assert asking.queueing_hint(waiting, after=PROD) is cured
    assert not asking.queueing_hint(waiting, before=PROD, after=PROD)


def test_a_pod_queues_others_if_its_namespace_has_the_labels_that_their_terms_select() -> None:
    waiting, arrived = near(term(WEB, **SELECTED)), placed(labels=WEB, namespace="other")
    assert PluginAnswers(InterPodAffinity, PROD).queueing_hint(waiting, after=arrived)
    assert not PluginAnswers(InterPodAffinity, DEV).queueing_hint(waiting, after=arrived)
