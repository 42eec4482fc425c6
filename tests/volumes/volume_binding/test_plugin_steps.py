"""The volumes of a pod during scheduling: reserved, written, awaited, or released."""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mooring.framework.verdicts import SKIP, PluginError, Unschedulable
from mooring.model.events import Kind
from mooring.model.objects import object_key, parse_object
from mooring.model.pod import Pod, parse_pod
from mooring.state.cluster import ClusterState
from mooring.state.cluster_view import ClusterView
from mooring.testing.builders import cluster, node, pod
from mooring.testing.fakes import FakeApi, handle
from mooring.volumes.volume_binding.plugin import VolumeBinding, VolumeBindingArgs
from storage_builders import pv, pvc, storage_class

Raw = Mapping[str, Any]

NODES = (node("n1"), node("n2"))
STATIC, MADE = storage_class("static"), storage_class("made", provisioner="csi.example")
WEB = pod(claims=["data"])
PENDING = pvc("data", storage_class="static")
TO_MAKE = pvc("data", storage_class="made")
LOCAL = [pv(f"v{n}", nodes=(f"n{n}",), storage_class="static") for n in (1, 2)]

BIND_CONFLICT = "node(s) didn't find available persistent volumes to bind"


class Binding:
    """The plugin on a cluster with the objects, and an API that holds the objects."""

    def __init__(self, *objects: Raw, seconds: int = 600) -> None:
        versioned = [self._versioned(raw, 1) for raw in (*NODES, STATIC, MADE, *objects)]
        self.state: ClusterState = cluster(*versioned)
        self.cluster = ClusterView(self.state)
        kinds = {Kind.PERSISTENT_VOLUME: "persistentvolumes"}
        kinds[Kind.PERSISTENT_VOLUME_CLAIM] = "persistentvolumeclaims"
        self.api = FakeApi(
            {
                (kinds[kind], object_key(kind, raw)): dict(raw)
                for raw in versioned
                if (kind := Kind(raw["kind"])) in kinds
            }
        )
        self.plugin = VolumeBinding(
            VolumeBindingArgs(bind_timeout_seconds=seconds), handle(self.state, self.api)
        )

    def take(self, raw: Raw, on: str) -> Pod:
        """Assume the pod on the node, and reserve its volumes."""
        web = parse_pod(raw)
        self.state.assume(web, self.state.nodes.row_of[on])
        assert self.plugin.reserve(web, on) is None
        return web

    def rejected(self, raw: Raw) -> dict[str, tuple[str, ...]]:
        """Return the reasons of each rejected node."""
        wanted, nodes = parse_pod(raw), self.cluster.nodes
        claims = self.plugin.pre_filter(wanted, self.cluster)
        assert claims is not SKIP
        assert not isinstance(claims, Unschedulable)
        out = nodes.take(nodes.rows[~self.plugin.filter(wanted, nodes, claims)])
        why = self.plugin.explain(wanted, out, claims)
        return {out.name(i): why.reasons_at(i) for i in range(len(out))}

    def show(self, raw: Raw, number: int) -> None:
        """Let the watch show this version of the object."""
        kind, shown = Kind(raw["kind"]), self._versioned(raw, number)
        self.state.put(kind, object_key(kind, shown), parse_object(kind, shown))

    def meanwhile(self, *events: tuple[Raw, int]) -> None:
        """Let the watch show the events one by one while the plugin waits."""
        self.api.events.extend(partial(self.show, *event) for event in events)

    def seen(self) -> tuple[Any, ...]:
        """Return all data of volumes and claims that decisions read."""
        storage = self.cluster.storage
        volumes = sorted(self.cluster.objects(Kind.PERSISTENT_VOLUME))
        claims = sorted(self.cluster.objects(Kind.PERSISTENT_VOLUME_CLAIM))
        return (
            [storage.volumes.volume(name) for name in volumes],
            [storage.volumes.claim(key) for key in claims],
            [volume.name for volume in storage.volumes.available("static").items],
        )

    def _versioned(self, raw: Raw, number: int) -> Raw:
        metadata = {**raw["metadata"], "resourceVersion": str(number)}
        return {**raw, "metadata": metadata}


def bound_pv(name: str, nodes: Iterable[str] = ()) -> Raw:
    """Return the volume after it was bound to the claim."""
    ref = {"namespace": "default", "name": "data", "uid": PENDING["metadata"]["uid"]}
    spec = {"claimRef": ref}
    return pv(name, nodes=[*nodes], storage_class="static", claim="default/data", spec=spec)


def test_a_reserved_volume_is_not_there_for_another_claim() -> None:
    other = pvc("other", storage_class="static")
    binding = Binding(*LOCAL, PENDING, other)
    binding.take(WEB, "n1")
    assert binding.rejected(pod("other", claims=["other"])) == {"n1": (BIND_CONFLICT,)}


def test_a_pod_with_the_same_claim_can_follow_only_to_its_volume() -> None:
    binding = Binding(*LOCAL, PENDING)
    binding.take(WEB, "n1")
    assert binding.rejected(pod("other", claims=["data"])) == {"n2": (BIND_CONFLICT,)}


def test_a_claim_whose_volume_is_to_be_made_is_sent_to_the_node() -> None:
    binding = Binding(TO_MAKE)
    binding.take(WEB, "n1")
    assert binding.rejected(pod("other", claims=["data"])) == {"n2": (BIND_CONFLICT,)}


def test_a_volume_that_two_pods_hold_stays_held_until_both_have_given_it_back() -> None:
    binding = Binding(*LOCAL, PENDING)
    before = binding.seen()
    one, two = binding.take(WEB, "n1"), binding.take(pod("other", claims=["data"]), "n1")
    held = binding.seen()
    binding.plugin.unreserve(one, "n1")
    assert binding.seen() == held
    binding.plugin.unreserve(two, "n1")
    assert binding.seen() == before


def test_a_node_that_has_become_impossible_is_rejected_at_reserve() -> None:
    binding = Binding(*LOCAL, PENDING, pvc("other", storage_class="static"))
    binding.take(WEB, "n1")
    late = parse_pod(pod("late", claims=["other"]))
    assert binding.plugin.reserve(late, "n1") == Unschedulable(BIND_CONFLICT)
    assert binding.plugin.reserve(late, "n9") == Unschedulable("node n9 does not exist any more")
    binding.state.delete(Kind.PERSISTENT_VOLUME_CLAIM, "default/other")
    missing = Unschedulable('persistentvolumeclaim "other" not found')
    assert binding.plugin.reserve(late, "n2") == missing


def test_nothing_is_reserved_for_claims_that_are_bound_or_not_there() -> None:
    binding = Binding(bound_pv("v"), pvc("data", volume="v"))
    before = binding.seen()
    for raw in (WEB, pod("none")):
        binding.take(raw, "n1")
        assert binding.seen() == before


CLAIM_NAMES = ("a", "b", "c")
PODS = st.tuples(
    st.sampled_from(("p0", "p1", "p2")),
    st.lists(st.sampled_from(CLAIM_NAMES), min_size=1, max_size=3, unique=True),
    st.sampled_from(("n1", "n2")),
)


@settings(deadline=None)
@given(st.lists(PODS, max_size=5), st.sampled_from(("static", "made")), st.randoms())
def test_unreserve_undoes_reserve_in_any_order(
    pods: list[tuple[str, list[str], str]], class_name: str, random: Any
) -> None:
    volumes = [
        pv(f"v{n}{i}", nodes=(f"n{n}",), size=i, storage_class=class_name)
        for n in (1, 2)
        for i in (1, 2)
    ]
    claims = [pvc(name, size=1, storage_class=class_name) for name in CLAIM_NAMES]
    binding = Binding(*volumes, *claims)
    before = binding.seen()
    reserved = []
    for name, used, on in pods:
        web = parse_pod(pod(name, claims=used))
        binding.plugin.reserve(web, on)
        reserved.append((web, on))
    random.shuffle(reserved)
    for web, on in reserved:
        binding.plugin.unreserve(web, on)
    assert binding.seen() == before


async def test_binding_writes_the_volume_and_waits_until_the_claim_is_bound() -> None:
    binding = Binding(*LOCAL, PENDING)
    web = binding.take(WEB, "n1")
    binding.meanwhile(
        (bound_pv("v1", ["n1"]), 2), (pvc("data", storage_class="static", volume="v1"), 3)
    )
    await binding.plugin.pre_bind(web, "n1")
    (patch,) = binding.api.patches
    assert (patch.resource, patch.key) == ("persistentvolumes", "v1")
    assert patch.body["spec"]["claimRef"]["name"] == "data"
    assert patch.body["metadata"]["resourceVersion"] == "1"
    assert patch.body["metadata"]["annotations"] == {"pv.kubernetes.io/bound-by-controller": "yes"}
    assert not binding.api.events


async def test_a_prebound_volume_is_bound_without_the_controllers_annotation() -> None:
    kept = pv("v", storage_class="static", claim="default/data")
    binding = Binding(kept, PENDING)
    web = binding.take(WEB, "n1")
    binding.meanwhile((bound_pv("v"), 2), (pvc("data", storage_class="static", volume="v"), 3))
    await binding.plugin.pre_bind(web, "n1")
    (patch,) = binding.api.patches
    assert "annotations" not in patch.body["metadata"]


async def test_a_volume_that_only_another_pod_keeps_for_the_claim_gets_the_mark() -> None:
    binding = Binding(*LOCAL, PENDING)
    binding.take(pod("first", claims=["data"]), "n1")
    web = binding.take(WEB, "n1")
    binding.meanwhile(
        (bound_pv("v1", ["n1"]), 2), (pvc("data", storage_class="static", volume="v1"), 3)
    )
    await binding.plugin.pre_bind(web, "n1")
    (patch,) = binding.api.patches
    assert "annotations" in patch.body["metadata"]


async def test_binding_sends_the_claim_and_waits_until_its_volume_is_made() -> None:
    binding = Binding(TO_MAKE)
    web = binding.take(WEB, "n1")
    sent = pvc("data", storage_class="made", selected_node="n1")
    made = pvc("data", storage_class="made", selected_node="n1", volume="v")
    binding.meanwhile((sent, 2), (made, 3), (bound_pv("v"), 4))
    await binding.plugin.pre_bind(web, "n1")
    (patch,) = binding.api.patches
    assert (patch.resource, patch.key) == ("persistentvolumeclaims", "default/data")
    assert patch.body["metadata"]["annotations"] == {"volume.kubernetes.io/selected-node": "n1"}


async def test_a_pod_whose_claims_are_bound_waits_for_nothing() -> None:
    binding = Binding(bound_pv("v"), pvc("data", volume="v"))
    await binding.plugin.pre_bind(binding.take(WEB, "n1"), "n1")
    assert binding.api.patches == []


async def test_a_provisioner_that_gives_the_claim_back_ends_the_binding() -> None:
    binding = Binding(TO_MAKE)
    web = binding.take(WEB, "n1")
    binding.meanwhile((pvc("data", storage_class="made", selected_node="n1"), 2), (TO_MAKE, 3))
    with pytest.raises(PluginError) as caught:
        await binding.plugin.pre_bind(web, "n1")
    assert str(caught.value) == 'binding volumes: selectedNode annotation reset for PVC "data"'


async def test_a_binding_that_takes_too_long_names_the_claims() -> None:
    binding = Binding(*LOCAL, PENDING, seconds=7)
    web = binding.take(WEB, "n1")
    with pytest.raises(PluginError) as caught:
        await binding.plugin.pre_bind(web, "n1")
    assert str(caught.value) == (
        "binding volumes: context deadline exceeded: not bound after 7 s: default/data"
    )


async def test_an_error_of_the_api_server_is_raised_and_unreserve_restores() -> None:
    binding = Binding(*LOCAL, PENDING)
    before = binding.seen()
    web = binding.take(WEB, "n1")
    binding.api.failure = OSError("the object has been modified")
    with pytest.raises(OSError, match="modified"):
        await binding.plugin.pre_bind(web, "n1")
    binding.plugin.unreserve(web, "n1")
    assert binding.seen() == before


async def test_after_a_failed_binding_what_the_watch_shows_stays() -> None:
    binding = Binding(*LOCAL, PENDING)
    web = binding.take(WEB, "n1")
    binding.meanwhile((bound_pv("v1", ["n1"]), 2))
    with pytest.raises(PluginError, match="deadline"):
        await binding.plugin.pre_bind(web, "n1")
    binding.plugin.unreserve(web, "n1")
    assert binding.rejected(WEB) == {"n2": (BIND_CONFLICT,)}


@pytest.mark.parametrize("objects", [(*LOCAL, PENDING), (TO_MAKE,)])
def test_what_a_trial_assumes_is_undone_when_it_ends(objects: tuple[Raw, ...]) -> None:
    binding = Binding(*objects)
    before, web, row = binding.seen(), parse_pod(WEB), binding.state.nodes.row_of["n1"]
    with binding.state.trial() as trial:
        trial.add(web, row)
        assert binding.plugin.assign(web, row) is None
        assert binding.rejected(pod("other", claims=["data"])) == {"n2": (BIND_CONFLICT,)}
        trial.remove(web.uid)
        assert binding.seen() == before
        trial.add(web, row)
        assert binding.plugin.assign(web, row) is None
    assert binding.seen() == before


def test_a_trial_keeps_what_was_assumed_for_the_pod_before() -> None:
    binding = Binding(*LOCAL, PENDING)
    web, row = binding.take(WEB, "n1"), binding.state.nodes.row_of["n1"]
    binding.state.forget(web)  # the confirmation of its Binding did not come
    assumed = binding.seen()
    with binding.state.trial() as trial:
        trial.add(web, row)
        assert binding.plugin.assign(web, row) is None
    assert binding.seen() == assumed
