"""ElasticQuotas are the Queues of their namespaces, and Koordinator's are a tree."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.model.events import Kind
from mooring.model.objects import object_key
from mooring.quota.model.elastic_quota import (
    KOORDINATOR,
    ROOT,
    ROOT_OF_KOORDINATOR,
    parse_elastic_quota,
    queues_of,
    with_own_quotas,
)
from mooring.quota.model.queue import Queue, Quota, parse_queue
from queue_files import elastic_quota, imported, koordinator_quota, node


def read(
    raws: Iterable[dict[str, Any]], others: Iterable[str] = (), **allocatable: int
) -> dict[str, Queue]:
    """Return the Queues of these ElasticQuotas by name."""
    parsed = {object_key(Kind.ELASTIC_QUOTA, raw): parse_elastic_quota(raw) for raw in raws}
    found, _ = with_own_quotas(
        queues_of(parsed, [*others]), lambda resource: allocatable.get(resource, 0)
    )
    return found


def selects(queue: Queue, *names: str) -> list[bool]:
    selector = queue.namespaces
    assert selector is not None
    return [selector.matches({"kubernetes.io/metadata.name": name}) for name in names]


@pytest.mark.parametrize(
    "spec",
    [
        {"min": {"cpu": 4, "memory": "8Gi"}, "max": {"cpu": "5500m"}},
        {"min": {"nvidia.com/gpu": 4}, "max": {"nvidia.com/gpu": 3, "pods": 9}},
        {"max": {"cpu": 0}},
        {},
    ],
)
def test_an_elastic_quota_is_the_queue_that_convert_makes_of_it(spec: dict[str, Any]) -> None:
    raw = elastic_quota("team", **spec)
    converted, _ = imported([raw])
    live = read([raw])
    assert list(live) == [ROOT, "team"] == list(converted)
    for name, queue in live.items():
        made = parse_queue({"metadata": {"name": name}, "spec": converted[name]})
        assert (queue.parent, queue.quotas) == (made.parent, made.quotas)
    assert selects(live["team"], "team", "other") == [True, False]


def test_a_malformed_elastic_quota_is_a_queue_that_is_not_ready() -> None:
    queue = parse_elastic_quota(elastic_quota("team", min={"cpu": -1}))
    why = "ElasticQuota team/quota: spec.min.cpu: -1 is negative; write zero or more"
    assert (queue.invalid, queue.quotas) == (why, {})


def test_of_two_elastic_quotas_in_a_namespace_the_first_by_name_counts() -> None:
    first, second = (Queue("team", uid=uid) for uid in ("first", "second"))
    found = queues_of({"team/b": second, "team/a": first}, ())
    assert found["team"].uid == "first"


def test_an_elastic_quota_names_at_most_a_hundred_resources() -> None:
    many = {f"example.com/{number}": 1 for number in range(101)}
    queue = parse_elastic_quota(elastic_quota("team", max=many))
    assert queue.invalid == (
        "ElasticQuota team/quota: spec.max: has 101 resources; Mooring reads at most 100"
    )


def test_koordinators_quotas_are_a_tree_that_shares_the_nodes() -> None:
    raws = [
        koordinator_quota(ROOT_OF_KOORDINATOR, labels={"is-parent": "true"}),
        koordinator_quota("dept", labels={"is-parent": "true"}, min={"cpu": 40}, max={"cpu": 60}),
        koordinator_quota("a", "dept", labels={"allow-lent-resource": "false"}, min={"cpu": 10}),
        koordinator_quota("b", "dept", namespace="b", min={"cpu": 5}, max={"cpu": 3}),
    ]
    found = read(raws, cpu=100_000)
    assert list(found) == [ROOT_OF_KOORDINATOR, "dept", "b", "a"]
    assert {name: (queue.parent, queue.quotas["cpu"]) for name, queue in found.items()} == {
        ROOT_OF_KOORDINATOR: ("", Quota(60_000)),
        "dept": (ROOT_OF_KOORDINATOR, Quota(27_000, 20_000)),
        "a": ("dept", Quota(10_000, None, 0)),
        "b": ("dept", Quota(3_000, 0)),
    }
    assert [found[name].namespaces for name in (ROOT_OF_KOORDINATOR, "dept")] == [None, None]


def test_a_quota_of_koordinator_takes_the_pods_of_its_namespaces_or_of_all_by_label() -> None:
    listed = {"namespaces": '["x", "y"]'}
    found = read(
        [
            koordinator_quota("listed", annotations=listed),
            koordinator_quota("own", namespace="own"),
            koordinator_quota("both", namespace="both", annotations=listed),
            koordinator_quota("all", namespace="own"),
        ]
    )
    assert selects(found["listed"], "x", "y", "kube-system") == [True, True, False]
    assert selects(found["own"], "own", "x") == [True, False]
    assert selects(found["both"], "both", "x", "own") == [True, True, False]
    selector = found["all"].namespaces
    assert selector is not None
    assert selector.empty


def test_pods_that_name_no_quota_of_koordinator_have_no_queue() -> None:
    names = ("koordinator-default-quota", "koordinator-system-quota")
    raws = [elastic_quota("kube-system", name, max={"cpu": 1}) for name in names]
    assert read([*raws, koordinator_quota(names[0], namespace="x")]) == {}


@pytest.mark.parametrize("written", ["a,b", "{}", "[1]", "null", "[" * 100_000])
def test_a_malformed_list_of_namespaces_is_a_queue_that_is_not_ready(written: str) -> None:
    raws = [
        koordinator_quota("a", annotations={"namespaces": written}, min={"cpu": 1}),
        koordinator_quota("b", min={"cpu": 2}),
    ]
    found = read(raws)
    path = f"metadata.annotations[{KOORDINATOR}namespaces]"
    why = f"ElasticQuota kube-system/a: {path}: must be a list of names in JSON"
    assert (found["a"].invalid, found["a"].quotas) == (why, {})
    assert (found["b"].invalid, found["b"].quotas) == (None, {"cpu": Quota(2_000)})


def test_of_two_quotas_of_one_name_the_first_counts_and_a_queue_counts_before() -> None:
    raws = [
        koordinator_quota("dept", min={"cpu": 9}),
        koordinator_quota("team", "dept", namespace="z", min={"cpu": 1}),
        koordinator_quota("team", "dept", namespace="y", min={"cpu": 2}),
    ]
    found = read(raws)
    assert found["team"].uid == "uid-y-team"
    assert found["dept"].quotas == {"cpu": Quota(7_000)}
    assert {*read(raws, ["team"])} == {ROOT_OF_KOORDINATOR, "dept"}
    assert read(raws, ["team"])["dept"].quotas == {"cpu": Quota(9_000)}
    assert {*read(raws, [ROOT_OF_KOORDINATOR])} == {"dept", "team"}


def test_no_elastic_quota_takes_the_place_of_a_root() -> None:
    found = read([koordinator_quota(ROOT, min={"cpu": 5}), elastic_quota("a", min={"cpu": 1})])
    assert (found[ROOT].parent, found[ROOT].quotas) == ("", {})
    limited = koordinator_quota(ROOT_OF_KOORDINATOR, "a", min={"cpu": "x"}, max={"cpu": 1})
    found = read([limited, koordinator_quota("a", min={"cpu": 1})], cpu=8_000)
    root = found[ROOT_OF_KOORDINATOR]
    assert (root.parent, root.invalid, root.quotas) == ("", None, {"cpu": Quota(7_000)})


names = st.sampled_from("abcdefg")
quantities = st.none() | st.integers(0, 9)


@st.composite
def trees(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Draw quotas of Koordinator with any parents: circles and missing parents are possible."""
    raws = list[dict[str, Any]]()
    for name in sorted(draw(st.sets(names))):
        least, most = draw(quantities), draw(quantities)
        labels = {"allow-lent-resource": draw(st.sampled_from(["true", "false"]))}
        quota = koordinator_quota(name, draw(names | st.just("")), labels=labels)
        quota["spec"] = {
            "min": {} if least is None else {"pods": least},
            "max": {} if most is None else {"pods": most},
        }
        raws.append(quota)
    return raws


@given(trees(), st.integers(0, 40))
def test_the_quotas_of_a_tree_add_up_to_what_is_written(
    raws: list[dict[str, Any]], pods: int
) -> None:
    found, specs = read(raws, pods=pods), {raw["metadata"]["name"]: raw["spec"] for raw in raws}

    def below(name: str) -> list[str]:
        return [queue.name for queue in found.values() if queue.parent == name]

    def total(name: str) -> int:
        """Return the quota of a queue with those below it, by the definition."""
        least: int = specs[name]["min"].get("pods", 0)
        written: int = min(least, specs[name]["max"].get("pods", least))
        below_it: int = sum(map(total, below(name)))
        return max(written, below_it)

    def own(name: str) -> int:
        nominal = found[name].quotas.get("pods", Quota()).nominal
        return nominal + sum(map(own, below(name)))

    def in_tree(name: str) -> list[str]:
        return [name, *(deeper for child in below(name) for deeper in in_tree(child))]

    if ROOT_OF_KOORDINATOR not in found:
        return
    top = below(ROOT_OF_KOORDINATOR)
    for name in (each for first in top for each in in_tree(first)):
        assert own(name) == total(name)
        if (most := specs[name]["max"].get("pods")) is not None:
            assert found[name].quotas["pods"].borrowing_limit == max(0, most - total(name))
    if any(specs[name]["min"] or specs[name]["max"] for name in in_tree(ROOT_OF_KOORDINATOR)[1:]):
        assert own(ROOT_OF_KOORDINATOR) == max(pods, sum(map(total, top)))


@given(trees())
def test_convert_makes_the_same_tree(raws: list[dict[str, Any]]) -> None:
    live, nodes = read(raws, pods=30), [node("n", pods="30")]
    parents = {name: queue.parent for name, queue in live.items()}
    if any(parent and parent not in parents for parent in parents.values()):
        return
    for start in parents:
        name = start
        for _ in parents:
            name = parents.get(name, "")
        if name:
            return  # a circle
    converted, _ = imported([*nodes, *raws])
    assert converted.keys() == live.keys()
    for name, queue in live.items():
        made = parse_queue({"metadata": {"name": name}, "spec": converted[name]})
        assert (queue.parent, queue.quotas) == (made.parent, made.quotas)
