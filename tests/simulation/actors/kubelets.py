"""The kubelets run bound pods and end terminating pods; the collector deletes lost pods."""

from typing import TYPE_CHECKING, Final

from mooring.kube.api_resources import NODE, POD
from mooring.kube.timestamps import rfc3339
from simulation.actors.strangers import HANGS
from simulation.api_server import EPOCH
from simulation.scenario import Actor

if TYPE_CHECKING:
    from simulation.storage import Change, Raw
    from simulation.world import World


_LOST_SECONDS: Final = 5.0
"""Pods whose node has gone are deleted after so long; Kubernetes takes 40 seconds."""


class Kubelets(Actor):
    """The kubelets of all nodes, and the pod garbage collector."""

    name = "kubelets"

    def changed(self, world: "World", change: "Change") -> None:
        """Run a pod after its binding; remove a pod that terminates."""
        if change.resource is NODE and change.after is None:
            world.after(_LOST_SECONDS, lambda: self._collect(world, change.object))
        if change.resource is not POD or change.after is None:
            return
        raw = change.after
        if not raw["spec"].get("nodeName"):
            return
        uid = raw["metadata"]["uid"]
        if change.what == "bind":
            world.after(world.random.uniform(0.05, 1.0), lambda: self._run(world, raw, uid))
            world.after(_LOST_SECONDS, lambda: self._collect_pod(world, raw))
        was_leaving = "deletionTimestamp" in ((change.before or {}).get("metadata") or {})
        if "deletionTimestamp" in raw["metadata"] and not was_leaving:
            hangs = float((raw["metadata"].get("labels") or {}).get(HANGS, 0.0))
            seconds = world.random.uniform(0.1, 3.0) + (0.0 if world.is_calm else hangs)
            world.after(seconds, lambda: self._remove(world, raw, uid))

    def _run(self, world: "World", raw: "Raw", uid: str) -> None:
        if (pod := _found(world, raw, uid)) is not None and pod["status"]["phase"] == "Pending":
            started = rfc3339(EPOCH + world.timeline.now)
            running = {"status": {"phase": "Running", "startTime": started}}
            world.server.change(POD, pod, self.name, running)

    def _remove(self, world: "World", raw: "Raw", uid: str) -> None:
        if (pod := _found(world, raw, uid)) is not None:
            world.server.remove(POD, pod, self.name)

    def _collect(self, world: "World", node: "Raw") -> None:
        """Delete the pods of a deleted node."""
        name = node["metadata"]["name"]
        for pod in world.server.storage.all(POD):
            if pod["spec"].get("nodeName") == name:
                self._collect_pod(world, pod)

    def _collect_pod(self, world: "World", raw: "Raw") -> None:
        pod = _found(world, raw, raw["metadata"]["uid"])
        if pod is None or world.server.storage.get(NODE, pod["spec"]["nodeName"]) is not None:
            return
        world.server.remove(POD, pod, self.name)


def _found(world: "World", raw: "Raw", uid: str) -> "Raw | None":
    """Return the pod's current version; None if it is gone."""
    metadata = raw["metadata"]
    pod = world.server.storage.get(POD, metadata["name"], metadata["namespace"])
    return pod if pod is not None and pod["metadata"]["uid"] == uid else None
