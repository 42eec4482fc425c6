from collections.abc import Mapping
from typing import Any

import pytest

from mooring.model.events import Kind
from mooring.model.node import HOSTNAME
from mooring.model.objects import parse_object
from mooring.model.pod import parse_pod
from mooring.state.cluster import ClusterState
from mooring.state.cluster_view import ClusterView
from mooring.testing.builders import cluster, node, pod, uid_of
from mooring.volumes.model.storage_objects import (
    parse_persistent_volume,
    parse_persistent_volume_claim,
)
from mooring.volumes.volume_binding.binding_progress import BindingProgress, VolumesLostError
from storage_builders import pv, pvc

Raw = Mapping[str, Any]

WEB = parse_pod(pod("web"))


def version(raw: Raw, number: int) -> dict[str, Any]:
    return {**raw, "metadata": {**raw["metadata"], "resourceVersion": str(number)}}


def annotated(raw: Raw) -> dict[str, Any]:
    """Return the object with an annotation that another program wrote."""
    return {**raw, "metadata": {**raw["metadata"], "annotations": {"made.by": "x"}}}


BOUND = pvc("data", volume="v")
SENT = version(pvc("made", selected_node="n1"), 20)
MADE = version(pvc("made", volume="v", selected_node="n1"), 21)


def taken(**fields: Any) -> dict[str, Any]:
    ref = {"namespace": "default", "name": "data", "uid": BOUND["metadata"]["uid"]}
    return version(pv("v", spec={"claimRef": ref}, **fields), 10)


def shown(*objects: Raw) -> ClusterState:
    """Return a cluster with these objects, and the pod assumed on n1."""
    state = cluster(node("n1"), *objects)
    state.assume(WEB, state.nodes.row_of["n1"])
    return state


def binding(state: ClusterState) -> BindingProgress:
    """Return the progress of binding the volume to the claim at version 10."""
    pair = (parse_persistent_volume(taken()), parse_persistent_volume_claim(pvc("data")))
    return BindingProgress(WEB, "n1", [pair], [], ClusterView(state))


def sent(state: ClusterState) -> BindingProgress:
    """Return the progress of a claim whose selected node n1 was written as version 20."""
    return BindingProgress(WEB, "n1", [], [parse_persistent_volume_claim(SENT)], ClusterView(state))


def lost(progress: BindingProgress) -> str:
    with pytest.raises(VolumesLostError) as caught:
        progress.done()
    return str(caught.value)


def test_a_claim_that_was_deleted_and_created_again_is_not_the_one_that_was_written_for() -> None:
    again = pvc("data")
    again["metadata"]["uid"] = "another"
    reason = lost(binding(shown(taken(), again)))
    assert reason == 'pvc "data" was deleted and created again'


def test_a_binding_is_done_once_its_claim_is_bound_for_good() -> None:
    assert not binding(shown(taken(), pvc("data"))).done()
    assert binding(shown(taken(), BOUND)).done()


def test_a_volume_older_than_what_was_written_says_nothing() -> None:
    assert not binding(shown(version(pv("v"), 9), BOUND)).done()


@pytest.mark.parametrize(
    ("objects", "reason"),
    [
        ((BOUND,), 'failed to check binding: persistentvolume "v" not found'),
        ((taken(),), 'failed to check binding: persistentvolumeclaim "data" not found'),
        ((version(pv("v"), 11), BOUND), 'ClaimRef got reset for pv "v"'),
        ((version(pv("v", claim="default/data"), 11), BOUND), 'ClaimRef got reset for pv "v"'),
        (
            (taken(nodes=("n2",)), BOUND),
            'pv "v" node affinity doesn\'t match node "n1": no matching NodeSelectorTerms',
        ),
        (
            (taken(), pvc("data", volume="w")),
            'pvc "data" is bound to pv "w", not to pv "v"',
        ),
    ],
)
def test_a_binding_is_lost_if_it_cannot_come_about(objects: tuple[Raw, ...], reason: str) -> None:
    assert lost(binding(shown(*objects))) == reason


def test_a_sent_claim_is_done_once_it_is_bound_to_a_volume_that_shows() -> None:
    assert not sent(shown(SENT)).done()
    assert not sent(shown(MADE)).done()
    assert sent(shown(MADE, pv("v", nodes=("n1",)))).done()


def test_a_claim_older_than_what_was_written_says_nothing() -> None:
    assert not sent(shown(version(pvc("made"), 9))).done()


@pytest.mark.parametrize(
    ("objects", "reason"),
    [
        ((), 'failed to check provisioning pvc: persistentvolumeclaim "made" not found'),
        ((version(pvc("made"), 21),), 'selectedNode annotation reset for PVC "made"'),
        (
            (version(annotated(pvc("made")), 21),),
            'provisioning failed for PVC "made"',
        ),
        (
            (version(pvc("made", selected_node="n2"), 21),),
            'provisioning failed for PVC "made"',
        ),
        (
            (MADE, pv("v", nodes=("n2",))),
            'pv "v" node affinity doesn\'t match node "n1": no matching NodeSelectorTerms',
        ),
    ],
)
def test_a_sent_claim_is_lost_if_it_cannot_be_bound_there(
    objects: tuple[Raw, ...], reason: str
) -> None:
    assert lost(sent(shown(*objects))) == reason


def test_nothing_is_done_for_a_node_or_a_pod_that_is_gone() -> None:
    state = shown(taken(), BOUND)
    state.forget(WEB)
    assert lost(binding(state)) == "pod does not exist any more"
    state = shown(taken(), BOUND)
    state.delete(Kind.NODE, "n1")
    assert lost(binding(state)) == 'failed to get node "n1": not found'


def test_a_successor_of_the_pods_name_is_not_the_pod() -> None:
    state = shown(taken(), BOUND)
    successor = pod("web", node="n1")
    successor["metadata"]["uid"] = "another"
    state.put(Kind.POD, "another", parse_object(Kind.POD, successor))
    assert binding(state).done()
    state.delete(Kind.POD, uid_of("web"))
    assert lost(binding(state)) == "pod does not exist any more"


def test_what_is_still_to_be_bound_is_named() -> None:
    assert [*binding(shown(taken(), BOUND)).unbound()] == []
    assert [*binding(shown(taken(), pvc("data"))).unbound()] == ["default/data"]
    assert [*sent(shown(SENT)).unbound()] == ["default/made"]


def test_a_node_whose_label_changed_meanwhile_is_looked_at_as_it_is_now() -> None:
    state = shown(taken(nodes=("n1",)), BOUND)
    assert binding(state).done()
    relabelled = node("n1", labels={HOSTNAME: "renamed"})
    state.put(Kind.NODE, "n1", parse_object(Kind.NODE, relabelled))
    assert lost(binding(state)).startswith('pv "v" node affinity')
