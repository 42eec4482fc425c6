"""Chooses which pods a simulation tries."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from mooring.model.events import Kind
from mooring.policy.profile_errors import did_you_mean
from mooring.simulate.manifests import InputError

if TYPE_CHECKING:  # `mooring explain` reads TYPE/NAME alone
    from collections.abc import Callable, Collection, Iterator, Mapping

    from mooring.model.pod import Pod
    from mooring.simulate.inputs import Inputs
    from mooring.state.cluster import ClusterState


_TYPES: Final[Mapping[str, str]] = {
    word: kind
    for kind, words in {
        "Pod": "pod pods po",
        "Deployment": "deployment deployments deploy deployment.apps",
        "ReplicaSet": "replicaset replicasets rs replicaset.apps",
        "ReplicationController": "replicationcontroller replicationcontrollers rc",
        "StatefulSet": "statefulset statefulsets sts statefulset.apps",
        "DaemonSet": "daemonset daemonsets ds daemonset.apps",
        "Job": "job jobs job.batch",
        "CronJob": "cronjob cronjobs cj cronjob.batch",
    }.items()
    for word in words.split()
}
"""The kind for each word that kubectl accepts as a type."""
_MIRROR: Final = "kubernetes.io/config.mirror"


@dataclass(frozen=True, slots=True)
class TypeAndName:
    """An object that the user names as `TYPE/NAME`; `kind` is Pod or a controller's kind."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind.lower()}/{self.name}"


def type_and_name(word: str) -> TypeAndName | None:
    """Return the object that `TYPE/NAME` names; None if the word is something else."""
    kind, slash, name = word.partition("/")
    known = _TYPES.get(kind.lower())
    return TypeAndName(known, name) if known and slash and name and "/" not in name else None


@dataclass(frozen=True, slots=True)
class ChosenPods:
    """Chooses pods by a namespace, by named objects, or by both; without either, all pods."""

    namespace: str | None = None
    targets: tuple[TypeAndName, ...] = ()

    def checked(self, inputs: Inputs) -> ChosenPods:
        """Return this object; raise InputError if the inputs lack a chosen pod or controller."""
        if not self.targets:
            return self
        known = {named for key, names in _pods(inputs) if self._is_in(key) for named in names}
        known |= {
            TypeAndName(*_kind_and_name(key))
            for key in inputs.without_pods
            if self._is_in(key.partition(" ")[2])
        }
        for target in self.targets:
            if target not in known:
                of = "" if target.kind == "Pod" else "pod of "
                where = "" if self.namespace is None else f" in namespace {self.namespace}"
                alike = sorted(str(each) for each in known if each.kind == target.kind)
                raise InputError(
                    f"there is no {of}{target}{where} among the objects that were read"
                    f"{did_you_mean(str(target), alike)}"
                )
        return self

    def applied(self, inputs: Inputs) -> Inputs:
        """Return the inputs with only the chosen pending and rejected pods."""
        pending = tuple(pod for pod in inputs.pending if self.takes(pod, inputs))
        rejected = tuple(
            each
            for each in inputs.rejected
            if self._takes(each.pod, *_kind_and_name(each.owner), inputs)
        )
        return replace(inputs, pending=pending, rejected=rejected)

    def takes(self, pod: Pod, inputs: Inputs) -> bool:
        """Return whether the choice includes the pod, by its namespace, name or controller."""
        return self._takes(pod.key, *_owner_of(pod), inputs)

    def _takes(self, key: str, kind: str, owner: str, inputs: Inputs) -> bool:
        if not self._is_in(key):
            return False
        return not self.targets or not _names(key, kind, owner, inputs).isdisjoint(self.targets)

    def _is_in(self, key: str) -> bool:
        return self.namespace in (None, key.partition("/")[0])


EVERY_POD: Final = ChosenPods()


def _pods(inputs: Inputs) -> Iterator[tuple[str, set[TypeAndName]]]:
    for pod in (*inputs.pending, *(placed.pod for placed in inputs.state.pods)):
        yield pod.key, _names(pod.key, *_owner_of(pod), inputs)
    for each in inputs.rejected:
        yield each.pod, _names(each.pod, *_kind_and_name(each.owner), inputs)


def _owner_of(pod: Pod) -> tuple[str, str]:
    return (pod.owner.kind, pod.owner.name) if pod.owner is not None else ("", "")


def _names(key: str, kind: str, owner: str, inputs: Inputs) -> set[TypeAndName]:
    namespace, _, pod = key.partition("/")
    names = {TypeAndName("Pod", pod), TypeAndName(kind, owner)}
    if kind == "ReplicaSet":
        deployment = inputs.deployments.get((namespace, owner))
        if deployment is not None:
            names.add(TypeAndName("Deployment", deployment))
    elif kind == "Job" and (scheduled := re.fullmatch(r"(.+)-\d+", owner)):
        names.add(TypeAndName("CronJob", scheduled[1]))
    return names


def take_off(inputs: Inputs, selected: Callable[[Pod], bool]) -> Inputs:
    """Remove the selected pods from the state; return inputs in which these pods are pending.

    Terminating and static pods keep their nodes. Claims for devices are freed if no other pod uses
    them.
    """
    running = [placed.pod for placed in inputs.state.pods if placed.pod.node_name is not None]
    taken = []
    for pod in running:
        if not pod.terminating and _MIRROR not in pod.annotations and selected(pod):
            inputs.state.delete(Kind.POD, pod.uid)
            taken.append(replace(pod, node_name=None, nominated_node=None))
    gone: dict[str, None] = {pod.uid: None for pod in taken}
    for group in filter(None, map(inputs.state.pod_groups.of, taken)):
        if group.definition is not None and not group.scheduled_pods_count + len(group.terminating):
            gone[group.definition.uid] = None
    _free_claims(inputs.state, gone)
    return replace(inputs, pending=(*taken, *inputs.pending))


def _free_claims(state: ClusterState, gone: Collection[str]) -> None:
    """Free the claims of the pods and groups with uids in `gone` (pkg/controller/resourceclaim)."""
    claims = {
        claim.key: claim
        for uid in gone
        for claim in state.dynamic_resources.claims.reserved_for(uid)
    }
    for key, claim in claims.items():
        others = tuple(each for each in claim.reserved_for if each.uid not in gone)
        freed = replace(claim, reserved_for=others)
        if claim.for_extended_resources and claim.controller_uid in gone:
            state.delete(Kind.RESOURCE_CLAIM, key)
            continue
        if not others:
            freed = replace(freed, allocation=None, device_statuses=())
        state.put(Kind.RESOURCE_CLAIM, key, freed)


def _kind_and_name(owner: str) -> tuple[str, str]:
    kind, _, key = owner.partition(" ")
    return kind, key.partition("/")[2]
