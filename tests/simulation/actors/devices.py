"""Pods with ResourceClaims: drivers publish slices, tenants create claims, a controller frees them.

The controller works like kube-controller-manager's (`pkg/controller/resourceclaim/controller.go`):
it creates claims from templates, removes ended consumers, frees unused claims, and deletes claims
that it created for deleted pods.
"""

from typing import TYPE_CHECKING, Any, Final

from device_builders import device_claim, device_class, request, resource_slice
from faults.books import CONSTRAINED
from mooring.claims.model.resource_claims import FINALIZER
from mooring.kube.api_resources import DEVICE_CLASS, NODE, POD, RESOURCE_CLAIM, RESOURCE_SLICE
from mooring.testing.builders import pod
from simulation.network import Outcome
from simulation.scenario import NAMESPACE, SCHEDULER, Actor, Plan, Step

if TYPE_CHECKING:
    from simulation.storage import Change, Raw
    from simulation.world import World


_CLASS: Final = "gpu"
_ENTRY: Final = "gpu"
"""How pods call their claim."""
_TEMPLATE: Final = "template"
"""The name of a template: the controller of the simulation knows it by its pods."""
_SHARED: Final = "shared"
_WRITES: Final = (
    *("patch status of resourceclaims", "patch status of resourceclaims"),
    *("patch resourceclaims", "get resourceclaims", "watch resourceclaims"),
    *("bind", "bind"),
)
_OUTCOMES: Final = (
    *(Outcome.LOST, Outcome.ANSWER_LOST, Outcome.UNHEARD, Outcome.ANSWER_UNHEARD, Outcome.SLOW),
    *(Outcome.ANSWER_SLOW, Outcome.OVERLOADED, Outcome.UNAVAILABLE, Outcome.FAILED),
    *(Outcome.KILLS, Outcome.KILLS_FIRST, Outcome.STALLS, Outcome.QUOTA, Outcome.QUOTA),
)
_ONCE: Final = (Outcome.KILLS, Outcome.KILLS_FIRST, Outcome.STALLS)


class Devices(Actor):
    """Devices of nodes, pods with claims for devices, and both controllers.

    A slice belongs to its node: it goes with the node, and a returning node has a new slice. A
    claim is made from a template for one pod, or is shared by the pods of a step.

    Attributes:
        allocated: By claim uid, the last change that allocated devices to the claim.
        gone_at: By claim name, when a claim was last deleted.
    """

    name = "devices"

    def __init__(self) -> None:
        self.allocated: dict[str, Change] = {}
        self.gone_at: dict[str, float] = {}
        self._counts: dict[str, int] = {}
        """By node, how many devices its driver has."""
        self._published = 0
        self._made = 0

    def draw(self, plan: Plan) -> None:
        """Draw devices, pods with claims, and faults while claims are written."""
        random = plan.random
        if plan.chance(0.7):
            return
        counts = {name: random.choice((0, 1, 2, 2, 4)) for name in plan.nodes}
        plan.step(0.0, self.name, "drivers", counts=counts)
        for number in range(random.randint(1, 5)):
            at, name = plan.time(), f"d{number}"
            kind = random.choice((_TEMPLATE, _TEMPLATE, _SHARED))
            fields = {"kind": kind, "wanted": random.choice((1, 1, 1, 2))}
            fields |= {"cpu": random.choice(("100m", "1", "2"))}
            count = random.choice((1, 2, 3))
            plan.step(at, self.name, "create", name=name, count=count, **fields)
            for _ in range(random.choice((0, 1, 2, 4))):
                later = at + random.expovariate(1.0) * random.choice((0.02, 0.3, 5.0))
                does = random.choice(("delete", "remove", "return", "finish", "unclaim"))
                index = random.randrange(count)
                plan.step(later, self.name, does, name=name, index=index, **fields)
        for _ in range(random.choice((0, 0, 1, 2))):
            node, count = random.choice(plan.nodes), random.choice((0, 1, 2, 4))
            plan.step(plan.time(), self.name, "publish", node=node, count=count)
        for _ in range(random.choice((0, 1, 2, 4))):
            self._draw_fault(plan)

    def _draw_fault(self, plan: Plan) -> None:
        random, at = plan.random, plan.time()
        if plan.chance(0.3):
            plural = random.choice(("resourceclaims", "resourceclaims", "resourceslices"))
            of = {"replica": "", "plural": plural, "agent": "mooring"}
            does = random.choice(("stall", "half open", "break watches", "expire", "repeat"))
            rest = {"seconds": random.choice((0.5, 3.0, 12.0))} if does == "stall" else {}
            plan.step(at, "faults", does, **of, **rest)
            return
        outcome = random.choice(_OUTCOMES)
        plan.step(
            at,
            "faults",
            "requests",
            outcome=str(outcome),
            what=random.choice(_WRITES),
            replica="",
            times=1 if outcome in _ONCE else random.choice((1, 2, 5)),
            seconds=random.choice((0.1, 1.0, 4.0)),
            lasts=random.choice((5.0, 20.0)),
        )

    def act(self, world: "World", step: Step) -> None:
        args = step.args
        if step.does == "drivers":
            self._counts = dict(args["counts"])
            world.server.create(DEVICE_CLASS, device_class(_CLASS), self.name)
            self._publish(world)
        elif step.does == "publish":
            self._counts[args["node"]] = args["count"]
            self._publish(world)
        elif step.does == "create":
            self._claim(world, args)
            for index in range(args["count"]):
                self._pod(world, args, index)
        elif step.does == "unclaim":
            self._unclaim(world, args)
        else:
            self._do(world, step.does, args)

    def _do(self, world: "World", does: str, args: Any) -> None:
        server = world.server
        found = server.storage.get(POD, f"{args['name']}-{args['index']}", NAMESPACE)
        if found is not None and does == "finish":
            server.change(POD, found, self.name, {"status": {"phase": "Succeeded"}})
        elif found is not None and does == "delete":
            server.delete(POD, found, self.name)
        elif found is not None:
            server.remove(POD, found, self.name)
        if does == "return":
            self._pod(world, args, args["index"])

    def _claim(self, world: "World", args: Any) -> None:
        """Create a claim for several pods."""
        if args["kind"] == _SHARED:
            wanted = request(count=args["wanted"], device_class=_CLASS)
            raw = device_claim(args["name"], wanted, namespace=NAMESPACE)
            world.server.create(RESOURCE_CLAIM, raw, self.name)

    def _unclaim(self, world: "World", args: Any) -> None:
        """Delete the shared claim, and create it again a little later."""
        found = world.server.storage.get(RESOURCE_CLAIM, args["name"], NAMESPACE)
        if found is not None:
            world.server.delete(RESOURCE_CLAIM, found, self.name)
            world.after(2.0, lambda: None if world.is_calm else self._claim(world, args))

    def _pod(self, world: "World", args: Any, index: int) -> None:
        entry: dict[str, Any] = {"name": _ENTRY}
        if args["kind"] == _SHARED:
            entry["resourceClaimName"] = args["name"]
        else:
            entry["resourceClaimTemplateName"] = _TEMPLATE
        raw = pod(
            f"{args['name']}-{index}",
            namespace=NAMESPACE,
            cpu=args["cpu"],
            labels={CONSTRAINED: "by its devices", "wanted": str(args["wanted"])},
            spec={"schedulerName": SCHEDULER, "resourceClaims": [entry]},
        )
        world.server.create(POD, raw, self.name)

    def changed(self, world: "World", change: "Change") -> None:
        """Let the controllers work some time after a change that concerns them."""
        if change.resource is RESOURCE_CLAIM:
            self._note(change)
        if change.resource is NODE and self._counts and change.verb != "MODIFIED":
            world.after(_delay(world), lambda: self._publish(world))
        is_pod = change.resource is POD and _has_claims(change.object)
        if is_pod or change.resource is RESOURCE_CLAIM:
            world.after(_delay(world), lambda: self._control(world))

    def _note(self, change: "Change") -> None:
        metadata = change.object["metadata"]
        if change.after is None:
            self.gone_at[metadata["name"]] = change.at
        elif change.before is not None and pool_of(change.object) and not pool_of(change.before):
            self.allocated[metadata["uid"]] = change

    # The drivers.

    def _publish(self, world: "World") -> None:
        """Create missing slices of existing nodes, and remove slices of deleted nodes."""
        server = world.server
        for name, count in self._counts.items():
            node = server.storage.get(NODE, name)
            uid = node["metadata"]["uid"] if node is not None else ""
            known = server.storage.get(RESOURCE_SLICE, name)
            if known is not None and known["metadata"]["labels"]["node"] != uid:
                server.delete(RESOURCE_SLICE, known, self.name)
                known = None
            if node is None or (known is not None and _size(known) == count):
                continue
            self._published += 1
            devices = [f"d{number}" for number in range(count)]
            raw = resource_slice(name, devices, node=name, generation=self._published)
            if known is None:
                raw["metadata"]["labels"] = {"node": uid}
                server.create(RESOURCE_SLICE, raw, self.name)
            else:
                spec = {"devices": devices, **raw["spec"]}
                server.change(RESOURCE_SLICE, known, self.name, {"spec": spec})

    # The controller of claims.

    def _control(self, world: "World") -> None:
        """Do the work of the claim controller for all pods and claims."""
        storage = world.server.storage
        pods = [raw for raw in storage.all(POD) if _has_claims(raw)]
        live = {raw["metadata"]["uid"]: raw for raw in pods if not _has_ended(raw)}
        for raw in live.values():
            self._make(world, raw)
        for claim in storage.all(RESOURCE_CLAIM):
            self._free(world, claim, live)

    def _make(self, world: "World", raw: "Raw") -> None:
        """Create the claim from the pod's template, and write its name into the pod's status."""
        metadata, server = raw["metadata"], world.server
        entries = raw["spec"].get("resourceClaims") or [{}]
        by_template = "resourceClaimTemplateName" in entries[0]
        if not by_template or raw["status"].get("resourceClaimStatuses"):
            return
        self._made += 1
        wanted = request(count=int(metadata["labels"]["wanted"]), device_class=_CLASS)
        name = f"{metadata['name']}-{_ENTRY}-{self._made}"
        claim = device_claim(name, wanted, namespace=NAMESPACE, owner=metadata["name"])
        claim["metadata"]["ownerReferences"][0]["uid"] = metadata["uid"]
        server.create(RESOURCE_CLAIM, claim, self.name)
        statuses = [{"name": _ENTRY, "resourceClaimName": name}]
        server.change(POD, raw, self.name, {"status": {"resourceClaimStatuses": statuses}})

    def _free(self, world: "World", claim: "Raw", live: "dict[str, Raw]") -> None:
        """Remove ended consumers from the claim; without consumers, deallocate it."""
        server, metadata = world.server, claim["metadata"]
        reserved = claim["status"].get("reservedFor") or []
        left = [consumer for consumer in reserved if consumer["uid"] in live]
        if len(left) < len(reserved) or ("deletionTimestamp" in metadata and not left):
            patch = {"reservedFor": left} if left else {"reservedFor": None, "allocation": None}
            claim = server.change(RESOURCE_CLAIM, claim, self.name, {"status": patch})
            if not left and FINALIZER in (metadata.get("finalizers") or ()):
                unfinished = {"metadata": {"finalizers": None}}
                server.change(RESOURCE_CLAIM, claim, self.name, unfinished)
        owners = metadata.get("ownerReferences") or ()
        found = server.storage.get(RESOURCE_CLAIM, metadata["name"], NAMESPACE)
        if found is not None and not left and any(owner["uid"] not in live for owner in owners):
            server.delete(RESOURCE_CLAIM, found, self.name)


def claim_of(world: "World", raw: "Raw") -> "Raw | None":
    """Return the claim of a pod that has one; None if the claim does not exist."""
    name = raw["spec"]["resourceClaims"][0].get("resourceClaimName")
    for status in raw["status"].get("resourceClaimStatuses") or ():
        name = status["resourceClaimName"]
    return world.server.storage.get(RESOURCE_CLAIM, name, NAMESPACE) if name else None


def pool_of(claim: "Raw") -> str:
    """Return the pool of a claim's devices, all of one node; "" without devices."""
    allocation = claim["status"].get("allocation") or {"devices": {"results": [{"pool": ""}]}}
    return str(allocation["devices"]["results"][0]["pool"])


def _has_claims(raw: "Raw") -> bool:
    """Return whether the pod names ResourceClaims, or has one for extended resources."""
    by_scheduler = "extended" in (raw["metadata"].get("labels") or {})
    return bool(raw["spec"].get("resourceClaims")) or by_scheduler


def _has_ended(raw: "Raw") -> bool:
    return raw["status"].get("phase") in {"Succeeded", "Failed"}


def _size(slice_: "Raw") -> int:
    return len(slice_["spec"].get("devices") or ())


def _delay(world: "World") -> float:
    return world.random.choice((0.001, 0.05, 1.0))
