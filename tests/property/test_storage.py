"""Whatever comes and goes, what is counted about storage is what counting anew would give."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from hypothesis import assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from mooring.model.events import Kind
from mooring.model.objects import object_key, parse_object
from mooring.model.pod import Pod, parse_pod
from mooring.state.cluster import ClusterState
from mooring.state.cluster_view import ClusterView
from mooring.testing.builders import node, pod
from mooring.volumes.model.migration import csi_source
from mooring.volumes.model.pod_volumes import CSI_DRIVERS, ClaimVolume, Disk, PodVolume
from mooring.volumes.model.storage_objects import CSISource
from mooring.volumes.state.csi_nodes import UNLIMITED
from mooring.volumes.state.volume_users import in_conflict, is_restricted
from storage_builders import (
    csi_node,
    pv,
    pvc,
    storage_class,
    volume_attachment,
)

Raw = Mapping[str, Any]

NAMES = ("n0", "n1", "n2")
CLAIMS = ("c0", "c1", "c2")
VOLUMES = ("v0", "v1", "v2")
DRIVERS = ("csi.example", "ebs.csi.aws.com")
SOURCES: tuple[dict[str, Any], ...] = (
    {"csi": {"driver": "csi.example", "volumeHandle": "h1"}},
    {"csi": {"driver": "csi.example", "volumeHandle": "h2"}},
    {"awsElasticBlockStore": {"volumeID": "vol-1"}},
    {"hostPath": {"path": "/"}},
)
INLINE: tuple[dict[str, Any], ...] = (
    {"awsElasticBlockStore": {"volumeID": "vol-1"}},
    {"gcePersistentDisk": {"pdName": "d", "readOnly": True}},
    {"gcePersistentDisk": {"pdName": "d"}},
    *({"persistentVolumeClaim": {"claimName": claim}} for claim in CLAIMS),
)
PROBES = [
    volume for i in range(3) for volume in parse_pod(pod(spec={"volumes": [INLINE[i]]})).volumes
]

names, volume_names = st.sampled_from(NAMES), st.sampled_from(VOLUMES)
pod_names = st.sampled_from(("a", "b", "c"))
pod_volumes = st.lists(st.sampled_from(INLINE), max_size=3)


class StorageMachine(RuleBasedStateMachine):
    """Objects come, change and go in any order; pods are shown, assumed and tried out."""

    def __init__(self) -> None:
        super().__init__()
        self.state = ClusterState()
        self.cluster = ClusterView(self.state)

    def show(self, raw: Raw) -> None:
        kind = Kind(raw["kind"])
        self.state.put(kind, object_key(kind, raw), parse_object(kind, raw))

    @rule(name=names)
    def a_node_comes(self, name: str) -> None:
        self.show(node(name))

    @rule(name=names)
    def a_node_goes(self, name: str) -> None:
        self.state.delete(Kind.NODE, name)

    @rule(name=names, driver=st.sampled_from(DRIVERS), limit=st.sampled_from((None, 0, 2)))
    def a_csi_node_is_shown(self, name: str, driver: str, limit: int | None) -> None:
        self.show(csi_node(name, {driver: limit}))

    @rule(name=names)
    def a_csi_node_goes(self, name: str) -> None:
        self.state.delete(Kind.CSI_NODE, name)

    @rule(name=volume_names, source=st.sampled_from(SOURCES))
    def a_volume_is_shown(self, name: str, source: dict[str, Any]) -> None:
        self.show(pv(name, spec=source))

    @rule(name=volume_names)
    def a_volume_goes(self, name: str) -> None:
        self.state.delete(Kind.PERSISTENT_VOLUME, name)

    @rule(name=st.sampled_from(CLAIMS), volume=st.one_of(st.none(), volume_names))
    def a_claim_is_shown(self, name: str, volume: str | None) -> None:
        self.show(pvc(name, storage_class="fast", volume=volume))

    @rule(name=st.sampled_from(CLAIMS))
    def a_claim_goes(self, name: str) -> None:
        self.state.delete(Kind.PERSISTENT_VOLUME_CLAIM, f"default/{name}")

    @rule(provisioner=st.sampled_from(("csi.example", "kubernetes.io/aws-ebs", "")))
    def the_class_is_shown(self, provisioner: str) -> None:
        self.show(storage_class("fast", provisioner=provisioner))

    @rule()
    def the_class_goes(self) -> None:
        self.state.delete(Kind.STORAGE_CLASS, "fast")

    @rule(name=st.sampled_from(("va0", "va1")), on=names, volume=volume_names)
    def an_attachment_is_shown(self, name: str, on: str, volume: str) -> None:
        self.show(volume_attachment(name, "csi.example", on, volume))

    @rule(name=st.sampled_from(("va0", "va1")))
    def an_attachment_goes(self, name: str) -> None:
        self.state.delete(Kind.VOLUME_ATTACHMENT, name)

    @rule(name=pod_names, on=names, volumes=pod_volumes)
    def a_pod_is_shown(self, name: str, on: str, volumes: list[dict[str, Any]]) -> None:
        self.show(self.make_pod(name, volumes, node=on))

    @rule(name=pod_names, on=names, volumes=pod_volumes)
    def a_pod_is_assumed(self, name: str, on: str, volumes: list[dict[str, Any]]) -> None:
        assume(self.exists(on))
        self.state.assume(parse_pod(self.make_pod(name, volumes)), self.state.nodes.row_of[on])

    @rule(name=pod_names)
    def a_pod_goes(self, name: str) -> None:
        for placed in self.named(name):
            self.state.delete(Kind.POD, placed.uid)

    @rule(name=pod_names, on=names, volumes=pod_volumes)
    def it_is_tried_what_would_be(self, name: str, on: str, volumes: list[dict[str, Any]]) -> None:
        """Make a trial about a node that exists, for only such a node can be chosen."""
        assume(self.exists(on))
        known = [(p, row) for p, row in self.pods() if p.name == name]
        assume(all(self.exists(self.state.nodes.names[row]) for _, row in known))
        with self.state.trial() as trial:
            for placed, _ in known:
                trial.remove(placed.uid)
            trial.add(parse_pod(self.make_pod(name, volumes)), self.state.nodes.row_of[on])
            self.everything_is_counted()

    @invariant()
    def everything_is_counted(self) -> None:
        for name, row in self.state.nodes.row_of.items():
            rows = np.array([row])
            for driver in DRIVERS:
                expected = {s for s in self.sources_on(name) if s.driver == driver}
                assert self.cluster.storage.attachments.counts(driver, rows).tolist() == [
                    len(expected)
                ]
                assert self.cluster.storage.csi_nodes.limits(driver, rows).tolist() == [
                    self.limit(name, driver)
                ]
        for claim in CLAIMS:
            key = f"default/{claim}"
            assert self.cluster.storage.users.claim_in_use(key) is self.is_named(claim)
            source = self.source(ClaimVolume(claim, ephemeral=False))
            assert self.cluster.storage.attachable.source(key) == source
        for volume in PROBES:
            rows_in_conflict = sorted(self.cluster.storage.users.rows_in_conflict(volume))
            assert rows_in_conflict == sorted(set(self.in_conflict(volume)))

    def exists(self, name: str) -> bool:
        return self.state.known(Kind.NODE, name) is not None

    def make_pod(self, name: str, volumes: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
        named = [{"name": f"v{i}", **volume} for i, volume in enumerate(volumes)]
        raw = pod(name, spec={"volumes": named}, **fields)
        raw["metadata"]["uid"] = f"{name}{volumes}"
        return raw

    def named(self, name: str) -> list[Pod]:
        """Return the pods of this name: those with other volumes have other uids."""
        return [placed for placed, _ in self.pods() if placed.name == name]

    def pods(self) -> list[tuple[Pod, int]]:
        return [(placed.pod, placed.row) for placed in self.state.pods]

    def sources_on(self, name: str) -> set[CSISource]:
        """Return the volumes of the node's pods, and those attached to it if it exists."""
        row = self.state.nodes.row_of[name]
        of_pods = {self.source(v) for p, on in self.pods() if on == row for v in p.volumes}
        shown = {
            CSISource(attachment.attacher, volume.source.handle)
            for attachment in self.cluster.objects(Kind.VOLUME_ATTACHMENT).values()
            if attachment.node_name == name and self.state.nodes.nodes[row] is not None
            for volume in [self.cluster.objects(Kind.PERSISTENT_VOLUME).get(attachment.volume_name)]
            if volume is not None and isinstance(volume.source, CSISource)
        }
        return {source for source in of_pods | shown if source is not None}

    def source(self, volume: PodVolume) -> CSISource | None:
        """Return what a pod's volume is, looked up from the mirrored objects."""
        if isinstance(volume, Disk):
            return csi_source(volume, {})
        assert isinstance(volume, ClaimVolume)
        key = f"default/{volume.claim}"
        claim = self.cluster.objects(Kind.PERSISTENT_VOLUME_CLAIM).get(key)
        if claim is None:
            return None
        bound = self.cluster.objects(Kind.PERSISTENT_VOLUME).get(claim.volume_name)
        if bound is not None:
            if isinstance(bound.source, Disk):
                return csi_source(bound.source, {})
            found: CSISource | None = bound.source
            return found
        made_by = self.cluster.objects(Kind.STORAGE_CLASS).get("fast")
        provisioner = made_by.provisioner if made_by is not None else ""
        driver = CSI_DRIVERS.get(provisioner, provisioner)
        return CSISource(driver, f"unbound:{key}") if driver else None

    def limit(self, name: str, driver: str) -> int:
        row = self.state.nodes.row_of[name]
        shown = self.cluster.objects(Kind.CSI_NODE).get(name)
        if shown is None or self.state.nodes.nodes[row] is None:
            return UNLIMITED
        limit = shown.limits.get(driver)
        return UNLIMITED if limit is None else int(limit)

    def is_named(self, claim: str) -> bool:
        return any(
            ClaimVolume(claim, ephemeral=False) in placed.volumes
            for placed, row in self.pods()
            if self.state.nodes.nodes[row] is not None
        )

    def in_conflict(self, volume: PodVolume) -> list[int]:
        return [
            row
            for placed, row in self.pods()
            if self.state.nodes.nodes[row] is not None
            for other in placed.volumes
            if is_restricted(other) and in_conflict(volume, other)
        ]


StorageMachine.TestCase.settings = settings(deadline=None, stateful_step_count=30)
TestStorage = StorageMachine.TestCase
