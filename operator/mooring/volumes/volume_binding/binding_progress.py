"""Checks whether a pod's claims have been bound (checkBindings in volumebinding/binder.go).

The check reads only mirrored objects, because other pods may have assumed changes of the objects.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from mooring.model.events import Kind
from mooring.model.objects import is_older
from mooring.model.pod import Pod
from mooring.state.cluster_view import ClusterView
from mooring.state.view import NodeView
from mooring.volumes.model.storage_objects import PersistentVolume, PersistentVolumeClaim
from mooring.volumes.volume_binding.find_volumes import matches_node_affinity


class VolumesLostError(Exception):
    """Raised if a pod's claims can no longer be bound on its node; the text gives the reason."""


@dataclass(frozen=True, slots=True, eq=False)
class BindingProgress:
    """The volumes and claims that PreBind has written for a pod on a node.

    `bindings` are volumes with their claims. `provisioning` are claims with a selected node, which
    wait for a new volume.
    """

    pod: Pod
    node: str
    bindings: Sequence[tuple[PersistentVolume, PersistentVolumeClaim]]
    provisioning: Sequence[PersistentVolumeClaim]
    cluster: ClusterView

    def done(self) -> bool:
        """Return whether all claims are bound; raise VolumesLostError if that is impossible."""
        node = self.cluster.nodes.only(self.node)
        if not len(node):
            raise VolumesLostError(f'failed to get node "{self.node}": not found')
        if not self.cluster.is_placed(self.pod):
            raise VolumesLostError("pod does not exist any more")
        return all(self._volume_is_bound(*binding, node) for binding in self.bindings) and all(
            self._claim_is_bound(claim, node) for claim in self.provisioning
        )

    def unbound(self) -> Iterator[str]:
        """Yield the claims (namespace/name) that are not bound yet."""
        for claim in (*(claim for _, claim in self.bindings), *self.provisioning):
            shown = self._claims.get(claim.key)
            if shown is None or not shown.bound:
                yield claim.key

    @property
    def _claims(self) -> Mapping[str, PersistentVolumeClaim]:
        return self.cluster.objects(Kind.PERSISTENT_VOLUME_CLAIM)

    @property
    def _volumes(self) -> Mapping[str, PersistentVolume]:
        return self.cluster.objects(Kind.PERSISTENT_VOLUME)

    def _volume_is_bound(
        self, written: PersistentVolume, claim: PersistentVolumeClaim, node: NodeView
    ) -> bool:
        volume, shown = self._volumes.get(written.name), self._claims.get(claim.key)
        if volume is None:
            missing = f'persistentvolume "{written.name}" not found'
            raise VolumesLostError(f"failed to check binding: {missing}")
        if shown is None:
            missing = f'persistentvolumeclaim "{claim.name}" not found'
            raise VolumesLostError(f"failed to check binding: {missing}")
        if shown.uid != claim.uid:
            # kube-scheduler waits until its time is up, for a volume that nobody binds any more.
            raise VolumesLostError(f'pvc "{claim.name}" was deleted and created again')
        if is_older(volume.resource_version, written.resource_version):
            return False
        self._check_node_affinity(volume, node)
        if volume.claim is None or not volume.claim.uid:
            raise VolumesLostError(f'ClaimRef got reset for pv "{volume.name}"')
        if shown.volume_name and shown.volume_name != volume.name:
            # A volume was written for an earlier pod with the claim, and was not shown in time.
            taken = f'pvc "{claim.name}" is bound to pv "{shown.volume_name}"'
            raise VolumesLostError(f'{taken}, not to pv "{volume.name}"')
        return shown.bound

    def _claim_is_bound(self, written: PersistentVolumeClaim, node: NodeView) -> bool:
        shown = self._claims.get(written.key)
        if shown is None:
            missing = f'persistentvolumeclaim "{written.name}" not found'
            raise VolumesLostError(f"failed to check provisioning pvc: {missing}")
        if is_older(shown.resource_version, written.resource_version):
            return False
        if not shown.annotated:
            raise VolumesLostError(f'selectedNode annotation reset for PVC "{written.name}"')
        if shown.selected_node != self.node:
            # A provisioner that fails takes the annotation away, so that another node is tried.
            raise VolumesLostError(f'provisioning failed for PVC "{written.name}"')
        if not shown.volume_name:
            return False
        volume = self._volumes.get(shown.volume_name)
        if volume is None:
            return False
        self._check_node_affinity(volume, node)
        return shown.bound

    def _check_node_affinity(self, volume: PersistentVolume, node: NodeView) -> None:
        if not matches_node_affinity(volume, node, self.cluster).all():
            raise VolumesLostError(
                f'pv "{volume.name}" node affinity doesn\'t match node "{self.node}": '
                "no matching NodeSelectorTerms"
            )
