"""Pods with fixed names that need more than cpu: cards, devices, volumes or neighbours.

Each kind has its names; a name returns again and again with another uid and other requests. All
these pods fit at once when the other pods have gone. Only the kind that evicts strictly preempts,
because the auditor judges victims by requests alone.
"""

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from controlplane import ControlPlane
from controlplane.nodes import node_object
from device_builders import device_claim, device_class, resource_slice
from e2e.replicas import PROFILES, pod
from faults.books import CONSTRAINED, GPU_COUNT, GPU_MEMORY, PROTECTED
from policies import profile
from storage_builders import pv, pvc, storage_class

Raw = dict[str, Any]

DEDICATED: Final = "dedicated"
"""The key of the taint of nodes with cards or disks, and of the label that selects them."""
GROUP, MINIMUM = "example.com/group", "example.com/minimum"
CARD: Final = 16
CARDS: Final = 2
DISK_CLASS: Final = "disks"
DEVICE_CLASS: Final = "soak"
RESOURCES: Final = "/apis/resource.k8s.io/v1"
CLAIMS: Final = f"{RESOURCES}/namespaces/{{}}/resourceclaims"
BUDGET: Final = "protected"
NEVER: Final = "never"
"""A priority class whose pods never preempt."""

GPUS: Final = tuple(f"gpu-{number}" for number in range(4))
DISK_NODES: Final = tuple(f"disk-{number}" for number in range(3))
NODES: Final = (*GPUS, *DISK_NODES)

GANGS: Final = tuple(tuple(f"ring-{gang}-{n}" for n in range(3)) for gang in range(3))
SHARES: Final = tuple(f"share-{number}" for number in range(4))
DISKS: Final = tuple(f"db-{number}" for number in range(4))
DEVICES: Final = tuple(f"device-{number}" for number in range(5))
"""Pods with a claim of the same name for a device; each node with disks has two devices."""
PLACED_APART: Final = (*(f"apart-{n}" for n in range(4)), *(f"near-{n}" for n in range(4)))
EXTENDED: Final = tuple(f"extended-{number}" for number in range(6))
HELD: Final = tuple(f"held-{number}" for number in range(6))

_PLUGIN: Final = '''
import asyncio
from collections import OrderedDict
from mooring.framework.verdicts import Wait

class Hold:
    """Has every pod wait for half a second; one in four is not allowed at its first attempt."""

    name = "Hold"
    depends_on_node_only = True

    def __init__(self, args, handle):
        self._waiting = handle.waiting_pods
        self._seen = OrderedDict()

    def permit(self, pod, node):
        first = pod.uid not in self._seen
        self._seen[pod.uid] = None
        if len(self._seen) > 1000:
            self._seen.popitem(last=False)
        if first and pod.uid[0] in "0123":
            return Wait(1.0)
        loop = asyncio.get_running_loop()
        loop.call_later(0.5, self._waiting.allow, pod.uid, self.name)
        return Wait(30.0)
'''


def install_plugin(folder: Path, source: str = _PLUGIN) -> Path:
    """Install a package that announces the plugin Hold of the source; return its folder."""
    info = folder / "soak_hold-1.0.dist-info"
    info.mkdir(parents=True)
    (folder / "soak_hold.py").write_text(source)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: soak-hold\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[mooring.plugins]\nHold = soak_hold:Hold\n")
    return folder


def put_profiles(plane: ControlPlane, extender_port: int) -> None:
    """Create the profiles, a storage class and a priority class for all these pods."""
    cards = [{"name": name} for name in ("GPUShare", "GPUTopology", "GPUFragmentation")]
    groups = {"podGroupLabels": [{"name": GROUP, "minimum": MINIMUM}]}
    extender = {
        "urlPrefix": f"http://127.0.0.1:{extender_port}",
        "filterVerb": "filter",
        "prioritizeVerb": "prioritize",
        "weight": 1,
        "nodeCacheCapable": True,
    }
    specs: Mapping[str, Raw] = {
        "gpus": {
            "plugins": {"multiPoint": {"enabled": cards}},
            "pluginConfig": [{"name": "GangScheduling", "args": groups}],
        },
        "extended": {"extenders": [extender]},
        "held": {"plugins": {"permit": {"enabled": [{"name": "Hold"}]}}},
        "strict": {"preemption": {"disruptionBudgets": "Strict"}},
    }
    never = {"metadata": {"name": NEVER}, "value": 50, "preemptionPolicy": "Never"}
    with plane.access.client() as client:
        for name, spec in specs.items():
            client.post(PROFILES, profile(name, **spec))
        client.post("/apis/storage.k8s.io/v1/storageclasses", storage_class(DISK_CLASS))
        client.post(f"{RESOURCES}/deviceclasses", _new(device_class(DEVICE_CLASS)))
        for name in DISK_NODES:
            raw = resource_slice(name, ["d0", "d1"], node=name)
            client.post(f"{RESOURCES}/resourceslices", _new(raw))
        client.post("/apis/scheduling.k8s.io/v1/priorityclasses", never)


def special_node(name: str) -> Raw:
    """Return a node with cards or disks, only for pods that select it."""
    capacity = {"cpu": "16", "memory": "32Gi", "pods": "110"}
    use = name.partition("-")[0]
    if name in GPUS:
        capacity |= {GPU_MEMORY: str(CARDS * CARD), GPU_COUNT: str(CARDS)}
    raw = node_object(name, "zone-0", capacity, {DEDICATED: use})
    return raw | {"spec": {"taints": [{"key": DEDICATED, "value": use, "effect": "NoSchedule"}]}}


def constrained_pod(name: str, draw: random.Random) -> Raw:
    """Return the pod of this name, with random requests."""
    kind = name.partition("-")[0]
    cpu = draw.choice(("100m", "250m", "500m"))
    if kind in {"ring", "share"}:
        return _gpu_pod(name, kind, cpu, draw)
    fields: Mapping[str, Raw] = {
        "device": {**_dedicated("disk"), "resourceClaims": [_entry(name)]},
        "db": {**_dedicated("disk"), "volumes": [_volume(claim_of(name))]},
        "apart": {"affinity": _affinity("podAntiAffinity", "kubernetes.io/hostname")},
        "near": {"affinity": _affinity("podAffinity", "topology.kubernetes.io/zone")},
        "extended": {"scheduler": "extended"},
        "held": {"scheduler": "held"},
    }
    return _never_evicting(name, cpu, **fields[kind])


def _gpu_pod(name: str, kind: str, cpu: str, draw: random.Random) -> Raw:
    memory = draw.choice((4, 8)) if kind == "ring" else draw.choice((2, 4, 6))
    amounts = {GPU_MEMORY: str(memory)}
    fields = {"scheduler": "gpus", "requests": amounts, "limits": amounts, **_dedicated("gpu")}
    raw = _never_evicting(name, cpu, **fields)
    if kind == "ring":
        members = next(gang for gang in GANGS if name in gang)
        raw["metadata"]["labels"][GROUP] = name.rpartition("-")[0]
        raw["metadata"]["annotations"] = {MINIMUM: str(len(members))}
    return raw


def _never_evicting(name: str, cpu: str, **fields: Any) -> Raw:
    labels = {CONSTRAINED: "", "kind": name.partition("-")[0]}
    return pod(
        name,
        cpu=cpu,
        labels=labels,
        priorityClassName=NEVER,
        terminationGracePeriodSeconds=0,
        **fields,
    )


def _dedicated(use: str) -> Raw:
    toleration = {"key": DEDICATED, "operator": "Equal", "value": use, "effect": "NoSchedule"}
    return {"nodeSelector": {DEDICATED: use}, "tolerations": [toleration]}


def _affinity(kind: str, key: str) -> Raw:
    """Return an affinity to, or an anti-affinity from, pods with names that begin with `apart`."""
    term = {"labelSelector": {"matchLabels": {"kind": "apart"}}, "topologyKey": key}
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


# Volumes


def claim_of(name: str) -> str:
    """Return the name of the pod's claim, in a StatefulSet's form."""
    return f"data-{name}"


def _volume(claim: str) -> Raw:
    return {"name": "data", "persistentVolumeClaim": {"claimName": claim}}


def disk(name: str, namespace: str, draw: random.Random) -> Sequence[tuple[str, Raw]]:
    """Return paths and objects of a local volume on a random node, and of a claim for it."""
    source = {"local": {"path": f"/mnt/{name}"}}
    node = draw.choice(DISK_NODES)
    volume = pv(f"pv-{name}", nodes=[node], storage_class=DISK_CLASS, spec=source)
    claim = pvc(claim_of(name), namespace=namespace, storage_class=DISK_CLASS)
    claims = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"
    return (("/api/v1/persistentvolumes", volume), (claims, claim))


# Devices


def device_object(name: str, namespace: str) -> tuple[str, Raw]:
    """Return path and object of the claim of the pod with this name."""
    wanted = {"deviceClassName": DEVICE_CLASS, "allocationMode": "ExactCount", "count": 1}
    raw = device_claim(name, {"name": "r", "exactly": wanted}, namespace=namespace)
    return CLAIMS.format(namespace), _new(raw)


def _entry(claim: str) -> Raw:
    return {"name": "gpu", "resourceClaimName": claim}


def _new(raw: Raw) -> Raw:
    """Return the object without the fields that the server sets."""
    return {**raw, "metadata": {"name": raw["metadata"]["name"]}}


# Budgets


def budget(namespace: str) -> tuple[str, Raw]:
    """Return path and object of the budget for all protected pods."""
    selector = {"matchExpressions": [{"key": PROTECTED, "operator": "Exists"}]}
    raw = {"metadata": {"name": BUDGET}, "spec": {"maxUnavailable": 1, "selector": selector}}
    return f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets", raw
