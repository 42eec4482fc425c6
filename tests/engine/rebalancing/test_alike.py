"""Which pods are decided about alike."""

from mooring.engine.rebalancing.alike import alike_pods
from mooring.model.node import ZONE
from mooring.testing.builders import node, pod
from replanning import Replanning, owned


def classes(replanning: Replanning) -> list[set[str]]:
    """Return the names of the pods of each class."""
    found = alike_pods(lambda _: True, replanning.cluster)
    positions = [each.position for each in found]
    assert positions == sorted(positions)
    return sorted(({each.name for each in alike.pods} for alike in found), key=min)


def test_pods_of_one_template_are_alike_wherever_they_are() -> None:
    replanning = Replanning(
        node("a", zone="x"),
        node("b", zone="y"),
        *(owned(f"w{n}", labels={"app": "web", ZONE: "xy"[n]}, node="ab"[n]) for n in range(2)),
        owned("z", owner="other", labels={"app": "web"}, node="a"),
    )
    assert classes(replanning) == [{"w0", "w1"}, {"z"}]


def test_labels_specs_and_volumes_make_pods_differ() -> None:
    replanning = Replanning(
        node("a"),
        owned("labels", labels={"app": "db"}, node="a"),
        owned("spec", cpu="1", node="a"),
        *(owned(f"volume-{n}", claims=["data"], node="a") for n in range(2)),
        *(owned(f"plain-{n}", node="a") for n in range(2)),
    )
    assert classes(replanning) == [
        {"labels"},
        {"plain-0", "plain-1"},
        {"spec"},
        {"volume-0"},
        {"volume-1"},
    ]


def test_pods_without_a_known_node_and_nominated_pods_are_left_out() -> None:
    replanning = Replanning(node("a"), owned("lost", node="gone"), owned("web", node="a"))
    replanning.nominate(pod("first"), "a")
    assert classes(replanning) == [{"web"}]


def test_a_large_class_is_divided() -> None:
    pods = [owned(f"w{n}", node="a") for n in range(2_001)]
    assert [len(each) for each in classes(Replanning(node("a"), *pods))] in ([1, 2_000], [2_000, 1])
