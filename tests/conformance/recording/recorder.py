"""Scene after scene before one kube-scheduler, in a control plane of its own."""

from collections.abc import Sequence
from contextlib import ExitStack, closing
from typing import Any, Final, Self

from conformance.recording.errors import RecordingError
from conformance.recording.log import FLAGS, SchedulerLog, scores
from conformance.recording.stage import Stage
from conformance.scenes.cluster import Raw, Scene
from conformance.scenes.extenders import at_port
from conformance.scenes.profiles import PROFILES, STORAGE_PROFILES
from controlplane import ControlPlane
from controlplane.cluster import NEEDS_CONTROLLER_MANAGER
from controlplane.releases import chosen_release
from deterministic_extender import application, served_by_thread
from mooring.kube.resources import RESOURCE_CLAIM
from mooring.model.declared_features import (
    USER_NAMESPACES_HOST_NETWORK,
    VOLUME_BIND_MOUNT_OPTIONS,
)
from mooring.model.kubernetes_rules import minor_version, rules_of_server

__all__ = ["Recorder"]

_CONFIGURATION: Final = {
    "percentageOfNodesToScore": 100,
    "parallelism": 1,
    "clientConnection": {"qps": 5000, "burst": 5000},
}

_ADMISSION_OFF: Final = {*NEEDS_CONTROLLER_MANAGER, "StorageObjectInUseProtection"}
"""Its finalizers too would wait for a controller for ever."""

_VERDICT_SECONDS: Final = 20

_TAINT_RULES_SINCE: Final = (1, 37)
"""The minor version from which kube-scheduler tracks slices and DeviceTaintRules, and logs it."""

_FEATURES_BEHIND_GATES: Final = (USER_NAMESPACES_HOST_NETWORK, VOLUME_BIND_MOUNT_OPTIONS)
"""The features that pods can only ask for with the gates of their name, which are off by default.

They change nothing else that kube-scheduler decides.
"""


class Recorder:
    """Use it as a context manager: etcd, kube-apiserver and kube-scheduler run inside, no more.

    `extenders` are those of kube-scheduler's configuration; they run inside too.
    """

    def __init__(self, extenders: Sequence[Raw] = ()) -> None:
        self._extenders = extenders
        self._open = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as opening:
            rules = rules_of_server(chosen_release().version)
            gates = sorted(rules.declared_features.intersection(_FEATURES_BEHIND_GATES))
            flags = {
                "kube-scheduler": FLAGS,
                "kube-apiserver": [f"--feature-gates={gate}=true" for gate in gates],
            }
            control_plane = opening.enter_context(
                ControlPlane(flags=flags, admission_off=_ADMISSION_OFF)
            )
            self._stage = opening.enter_context(Stage(control_plane.access))
            self._client = opening.enter_context(control_plane.access.client())
            profiles = PROFILES
            if rules.storage_capacity_scoring:
                profiles += STORAGE_PROFILES
            configuration = {**_CONFIGURATION, "profiles": profiles, **self._served(opening)}
            control_plane.start_scheduler(configuration)
            self._log = SchedulerLog(control_plane.logs["kube-scheduler"])
            opening.callback(self._log.close)
            self._open = opening.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def _served(self, opening: ExitStack) -> dict[str, Any]:
        """Return the part of the configuration that is about extenders."""
        if not self._extenders:
            return {}
        port = opening.enter_context(served_by_thread(application()))
        return {"extenders": at_port(self._extenders, port)}

    def record(self, scene: Scene) -> dict[str, Any]:
        """Return the scene as stored and what kube-scheduler decided; the scene is gone afterwards.

        Raises:
            RecordingError: when kube-scheduler does not decide, or does not say what it does.
        """
        self._log.forget()
        self._stage.store(scene.objects)
        self._log.wait_for(_arrivals(scene))
        objects = self._stage.stored()
        pod = self._stage.create(scene.pod)
        pod["metadata"].pop("managedFields", None)
        oracle = self._oracle(pod)
        self._clear(scene, bound=oracle["node"] is not None)
        return {
            "kubernetes": chosen_release().version,
            "objects": objects,
            "oracle": oracle,
            "pod": pod,
            "profile": scene.profile,
            **({"extenders": scene.extenders} if scene.extenders else {}),
        }

    def _oracle(self, pod: Raw) -> dict[str, Any]:
        key = _key(pod)
        decided = self._verdict(pod)
        condition, nominated = _condition(decided), _nominated(decided)
        victims: list[str] = []
        if nominated and condition:
            self._log.wait_for([("Async Preemption finished completely", key)])
            victims = [_key(other) for other in self._stage.stored() if _is_victim(other)]
        self._log.read()
        return {
            "condition": condition,
            "node": decided["spec"].get("nodeName"),
            "nominatedNode": nominated,
            "scores": scores(self._log.entries, key),
            "victims": victims,
            **({"claims": claims} if (claims := self._claims(pod, decided)) else {}),
        }

    def _claims(self, pod: Raw, decided: Raw) -> dict[str, Raw]:
        """Return finalizers and status of the pod's claims by name, once it is bound."""
        if not decided["spec"].get("nodeName"):
            return {}
        named = {each["resourceClaimName"] for each in pod["spec"].get("resourceClaims", ())}
        return {
            raw["metadata"]["name"]: {
                "finalizers": raw["metadata"].get("finalizers", []),
                "status": raw.get("status", {}),
            }
            for raw in (self._stage.stored() if named else ())
            if raw["kind"] == RESOURCE_CLAIM.kind and raw["metadata"]["name"] in named
        }

    def _verdict(self, pod: Raw) -> Raw:
        """Return the pod when first bound, refused, or left waiting for a volume on a node.

        A pod with claims for devices waits for nobody: it is bound once they are written.
        """
        metadata, waits = pod["metadata"], not pod["spec"].get("resourceClaims")
        events = self._client.watch(
            f"/api/v1/namespaces/{metadata['namespace']}/pods?watch=1"
            f"&fieldSelector=metadata.name%3D{metadata['name']}"
            f"&resourceVersion={metadata['resourceVersion']}&timeoutSeconds={_VERDICT_SECONDS}"
        )
        with closing(events):
            for event in events:
                seen: Raw = event["object"]
                nominated = waits and _nominated(seen)
                if seen["spec"].get("nodeName") or _condition(seen) or nominated:
                    return seen
        raise RecordingError(
            f"kube-scheduler decided nothing about {_key(pod)} within {_VERDICT_SECONDS} s"
        )

    def _clear(self, scene: Scene, *, bound: bool) -> None:
        self._stage.remove(scene.objects)
        names = [raw["metadata"]["name"] for raw in scene.objects if raw["kind"] == "Node"]
        place = "scheduled" if bound else "unscheduled"
        gone = [("Delete event for node", name) for name in names]
        gone += [("ResourceSlice deleted", name) for name in _slices(scene)]
        self._log.wait_for([*gone, (f"Delete event for {place} pod", _key(scene.pod))])


def _arrivals(scene: Scene) -> list[tuple[str, str]]:
    """Return what it logs when it has seen the scene's nodes, pods and slices in full."""
    expected = [("ResourceSlice added", name) for name in _slices(scene)]
    for raw in scene.objects:
        if raw["kind"] == "Node":
            expected.append(("Add event for node", raw["metadata"]["name"]))
        elif raw["kind"] == "Pod":
            expected.append(("Add event for scheduled pod", _key(raw)))
            changes = ("status" in raw) + ("deletionTimestamp" in raw["metadata"])
            # kube-scheduler watches pods that have not ended: for it, those that have are gone.
            change = "Delete" if _has_ended(raw) else "Update"
            expected += [(f"{change} event for scheduled pod", _key(raw))] * changes
    return expected


def _slices(scene: Scene) -> list[str]:
    """Return the slices of which kube-scheduler logs events: none, unless it has taint rules.

    Where it has not, slices are stored before the nodes of which it does log.
    """
    if (minor_version(chosen_release().version) or ()) < _TAINT_RULES_SINCE:
        return []
    return [raw["metadata"]["name"] for raw in scene.objects if raw["kind"] == "ResourceSlice"]


def _has_ended(pod: Raw) -> bool:
    return pod.get("status", {}).get("phase") in {"Succeeded", "Failed"}


def _condition(pod: Raw) -> dict[str, Any] | None:
    for condition in pod["status"].get("conditions", ()):
        if condition["type"] == "PodScheduled":
            return {name: condition.get(name) for name in ("message", "reason", "status")}
    return None


def _nominated(pod: Raw) -> str | None:
    node: str | None = pod["status"].get("nominatedNodeName")
    return node


def _is_victim(raw: Raw) -> bool:
    conditions = raw.get("status", {}).get("conditions", ())
    return raw["kind"] == "Pod" and any(c["type"] == "DisruptionTarget" for c in conditions)


def _key(raw: Raw) -> str:
    return f"{raw['metadata']['namespace']}/{raw['metadata']['name']}"
