"""Records scenes one after the other with one kube-scheduler, on its own control plane."""

import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from typing import Any, Final, Self

from conformance.recording.errors import RecordingError
from conformance.recording.log import FLAGS, SchedulerLog, scores
from conformance.recording.stage import Stage
from conformance.scenes.claims import POD_CLAIM_NAME
from conformance.scenes.cluster import Raw, Scene
from conformance.scenes.extenders import at_port
from conformance.scenes.profiles import PROFILES, STORAGE_PROFILES
from controlplane import ControlPlane
from controlplane.cluster import NEEDS_CONTROLLER_MANAGER
from controlplane.releases import chosen_release
from deterministic_extender import application
from http_servers import served_by_thread
from mooring.model.declared_features import (
    USER_NAMESPACES_HOST_NETWORK,
    VOLUME_BIND_MOUNT_OPTIONS,
)
from mooring.model.kubernetes_rules import minor_version, rules_of_server

_CONFIGURATION: Final = {
    "percentageOfNodesToScore": 100,
    "parallelism": 1,
    "clientConnection": {"qps": 5000, "burst": 5000},
}

_ADMISSION_OFF: Final = {*NEEDS_CONTROLLER_MANAGER, "StorageObjectInUseProtection"}
"""Its finalizers too would wait for a controller for ever."""

_VERDICT_SECONDS: Final = 20
_LOOK_AGAIN: Final = 0.02

_TAINT_RULES_SINCE: Final = (1, 37)
"""The minor version from which kube-scheduler tracks slices and DeviceTaintRules, and logs it."""

_FEATURES_BEHIND_GATES: Final = (USER_NAMESPACES_HOST_NETWORK, VOLUME_BIND_MOUNT_OPTIONS)
"""The features that pods can only ask for with the gates of their name, which are off by default.

They change nothing else that kube-scheduler decides.
"""


class Recorder:
    """Runs only etcd, kube-apiserver and kube-scheduler; use it as a context manager.

    `extenders` are for kube-scheduler's configuration; the recorder runs them, too.
    """

    def __init__(self, extenders: Sequence[Raw] = ()) -> None:
        self._extenders = extenders
        self._open = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as opening:
            rules = rules_of_server(chosen_release().version)
            gates = sorted(rules.declared_features.intersection(_FEATURES_BEHIND_GATES))
            nomination_gate = chosen_release().nomination_gate
            flags = {
                "kube-scheduler": [
                    *FLAGS,
                    *([f"--feature-gates={nomination_gate}=true"] if nomination_gate else ()),
                ],
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
        """Run the extenders; return their part of kube-scheduler's configuration."""
        if not self._extenders:
            return {}
        port = opening.enter_context(served_by_thread(application()))
        return {"extenders": at_port(self._extenders, port)}

    def record(self, scene: Scene) -> dict[str, Any]:
        """Return the stored scene and kube-scheduler's decision; remove the scene afterwards.

        Raises:
            RecordingError: kube-scheduler makes no decision, or does not log it.
        """
        self._log.forget()
        self._stage.store(scene.objects)
        self._log.wait_for(_arrivals(scene))
        objects = self._stage.stored()
        pod = self._stage.create(scene.pod)
        if any("resourceClaimTemplateName" in entry for entry in _entries(pod)):
            pod, made = self._with_claims(pod, scene.made)
            objects += made
        pod["metadata"].pop("managedFields", None)
        has_devices = any(raw["kind"] == "ResourceSlice" for raw in objects)
        oracle = self._oracle(pod, devices=has_devices and _uses_devices(pod))
        self._clear(scene, bound=oracle["node"] is not None)
        return {
            "kubernetes": chosen_release().version,
            "objects": objects,
            "oracle": oracle,
            "pod": pod,
            "profile": scene.profile,
            **({"extenders": scene.extenders} if scene.extenders else {}),
        }

    def _with_claims(self, pod: Raw, claims: Sequence[Raw]) -> tuple[Raw, list[Raw]]:
        """Return the pod, and the claims created for it as the claim controller does.

        kube-scheduler ignores the pod until its status names these claims.
        """
        owner = {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": pod["metadata"]["name"],
            "uid": pod["metadata"]["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
        made, names = [], {}
        for raw in claims:
            metadata = {**raw["metadata"], "ownerReferences": [owner]}
            created = self._stage.create({**raw, "metadata": metadata})
            created["metadata"].pop("managedFields", None)
            made.append(created)
            names[metadata["annotations"][POD_CLAIM_NAME]] = metadata["name"]
        statuses = [
            {"name": name} | ({"resourceClaimName": names[name]} if name in names else {})
            for entry in _entries(pod)
            if "resourceClaimTemplateName" in entry and (name := entry["name"])
        ]
        return self._stage.set_status(pod, {"resourceClaimStatuses": statuses}), made

    def _oracle(self, pod: Raw, *, devices: bool) -> dict[str, Any]:
        key = _key(pod)
        decided = self._verdict(pod, devices=devices)
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
            **({"claims": claims} if devices and (claims := self._claims(pod, decided)) else {}),
        }

    def _claims(self, pod: Raw, decided: Raw) -> dict[str, Raw]:
        """Return the pod's claims by name as kube-scheduler wrote them; {} without a node."""
        if not (decided["spec"].get("nodeName") or _waits(decided)):
            return {}
        uid, named = pod["metadata"]["uid"], set(_claim_names(pod))
        found = {}
        for raw in self._stage.claims():
            metadata, status = raw["metadata"], raw.get("status", {})
            written = {"finalizers": metadata.get("finalizers", []), "status": status}
            if metadata["name"] in named:
                found[metadata["name"]] = written
            elif uid in (each["uid"] for each in status.get("reservedFor", ())):
                kept = ("annotations", "generateName", "ownerReferences")
                written |= {key: metadata[key] for key in kept} | {"spec": raw["spec"]}
                mapped = decided["status"].get("extendedResourceClaimStatus", {})
                written["requestMappings"] = mapped.get("requestMappings")
                found[metadata["name"]] = written
        return found

    def _verdict(self, pod: Raw, *, devices: bool) -> Raw:
        """Return the first version of the pod that is bound, rejected, or waiting on a node.

        A pod waits on a node for a volume, or for `devices` with binding conditions.
        """
        metadata = pod["metadata"]
        events = self._client.watch(
            f"/api/v1/namespaces/{metadata['namespace']}/pods?watch=1"
            f"&fieldSelector=metadata.name%3D{metadata['name']}"
            f"&resourceVersion={metadata['resourceVersion']}&timeoutSeconds={_VERDICT_SECONDS}"
        )
        with closing(events):
            for event in events:
                seen: Raw = event["object"]
                if seen["spec"].get("nodeName") or _condition(seen):
                    return seen
                if _waits(seen) and (not devices or self._waits_for_devices(pod)):
                    return seen
        raise RecordingError(
            f"kube-scheduler decided nothing about {_key(pod)} within {_VERDICT_SECONDS} s"
        )

    def _waits_for_devices(self, pod: Raw) -> bool:
        """Wait until the pod's claims are written; return True if it waits for binding conditions.

        Returns False once the pod is bound or rejected.
        """
        deadline = time.monotonic() + _VERDICT_SECONDS
        while time.monotonic() < deadline:
            names = set(_claim_names(pod))
            mine = [raw for raw in self._stage.claims() if raw["metadata"]["name"] in names]
            if mine and all(_is_reserved(raw, pod) for raw in mine) and any(map(_binds, mine)):
                return True
            seen = self._stage.read(pod)
            if seen["spec"].get("nodeName") or _condition(seen):
                return False
            time.sleep(_LOOK_AGAIN)
        return False

    def _clear(self, scene: Scene, *, bound: bool) -> None:
        # kube-scheduler makes claims too, for extended resources.
        self._stage.remove([*scene.objects, *self._stage.claims()])
        names = [raw["metadata"]["name"] for raw in scene.objects if raw["kind"] == "Node"]
        place = "scheduled" if bound else "unscheduled"
        gone = [("Delete event for node", name) for name in names]
        gone += [("ResourceSlice deleted", name) for name in _slices(scene)]
        self._log.wait_for([*gone, (f"Delete event for {place} pod", _key(scene.pod))])


def _arrivals(scene: Scene) -> list[tuple[str, str]]:
    """Return the log entries by which kube-scheduler shows that it has seen the whole scene."""
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
    """Return the names of the slices whose arrival kube-scheduler logs.

    Returns [] for versions without device taint rules. For these, slices are stored before the
    nodes, whose arrival is logged.
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


def _uses_devices(pod: Raw) -> bool:
    """Return whether the pod may need devices, by claims or as extended resources."""
    containers = [*pod["spec"]["containers"], *pod["spec"].get("initContainers", ())]
    limits = (each.get("resources", {}).get("limits", {}) for each in containers)
    extended = any("/" in name for each in limits for name in each)
    return extended or bool(_entries(pod))


def _entries(pod: Raw) -> list[Raw]:
    entries: list[Raw] = pod["spec"].get("resourceClaims", [])
    return entries


def _claim_names(pod: Raw) -> list[str]:
    """Return the names of all claims of the pod, including claims made from templates."""
    entries = [*_entries(pod), *pod["status"].get("resourceClaimStatuses", ())]
    return [each["resourceClaimName"] for each in entries if "resourceClaimName" in each]


def _is_reserved(claim: Raw, pod: Raw) -> bool:
    consumers = claim.get("status", {}).get("reservedFor", ())
    return any(each["uid"] == pod["metadata"]["uid"] for each in consumers)


def _binds(claim: Raw) -> bool:
    """Return whether some of the claim's devices have conditions that are not met."""
    status = claim["status"]
    met = {
        (each["device"], condition["type"])
        for each in status.get("devices", ())
        for condition in each.get("conditions", ())
        if condition["status"] == "True"
    }
    return any(
        (each["device"], kind) not in met
        for each in status["allocation"]["devices"]["results"]
        for kind in each.get("bindingConditions", ())
    )


def _nominated(pod: Raw) -> str | None:
    node: str | None = pod["status"].get("nominatedNodeName")
    return node


def _waits(pod: Raw) -> bool:
    """Return whether the pod waits on a node before its binding, and not for victims."""
    return _nominated(pod) is not None and _condition(pod) is None


def _is_victim(raw: Raw) -> bool:
    conditions = raw.get("status", {}).get("conditions", ())
    return raw["kind"] == "Pod" and any(c["type"] == "DisruptionTarget" for c in conditions)


def _key(raw: Raw) -> str:
    return f"{raw['metadata']['namespace']}/{raw['metadata']['name']}"
