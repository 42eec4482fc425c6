"""Tenants that send hostile objects, as far as the API server would accept them."""

from typing import TYPE_CHECKING, Any, Final

from faults.books import CONSTRAINED
from mooring.kube.api_resources import NAMESPACE as NAMESPACES
from mooring.kube.api_resources import POD, POD_DISRUPTION_BUDGET, POD_GROUP, SERVICE
from mooring.testing.builders import namespace, pdb, pod, pod_group, service
from pod_terms import spread_evenly
from simulation.scenario import SCHEDULER, Actor, Plan, Step

if TYPE_CHECKING:
    from simulation.storage import Raw
    from simulation.world import World


_TENANT: Final = "tenant"
_LARGE: Final = {f"key-{number:04}": "v" * 60 for number in range(300)}
_SPREAD: Final = [spread_evenly({"a": "b"}, f"key-{number}") for number in range(30)]
_SPECS: Final[tuple[dict[str, Any], ...]] = (
    {"containers": [{"name": "c", "resources": {"requests": {"cpu": "9" * 40}}}]},
    {"containers": [{"name": "c"}] * 200},
    {"nodeSelector": _LARGE},
    {"topologySpreadConstraints": _SPREAD},
    {"priority": 2**31 - 1, "nodeSelector": {"no": "where"}},
    {"schedulingGroup": {"podGroupName": "not-there"}},
    {"schedulingGroup": {"podGroupName": "many"}},
    {"schedulerName": SCHEDULER + "x"},
    {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "not-there"}}]},
    {"tolerations": [{"key": f"k{number}"} for number in range(500)]},
)
_METADATA: Final[tuple[dict[str, Any], ...]] = (
    {},
    {"labels": _LARGE},
    {"annotations": {"scheduling.mooring.dev/gpu-cards": "x" * 5_000}},
    {"annotations": {"scheduling.mooring.dev/topology-keys": ",".join(_LARGE)}},
    {"ownerReferences": [{"kind": "ReplicaSet", "name": "r", "uid": "r", "controller": True}] * 50},
)


class Tenants(Actor):
    """Sends hostile objects in some runs, changes them, and deletes them at the end."""

    name = "tenants"

    def draw(self, plan: Plan) -> None:
        """Draw the hostile objects and their times."""
        random = plan.random
        if plan.chance(0.6):
            return
        plan.step(0.0, self.name, "begin", budget=random.choice((None, 0, 1)))
        for number in range(random.randint(1, 12)):
            at = plan.time()
            what = {
                "spec": random.randrange(len(_SPECS)),
                "metadata": random.randrange(len(_METADATA)),
            }
            plan.step(at, self.name, "send", name=f"t{number}", **what)
            if plan.chance(0.5):
                later = at + random.choice((0.0, 0.01, 2.0))
                plan.step(later, self.name, "delete", name=f"t{number}")
            if plan.chance(0.2):
                plan.step(at + 1.0, self.name, "flood", name=f"t{number}", times=30)

    def act(self, world: "World", step: Step) -> None:
        server, args = world.server, step.args
        if step.does == "begin":
            server.create(NAMESPACES, namespace(_TENANT), self.name)
            minimum = 2**31 - 1
            server.create(POD_GROUP, pod_group("many", minimum, namespace=_TENANT), self.name)
            server.create(SERVICE, service("all", {}, namespace=_TENANT), self.name)
            if args["budget"] is not None:
                budget = pdb("all", {}, allowed=args["budget"], namespace=_TENANT)
                server.create(POD_DISRUPTION_BUDGET, budget, self.name)
            return
        if step.does == "send":
            server.create(POD, _pod(args), self.name)
            return
        found = server.storage.get(POD, args["name"], _TENANT)
        if found is None:
            return
        if step.does == "delete":
            server.delete(POD, found, self.name)
            return
        for number in range(args["times"]):
            patch = {"metadata": {"labels": {"turn": str(number)}}}
            found = server.change(POD, found, self.name, patch)

    def calm(self, world: "World") -> None:
        """Delete all hostile objects."""
        for resource in (POD, POD_GROUP, POD_DISRUPTION_BUDGET, SERVICE):
            for raw in world.server.storage.all(resource):
                if raw["metadata"]["namespace"] == _TENANT:
                    world.server.remove(resource, raw, self.name)


def _pod(args: Any) -> "Raw":
    """Return a pod with hostile fields."""
    labels = {CONSTRAINED: "by what it asks for"}
    raw = pod(args["name"], namespace=_TENANT, labels=labels, spec={"schedulerName": SCHEDULER})
    extra = dict(_METADATA[args["metadata"]])
    raw["metadata"] |= {**extra, "labels": {**extra.get("labels", {}), **labels}}
    raw["spec"] |= _SPECS[args["spec"]]
    return raw
