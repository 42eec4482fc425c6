"""A subject: devices with attributes and taints, and pods that get devices as extended resources.

A class stands for an extended resource; a replica creates a claim for it when it binds the pod.
Other claims have selectors or tolerations, and several pods may share a claim. Claims may share
devices of one model while its memory lasts. `Devices` has the controller that frees and deletes
claims.
"""

from typing import TYPE_CHECKING, Any, Final

from device_builders import (
    DRIVER,
    device,
    device_claim,
    device_class,
    request,
    resource_slice,
)
from faults.books import CONSTRAINED
from mooring.kube.api_resources import DEVICE_CLASS, NODE, POD, RESOURCE_CLAIM, RESOURCE_SLICE
from mooring.testing.builders import pod
from simulation.scenario import NAMESPACE, SCHEDULER, Actor, Plan, Step

if TYPE_CHECKING:
    from simulation.storage import Raw
    from simulation.world import World


EXTENDED: Final = "example.com/gpu"
"""The extended resource that the class stands for."""
SHARED: Final = "s"
"""The model of the devices that several claims may have, each some of its memory."""
MEMORY: Final = 8
"""How many Gi a shared device has."""
_CLASS: Final = "gpu"
_SHARED_CLASS: Final = "shared"
_MODEL: Final = f'device.attributes["{DRIVER}"].model'
_TAINT: Final = {"key": "sick", "effect": "NoSchedule"}
_TOLERATION: Final = {"key": "sick", "operator": "Exists"}
_WRITES: Final = (
    *("create resourceclaims", "patch status of resourceclaims", "patch resourceclaims"),
    *("patch status of pods", "bind", "bind", "bind", "delete resourceclaims"),
)
_OUTCOMES: Final = (
    *("lost", "answer lost", "unavailable", "failed", "failed for now", "quota"),
    *("timed out late", "overloaded", "gone before", "kills"),
)


class Accelerators(Actor):
    """The driver, the users' claims, and the pods."""

    name = "accelerators"

    def draw(self, plan: Plan) -> None:
        """Draw devices, then pods of both kinds, and faults while claims are written."""
        random = plan.random
        if plan.subject != self.name:
            return
        sharing = plan.chance(0.35)
        for name in plan.nodes[: 1 if sharing else 3]:
            rest = {"pods": 20, "zone": random.choice("ab"), "cards": 0}
            plan.step(0.0, "nodes", "create", name=name, cpu=8, **rest)
            models = [random.choice("aabs") for _ in range(random.choice((1, 2, 3)))]
            models = [SHARED] * random.choice((1, 1, 2)) if sharing else models
            sick = [index for index in range(len(models)) if plan.chance(0.2)]
            plan.step(0.0, self.name, "driver", node=name, models=models, sick=sick)
        for number in range(random.randint(2, 6)):
            at, name = plan.time(), f"e{number}"
            if not sharing and plan.chance(0.6):
                count = random.choice((1, 1, 2))
                plan.step(at, self.name, "extended", name=name, count=count)
            else:
                model, tolerates = random.choice(("", "a", "b", SHARED)), plan.chance(0.4)
                model = SHARED if sharing else model
                pods = random.choice((1, 1, 2))
                wants = {"model": model, "tolerates": tolerates, "count": random.choice((1, 2))}
                if model == SHARED:
                    wants |= {"count": 1, "memory": random.choice((1, 3, 4, 6))}
                plan.step(at, self.name, "claim", name=name, pods=pods, **wants)
            for _ in range(random.choice((0, 1, 1, 2))):
                later = at + random.expovariate(1.0) * random.choice((0.1, 4.0))
                does = random.choice(("delete", "remove"))
                plan.step(later, self.name, does, name=name)
        for _ in range(random.choice((1, 2, 3))):
            outcome = random.choice(_OUTCOMES)
            times = 1 if outcome in {"gone before", "kills"} else random.choice((1, 2, 5))
            rule = {"what": random.choice(_WRITES), "replica": "", "times": times}
            seconds = {"seconds": random.choice((0.1, 2.0)), "lasts": random.choice((5.0, 20.0))}
            plan.step(plan.time(), "faults", "requests", outcome=outcome, **rule, **seconds)

    def act(self, world: "World", step: Step) -> None:
        getattr(self, f"_{step.does}")(world, **step.args)

    def _driver(self, world: "World", node: str, models: list[str], sick: list[int]) -> None:
        dedicated = f'{_MODEL} != "{SHARED}"'
        stands_for = device_class(_CLASS, dedicated, extendedResourceName=EXTENDED)
        world.server.create(DEVICE_CLASS, stands_for, self.name)
        world.server.create(DEVICE_CLASS, device_class(_SHARED_CLASS), self.name)
        capacity = {"memory": {"value": f"{MEMORY}Gi"}}
        shared = {"capacity": capacity, "allowMultipleAllocations": True}
        devices = [
            device(
                f"d{index}",
                attributes={"model": model},
                **({"taints": [_TAINT]} if index in sick else {}),
                **(shared if model == SHARED else {}),
            )
            for index, model in enumerate(models)
        ]
        if world.server.storage.get(NODE, node) is not None:
            raw = resource_slice(node, devices, node=node)
            world.server.create(RESOURCE_SLICE, raw, self.name)

    def _extended(self, world: "World", name: str, count: int) -> None:
        raw = pod(
            f"{name}-0",
            namespace=NAMESPACE,
            cpu="100m",
            requests={EXTENDED: count},
            labels={CONSTRAINED: "by its devices", "extended": str(count)},
            spec={"schedulerName": SCHEDULER},
        )
        world.server.create(POD, raw, self.name)

    def _claim(
        self,
        world: "World",
        name: str,
        pods: int,
        model: str,
        count: int,
        *,
        tolerates: bool,
        memory: int = 0,
    ) -> None:
        fields: dict[str, Any] = {}
        if model:
            fields["selectors"] = [{"cel": {"expression": f'{_MODEL} == "{model}"'}}]
        if tolerates:
            fields["tolerations"] = [_TOLERATION]
        if memory:
            fields["capacity"] = {"requests": {"memory": f"{memory}Gi"}}
        device_class = _SHARED_CLASS if model == SHARED else _CLASS
        wanted = request(count=count, device_class=device_class, **fields)
        raw = device_claim(name, wanted, namespace=NAMESPACE)
        labels = {"model": model, "tolerates": "yes" if tolerates else "no", "memory": str(memory)}
        raw["metadata"]["labels"] = labels
        world.server.create(RESOURCE_CLAIM, raw, self.name)
        for index in range(pods):
            entry = {"name": "gpu", "resourceClaimName": name}
            raw = pod(
                f"{name}-{index}",
                namespace=NAMESPACE,
                cpu="100m",
                labels={CONSTRAINED: "by its devices", "wanted": str(count)},
                spec={"schedulerName": SCHEDULER, "resourceClaims": [entry]},
            )
            world.server.create(POD, raw, self.name)

    def _delete(self, world: "World", name: str) -> None:
        raw = world.server.storage.get(POD, f"{name}-0", NAMESPACE)
        if raw is not None:
            world.server.delete(POD, raw, self.name)

    def _remove(self, world: "World", name: str) -> None:
        raw = world.server.storage.get(POD, f"{name}-0", NAMESPACE)
        if raw is not None:
            world.server.remove(POD, raw, self.name)


def suits(claim: "Raw", one: "Raw") -> bool:
    """Return whether the claim's selector and tolerations accept the device."""
    labels = claim["metadata"].get("labels") or {}
    model = (one.get("attributes") or {}).get("model", {}).get("string", "")
    wanted = labels.get("model", "")
    is_wanted = wanted == model or (not wanted and model != SHARED)
    return is_wanted and (not one.get("taints") or labels.get("tolerates") == "yes")


def wanted_memory(claim: "Raw") -> int:
    """Return the Gi of a shared device that the claim requests; 0 if it requests whole devices."""
    return int((claim["metadata"].get("labels") or {}).get("memory", 0))
