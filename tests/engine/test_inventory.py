from mooring.engine.inventory import cache_sizes, configuration, unschedulable_pods
from mooring.engine.world import World
from mooring.model.pod import parse_pod
from mooring.testing.builders import node, pod
from worlds import put_profile, world


def refuse(shared: World, name: str, *plugins: str, scheduler: str = "default-scheduler") -> None:
    shared.queue.add(parse_pod(pod(name, spec={"schedulerName": scheduler})), 0.0)
    queued = shared.queue.pop(0.0)
    assert queued is not None
    shared.queue.refused(queued, frozenset(plugins), 0.0)


def test_assumed_pods_are_counted_among_the_pods_and_by_themselves() -> None:
    shared = world(node("a"), node("b"), pod("bound", node="a"))
    shared.state.assume(parse_pod(pod("assumed")), shared.state.nodes.row_of["b"])
    assert cache_sizes(shared) == {"nodes": 2, "pods": 2, "assumed_pods": 1}


def test_a_pod_refused_by_two_plugins_counts_for_both() -> None:
    shared = world()
    put_profile(shared)
    refuse(shared, "a", "NodeResourcesFit", "TaintToleration")
    refuse(shared, "b", "NodeResourcesFit")
    assert unschedulable_pods(shared) == {
        ("NodeResourcesFit", "default-scheduler"): 2,
        ("TaintToleration", "default-scheduler"): 1,
    }


def test_pods_that_may_be_tried_and_pods_without_a_profile_are_not_unschedulable() -> None:
    shared = world()
    put_profile(shared)
    refuse(shared, "nobodys", "NodeResourcesFit", scheduler="unknown")
    shared.queue.add(parse_pod(pod("new")), 0.0)
    assert unschedulable_pods(shared) == {}


def test_the_configuration_is_that_in_force_with_its_defaults() -> None:
    shared = world()
    put_profile(shared, "team", percentageOfNodesToScore=50)
    [(name, policy)] = configuration(shared).items()
    assert name == "team"
    assert policy["schedulerNames"] == ["team"]
    assert policy["percentageOfNodesToScore"] == 50
    assert {"name": "NodeResourcesFit", "weight": 1} in policy["plugins"]["score"]
