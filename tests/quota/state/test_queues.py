"""The Queues in force, and the pods that count in them."""

from typing import Any

import pytest

from mooring.groups.model.pod_group import parse_volcano_pod_group
from mooring.groups.plugins.gang_args import GangSchedulingArgs
from mooring.model.events import Kind
from mooring.model.objects import object_key, parse_object
from mooring.model.pod import parse_pod
from mooring.pausing import Work
from mooring.quota.model.elastic_quota import KOORDINATOR, ROOT, ROOT_OF_KOORDINATOR
from mooring.quota.model.queue import QUEUE_LABEL
from mooring.quota.state.queues import below, demand_of
from mooring.state.cluster import ClusterState
from mooring.testing.builders import (
    cluster,
    namespace,
    node,
    pod,
    queue_object,
    uid_of,
    volcano_pod_group,
)
from queue_files import elastic_quota, koordinator_quota

Raw = dict[str, Any]


def put(state: ClusterState, *raws: Raw) -> None:
    for raw in raws:
        kind = Kind(raw["kind"])
        state.put(kind, object_key(kind, raw), parse_object(kind, raw))


def used(state: ClusterState, name: str) -> int:
    return state.queues.states[name].used["pods"]


def of(name: str, queue: str, **fields: Any) -> Raw:
    return pod(name, node="n1", labels={QUEUE_LABEL: queue}, **fields)


def test_a_queue_that_comes_before_its_parent_waits_for_it() -> None:
    state = cluster(queue_object("a", parent="all"))
    assert state.queues.states == {}
    assert state.queues.problem("a") == "spec.parent: queue all does not exist (a -> all)"
    put(state, queue_object("all"))
    assert {*state.queues.states} == {"a", "all"}
    assert state.queues.problem("a") is None


def test_the_former_tree_stays_while_a_new_one_is_not_valid() -> None:
    state = cluster(queue_object("all", {"pods": 5}), queue_object("a", parent="all"))
    assert {*state.queues.states} == {"a", "all"}
    put(state, queue_object("all", {"pods": 7}, parent="a"))
    assert state.queues.problem("all") == (
        "spec.parent: the parents form a circle: all -> a -> all"
    )
    assert state.queues.states["all"].nominal == {"pods": 5}
    state.delete(Kind.QUEUE, "all")
    assert state.queues.states["a"].root.name == "all"
    put(state, queue_object("all", {"pods": 7}))
    assert state.queues.states["all"].nominal == {"pods": 7}


def test_a_queue_that_is_created_again_has_no_former_version() -> None:
    state = cluster(queue_object("a", {"pods": 5}))
    assert {*state.queues.states} == {"a"}
    state.delete(Kind.QUEUE, "a")
    again = queue_object("a", {"pods": 5}, parent="none")
    again["metadata"]["uid"] = "another"
    put(state, again)  # before anybody has asked for the queues
    assert state.queues.states == {}
    assert state.queues.problem("a") is not None


def test_a_tree_is_not_deeper_than_sixteen_queues() -> None:
    chain = [queue_object(f"q{i}", parent=f"q{i - 1}" if i else "") for i in range(17)]
    state = cluster(*chain)
    assert len(state.queues.states) == 16
    assert "deeper than 16 queues" in (state.queues.problem("q16") or "")


def test_pods_that_were_there_before_their_queue_are_counted() -> None:
    state = cluster(node("n1"), of("p", "a"), of("q", "a"), queue_object("a", {"pods": 1}))
    assert used(state, "a") == 2
    state.delete(Kind.QUEUE, "a")
    assert state.queues.states == {}
    put(state, queue_object("a", {"pods": 9}))
    assert used(state, "a") == 2


def test_new_labels_of_a_namespace_put_its_pods_into_another_queue() -> None:
    def select(team: str) -> dict[str, Any]:
        return {"matchLabels": {"team": team}}

    state = cluster(
        node("n1"),
        namespace("default", {"team": "a"}),
        queue_object("a", {"pods": 1}, selector=select("a")),
        queue_object("b", {"pods": 1}, selector=select("b")),
        pod("p", node="n1"),
        pod("p", node="n1", namespace="other"),
    )
    assert (used(state, "a"), used(state, "b")) == (1, 0)
    put(state, namespace("default", {"team": "b"}))
    assert (used(state, "a"), used(state, "b")) == (0, 1)


def test_an_assumed_pod_is_counted_until_it_is_forgotten() -> None:
    state = cluster(node("n1"), queue_object("a", {"pods": 1, "cpu": 4}))
    one = parse_pod(pod("p", cpu="2", labels={QUEUE_LABEL: "a"}))
    state.assume(one, 0)
    assert state.queues.states["a"].used == {"pods": 1, "cpu": 2000}
    state.forget(one)
    assert state.queues.states["a"].used == {"pods": 0, "cpu": 0}


def test_a_queue_that_is_listed_again_changes_nothing() -> None:
    state = cluster(node("n1"), queue_object("a", {"pods": 1}))
    before = state.queues.states["a"]
    put(state, queue_object("a", {"pods": 1}, status={"pods": 7}))
    assert state.queues.states["a"] is before


def test_the_demand_of_pods_is_their_sum() -> None:
    pods = [parse_pod(pod("p", cpu="1")), parse_pod(pod("q", cpu="2", memory="1Ki"))]
    assert demand_of(pods) == {"pods": 2, "cpu": 3000, "memory": 1024}
    assert demand_of(pods[:1]) == {"pods": 1, "cpu": 1000}


def test_below_yields_a_queue_and_all_below_it() -> None:
    state = cluster(
        queue_object("all"), queue_object("a", parent="all"), queue_object("b", parent="a")
    )
    assert [each.name for each in below(state.queues.states["all"])] == ["all", "a", "b"]


def with_presets(state: ClusterState, *presets: str) -> None:
    args = GangSchedulingArgs.model_validate({"podGroupPresets": presets})
    state.track_pod_groups(args.formats)


def in_group(name: str, **annotations: str) -> Raw:
    """Return a pod of Volcano's PodGroup `g`."""
    named = {"scheduling.k8s.io/group-name": "g", **annotations}
    return pod(name, node="n1", annotations=named)


def test_pods_name_a_queue_as_for_kai_while_the_preset_is_on() -> None:
    of_kai = pod("p", node="n1", labels={"kai.scheduler/queue": "a"})
    state = cluster(node("n1"), queue_object("a", {"pods": 5}), of_kai)
    assert used(state, "a") == 0
    with_presets(state, "KAI")
    assert used(state, "a") == 1
    with_presets(state, "Volcano")
    assert used(state, "a") == 0


def test_a_pod_is_in_the_queue_of_its_annotation_or_else_of_its_pod_group() -> None:
    queues = [queue_object(name, {"pods": 5}) for name in "abc"]
    state = cluster(node("n1"), *queues)
    with_presets(state, "Volcano")
    put(state, in_group("p"), in_group("q", **{"scheduling.volcano.sh/queue-name": "b"}))
    put(state, of("r", "c", annotations={"volcano.sh/queue-name": "b"}))
    assert [used(state, name) for name in "abc"] == [0, 1, 1]
    group = parse_volcano_pod_group(volcano_pod_group("g", 1, queue="a"))
    state.put(Kind.VOLCANO_POD_GROUP, "default/g", group)
    assert [used(state, name) for name in "abc"] == [1, 1, 1]
    state.nominate(parse_pod(in_group("n")), "n1")
    state.put_unscheduled(parse_pod(in_group("n")))
    moved = parse_volcano_pod_group(volcano_pod_group("g", 1, queue="b"))
    state.put(Kind.VOLCANO_POD_GROUP, "default/g", moved)
    assert [used(state, name) for name in "abc"] == [0, 2, 1]
    number = state.queues.states["b"].number
    assert state.nominations.queue_of(uid_of("n")) == number
    assert state.nominations.queued[number, 0]["pods"] == 1


def test_the_default_queue_of_volcano_counts_only_if_it_exists() -> None:
    state = cluster(node("n1"), queue_object("a", {"pods": 5}))
    with_presets(state, "Volcano")
    one = parse_pod(in_group("p", **{"volcano.sh/queue-name": "default"}))
    assert state.queues.membership(one) == (None, None)
    put(state, queue_object("default", {"pods": 5}, parent="none"))
    problem = "spec.parent: queue none does not exist (default -> none)"
    assert state.queues.membership(one) == (None, f"queue default is not ready: {problem}")
    put(state, queue_object("default", {"pods": 5}))
    assert state.queues.of(one) is state.queues.states["default"]
    other = parse_pod(in_group("p", **{"volcano.sh/queue-name": "none"}))
    assert state.queues.membership(other) == (None, "queue none does not exist")


def test_names_of_presets_count_only_where_there_are_queues() -> None:
    state = cluster(node("n1"))
    with_presets(state, "KAI")
    one = parse_pod(pod("p", labels={"kai.scheduler/queue": "a"}))
    assert state.queues.membership(one) == (None, None)


def put_elastic(state: ClusterState, *raws: Raw) -> None:
    for raw in raws:
        kind = Kind.ELASTIC_QUOTA
        state.put(kind, object_key(kind, raw), parse_object(kind, raw))


def test_elastic_quotas_are_queues_of_their_namespaces_and_lend_to_each_other() -> None:
    labels = [{"kubernetes.io/metadata.name": name} for name in "ab"]
    state = cluster(node("n1"), namespace("a", labels[0]), namespace("b", labels[1]))
    put_elastic(state, elastic_quota("a", min={"pods": 3}), elastic_quota("b", min={"pods": 2}))
    put(state, pod("p", namespace="a", node="n1"), pod("q", namespace="b", node="n1"))
    assert [used(state, name) for name in ("a", "b", ROOT)] == [1, 1, 2]
    assert state.queues.states["a"].available("pods") == 3 + 2 - 2
    put_elastic(state, elastic_quota("a", min={"pods": 3}, max={"pods": 3}))
    assert state.queues.states["a"].available("pods") == 2
    state.delete(Kind.ELASTIC_QUOTA, "b/quota")
    assert {*state.queues.states} == {"a", ROOT}


def test_a_queue_counts_before_the_elastic_quota_of_a_namespace_of_its_name() -> None:
    state = cluster(queue_object("a", {"pods": 7}))
    put_elastic(state, elastic_quota("a", min={"pods": 3}))
    assert state.queues.states["a"].nominal == {"pods": 7}
    state.delete(Kind.QUEUE, "a")
    assert state.queues.states["a"].nominal == {"pods": 3}


def test_a_pod_on_a_node_stays_in_its_queue_when_its_label_is_removed() -> None:
    state = cluster(node("n1"), queue_object("a", {"pods": 5, "cpu": 5}), of("p", "a", cpu="1"))
    assert used(state, "a") == 1
    put(state, pod("p", node="n1", cpu="1"))
    (placed,) = state.pods
    with state.trial() as trial:
        trial.remove(placed.pod.uid)
        assert used(state, "a") == 0
    assert used(state, "a") == 1
    put(state, pod("p", node="n1", cpu="2"))  # resized in place
    assert state.queues.states["a"].used == {"pods": 1, "cpu": 2000}
    state.delete(Kind.POD, placed.pod.uid)
    assert state.queues.states["a"].used == {"pods": 0, "cpu": 0}


def test_all_pods_are_counted_after_a_recount_was_ended_in_a_pause() -> None:
    state = cluster(node("n1"), *(of(name, "a") for name in "pqr"))
    assert state.queues.states == {}
    put(state, queue_object("a", {"pods": 9}))
    with Work(lambda: state.queues) as recount:
        while not state._queues.states:
            assert not recount.advance()
    assert used(state, "a") == 3


def test_an_elastic_quota_in_any_namespace_leaves_those_of_others_in_force() -> None:
    state = cluster()
    put_elastic(state, elastic_quota("a"), elastic_quota("elastic-quota-root"))
    assert state.queues.problem("a") is None
    assert {*state.queues.states} == {"a", "elastic-quota-root", ROOT}
    assert "." in ROOT  # as in no name of a namespace


def test_a_tree_is_made_with_pauses_for_each_queue_and_each_of_its_resources() -> None:
    state, quota = cluster(), {"cpu": 1, "memory": 1, "pods": 1}
    put_elastic(state, *(elastic_quota(f"team-{number}", min=quota) for number in range(20)))
    pauses = 0
    with Work(lambda: state.queues) as settling:
        while not settling.advance():
            pauses += 1
    steps = "find its problem", "make it", "find its root", "select its namespaces"
    assert pauses >= 20 * (len(steps) + len(quota))


def test_a_group_whose_status_is_written_leaves_its_nominated_pods_as_they_are() -> None:
    state = cluster(node("n1"), queue_object("a", {"pods": 5}))
    with_presets(state, "Volcano")
    raw = volcano_pod_group("g", 1, queue="a")
    state.put(Kind.VOLCANO_POD_GROUP, "default/g", parse_volcano_pod_group(raw))
    for one in (in_group("first"), pod("second")):
        state.put_unscheduled(parse_pod(one))
        state.nominate(parse_pod(one), "n1")
    written = parse_volcano_pod_group({**raw, "status": {"running": 1}})
    state.put(Kind.VOLCANO_POD_GROUP, "default/g", written)
    assert [nominee.pod.name for nominee in state.nominations] == ["first", "second"]


def koordinators(*quotas: Raw, pods: int = 10) -> ClusterState:
    """Return a state with these quotas of Koordinator, namespaces, and a node for so many pods."""
    labels = [{"kubernetes.io/metadata.name": name} for name in "abx"]
    named = [namespace(each["kubernetes.io/metadata.name"], each) for each in labels]
    state = cluster(node("n1", pods=pods), *named)
    put_elastic(state, *quotas)
    return state


DEPARTMENT = koordinator_quota("dept", labels={"is-parent": "true"}, min={"pods": 5})
TEAM = koordinator_quota("team", "dept", annotations={"namespaces": '["x"]'}, min={"pods": 2})


def test_pods_are_in_the_quota_of_koordinator_that_has_their_namespace_or_their_label() -> None:
    own = koordinator_quota("a", "dept", namespace="a", min={"pods": 1})
    state = koordinators(DEPARTMENT, TEAM, own, koordinator_quota("free", "dept"))
    named = {f"{KOORDINATOR}name": "free"}
    put(state, *(pod(f"in-{name}", namespace=name, node="n1") for name in "abx"))
    put(state, pod("named", namespace="b", node="n1", labels=named))
    names = ("a", "team", "free", "dept", ROOT_OF_KOORDINATOR)
    assert [used(state, name) for name in names] == [1, 1, 0, 2, 2]
    with_presets(state, "Koordinator")
    assert [used(state, name) for name in names] == [1, 1, 1, 3, 3]
    others = {f"{KOORDINATOR}name": "koordinator-default-quota"}
    unlimited = parse_pod(pod("p", namespace="b", labels=others))
    assert state.queues.membership(unlimited) == (None, None)
    inner = parse_pod(pod("p", namespace="x", labels={f"{KOORDINATOR}name": "dept"}))
    why = "queue dept does not take pods of namespace x"
    assert state.queues.membership(inner) == (state.queues.states["team"], why)


def test_the_root_of_koordinators_quotas_has_what_the_nodes_have() -> None:
    state = koordinators(DEPARTMENT, TEAM)
    states = state.queues.states
    assert [states[name].nominal for name in (ROOT_OF_KOORDINATOR, "dept", "team")] == [
        {"pods": 10},
        {"pods": 5},
        {"pods": 2},
    ]

    def root() -> int:
        return state.queues.states[ROOT_OF_KOORDINATOR].nominal["pods"]

    put(state, node("n2", pods=4))
    assert root() == 14
    put(state, node("n2", pods=2))
    assert root() == 12
    before = state.queues.changes
    put(state, node("n2", pods=2, labels={"a": "b"}))
    assert (root(), state.queues.changes) == (12, before)
    for name in ("n1", "n2"):
        state.delete(Kind.NODE, name)
    assert root() == 5, "what the quotas guarantee"
    state.delete(Kind.ELASTIC_QUOTA, "kube-system/team")
    state.delete(Kind.ELASTIC_QUOTA, "kube-system/dept")
    put(state, node("n3", pods=4))
    assert state.queues.states == {}


def test_a_node_changes_the_root_of_koordinators_tree_as_if_the_tree_was_made_again() -> None:
    keeps = koordinator_quota("a", labels={"allow-lent-resource": "false"}, min={"pods": 4})
    plain = elastic_quota("b", min={"cpu": "3"})
    quotas = (DEPARTMENT, TEAM, keeps, plain, koordinator_quota("c", min={"memory": "9Gi"}))
    borrows = pod("p", namespace="x", node="n1", cpu="1")
    state = koordinators(*quotas)
    put(state, borrows)
    made = state.queues.states[ROOT_OF_KOORDINATOR]
    for more in (node("n2", cpu="9", pods=99), node("n2", cpu="2", memory="20Gi", pods=1)):
        put(state, more)
        root = state.queues.states[ROOT_OF_KOORDINATOR]
        other = koordinators()
        put(other, borrows, more)
        put_elastic(other, *quotas)
        again = other.queues.states[ROOT_OF_KOORDINATOR]
        assert root is made
        assert root.nominal == again.nominal
        shares = {each.name: each.share for each in below(root)}
        assert shares == {each.name: each.share for each in below(again)}
        assert shares["dept"] > 0


@pytest.mark.parametrize(
    ("parent", "namespaces"), [("dept", "no JSON"), ("misspelled", "[]"), ("misspelled", "{")]
)
def test_the_quota_of_a_former_version_in_force_does_not_count_twice(
    parent: str, namespaces: str
) -> None:
    state = koordinators(DEPARTMENT, TEAM)
    before = {name: each.nominal for name, each in state.queues.states.items()}
    notes = {"namespaces": namespaces}
    wrong = koordinator_quota("team", parent, annotations=notes, min={"pods": 4})
    put_elastic(state, wrong)
    assert state.queues.problem("team") is not None
    assert {name: each.nominal for name, each in state.queues.states.items()} == before


def test_an_elastic_quota_that_is_listed_with_another_uid_is_another_one() -> None:
    state = koordinators(TEAM)
    assert state.queues.written()["team"].uid != "another"
    again = {**TEAM, "metadata": {**TEAM["metadata"], "uid": "another"}}
    put(state, again)
    assert state.queues.written()["team"].uid == "another"


def test_what_a_quota_of_koordinator_does_not_lend_is_kept_on_the_nodes() -> None:
    keeps = koordinator_quota("a", labels={"allow-lent-resource": "false"}, min={"pods": 4})
    state = koordinators(keeps, koordinator_quota("b", min={"pods": 1}))
    assert state.queues.states["b"].available("pods") == 6
    assert state.queues.states["a"].available("pods") == 10 - 1 + 1


def test_a_wrong_quota_of_koordinator_leaves_the_others_in_force() -> None:
    state = koordinators(
        DEPARTMENT,
        TEAM,
        koordinator_quota("lost", "nobody"),
        koordinator_quota("b", "c"),
        koordinator_quota("c", "b"),
        koordinator_quota("below", "c"),
        koordinator_quota("bad", "dept", annotations={"namespaces": "x"}),
    )
    assert {*state.queues.states} == {ROOT_OF_KOORDINATOR, "dept", "team"}
    problems = {name: state.queues.problem(name) for name in ("lost", "b", "below", "bad")}
    path = f"metadata.annotations[{KOORDINATOR}namespaces]"
    assert problems == {
        "lost": "spec.parent: queue nobody does not exist (lost -> nobody)",
        "b": "spec.parent: the parents form a circle: b -> c -> b",
        "below": "spec.parent: the parents form a circle: below -> c -> b -> c",
        "bad": f"ElasticQuota kube-system/bad: {path}: must be a list of names in JSON",
    }


def test_a_chain_of_quotas_of_any_length_is_too_deep_and_nothing_else() -> None:
    chain = [koordinator_quota(f"q{i:04}", f"q{i - 1:04}" if i else "") for i in range(2_000)]
    state = koordinators(*chain)
    assert len(state.queues.states) == 16
    assert "the tree is deeper than 16 queues" in str(state.queues.problem("q1999"))


def test_a_quota_becomes_koordinators_with_its_first_label() -> None:
    state = koordinators(elastic_quota("a", "team", min={"pods": 3}))
    put(state, pod("p", namespace="a", node="n1"))
    assert used(state, "a") == 1
    put_elastic(state, koordinator_quota("team", namespace="a", min={"pods": 3}))
    assert {*state.queues.states} == {ROOT_OF_KOORDINATOR, "team"}
    assert used(state, "team") == 0
