"""The memory of a pod on a node, in allocated bytes, which are equal on all machines."""

import gc
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from memory import traced_memory
from mooring.model.events import Kind
from mooring.model.objects import parse_object
from mooring.state.cluster import ClusterState
from mooring.testing.builders import node, pod

PODS = 2000


def of_a_deployment(number: int) -> dict[str, Any]:
    """Return a pod that is equal to many other pods."""
    return _replica(number, "ReplicaSet", {"pod-template-hash": "5d4f8c7b9d"})


def of_a_stateful_set(number: int) -> dict[str, Any]:
    """Return a pod with unique labels."""
    index = {"apps.kubernetes.io/pod-index": str(number % 40)}
    return _replica(
        number, "StatefulSet", {**index, "statefulset.kubernetes.io/pod-name": f"web-{number}"}
    )


def _replica(number: int, kind: str, labels: dict[str, str]) -> dict[str, Any]:
    app = f"web-{number // 40}"
    return pod(
        f"{app}-5d4f8c7b9d-{number:05}",
        namespace="team-a",
        labels={"app": app, "topology.kubernetes.io/zone": f"zone-{number % 3}", **labels},
        annotations={"prometheus.io/scrape": "true"},
        owner={"kind": kind, "name": f"{app}-5d4f8c7b9d", "uid": f"a-uid-of-a-usual-length-{app}"},
        node=f"n{number % 100}",
        cpu="100m",
    )


def put_all(state: ClusterState, pod_of: Callable[[int], dict[str, Any]], first: int = 0) -> None:
    """Parse PODS pods from JSON, and put them into the state."""
    for number in range(first, first + PODS):
        value = parse_object(Kind.POD, orjson.loads(orjson.dumps(pod_of(number))))
        state.put(Kind.POD, value.uid, value)


@pytest.mark.parametrize(("pod_of", "most"), [(of_a_deployment, 900), (of_a_stateful_set, 2000)])
def test_a_placed_pod_takes_few_bytes(pod_of: Callable[[int], dict[str, Any]], most: int) -> None:
    assert min(memory_of_pods(pod_of, first) for first in (0, PODS)) <= most * PODS


def memory_of_pods(pod_of: Callable[[int], dict[str, Any]], first: int) -> int:
    """Return the allocated bytes of PODS pods on 100 nodes."""
    state = ClusterState()
    for number in range(100):
        state.put(Kind.NODE, f"n{number}", parse_object(Kind.NODE, node(f"n{number}")))
    with traced_memory() as taken_so_far:
        put_all(state, pod_of, first)
        gc.collect()
        return taken_so_far()


def test_a_pod_that_is_shown_again_and_again_takes_no_more_bytes() -> None:
    state = ClusterState()
    put_all(state, of_a_deployment)
    with traced_memory() as taken_so_far:
        put_all(state, of_a_deployment)
        once = taken_so_far()
        for _ in range(2):
            put_all(state, of_a_deployment)
        assert taken_so_far() <= 1.05 * once
