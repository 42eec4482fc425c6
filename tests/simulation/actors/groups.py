"""Pod groups: members come one by one, leave and return; the groups' definitions change."""

import math
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, Final

from devices.objects import MEMORY
from faults.books import CONSTRAINED
from mooring.groups.model.pod_group import GroupSource
from mooring.kube.api_resources import (
    HYPER_NODE,
    NODE,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    SCHEDULING_PROFILE,
)
from mooring.testing.builders import pod
from simulation.actors.group_formats import (
    GANG,
    LEADER,
    RESOURCES,
    ROLE,
    WORKER,
    Format,
    definition_of,
    format_of,
    marks_of,
    roles_of,
    spec_of,
)
from simulation.actors.rebalancing import MOVED
from simulation.scenario import ACME, NAMESPACE, SCHEDULER, Actor, Plan, Step
from storage_builders import pvc

if TYPE_CHECKING:
    from simulation.storage import Change, Raw
    from simulation.world import World


_ENDED: Final = ("Succeeded", "Failed")
_NAME_LABEL: Final = "pod-group.scheduling.sigs.k8s.io/name"
"""Names the group of a pod for profiles that know the labels of the preset Coscheduling."""
_MINIMUM_LABEL: Final = "pod-group.scheduling.sigs.k8s.io/min-available"


class Groups(Actor):
    """Gangs, and a record of the bindings of their members.

    Attributes:
        bound: By group, the uids of the bound members.
        never_shown: By group, the uids of members that had ended before they were bound, so that no
            watch of pods on nodes shows them: a replica counts them until it reads them.
        disturbed: By group, the last time of an event that excuses an incomplete gang.
        all_disturbed: The last time of an event that excuses any incomplete gang.
    """

    name = "groups"

    def __init__(self) -> None:
        self.bound: dict[str, set[str]] = defaultdict(set)
        self.never_shown: dict[str, set[str]] = defaultdict(set)
        self.disturbed: dict[str, float] = {}
        self.all_disturbed = -math.inf
        self._drawn: dict[str, dict[str, Any]] = {}

    def draw(self, plan: Plan) -> None:
        """Draw gangs for some runs; let members leave and definitions change."""
        random = plan.random
        for number in range(random.choice((0, 0, 1, 2, 3))):
            name, at = f"g{number}", plan.time() * 0.7
            minimum = random.choice((1, 2, 2, 3, 4))
            plan.step(
                at,
                self.name,
                "create",
                name=name,
                minimum=minimum,
                count=minimum + random.choice((-1, 0, 0, 0, 1, 2)),
                cpu=random.choice(("100m", "500m", "1", "1900m")),
                priority=random.choice((0, 0, 100)),
                gap=random.choice((0.0, 0.0, 0.01, 0.4)),
                topology=["topology.kubernetes.io/zone"] if plan.chance(0.2) else [],
                late=plan.chance(0.2),
                card=random.choice((0, 2, 5, 8)) if plan.has_cards and not plan.has_plugin else 0,
                scheduler=ACME if plan.has_plugin and plan.chance(0.6) else SCHEDULER,
                whole=plan.chance(0.3),
            )
            for _ in range(random.choice((0, 0, 1, 2, 4))):
                later = at + random.expovariate(1.0) * random.choice((0.05, 4.0))
                does = random.choice(("leave", "leave", "remove", "finish", "join", "minimum"))
                plan.step(
                    later, self.name, does, name=name, index=random.randrange(5), minimum=minimum
                )
            if plan.chance(0.15):
                plan.step(at + random.uniform(0.0, 9.0), self.name, "undefine", name=name)

    def act(self, world: "World", step: Step) -> None:
        name: str = step.args["name"]
        if step.does == "create":
            self._create(world, name, dict(step.args))
        elif name in self._drawn:
            self._do(world, step.does, name, step.args)

    def calm(self, world: "World") -> None:
        """Open the gates of every member."""
        for name, drawn in self._drawn.items():
            drawn["gates"] = 0
            for raw in self._members(world, name):
                self._open_gates(world, raw)

    def _create(self, world: "World", name: str, args: dict[str, Any]) -> None:
        self._drawn[name] = args
        if args["late"]:
            world.after(1.0, lambda: self._define(world, name))
        else:
            self._define(world, name)
        for number in range(max(args["count"], 1)):
            world.after(number * args["gap"], lambda: self._join(world, name))

    def _define(self, world: "World", name: str) -> None:
        args = self._drawn[name]
        resource, raw = format_of(args).resource, definition_of(name, args)
        if args.get("labels_name_it") or raw is None or resource is None:
            return
        if args.get("whole"):
            raw["spec"]["disruptionMode"] = {"all": {}}
        if args.get("never"):
            raw["spec"]["preemptionPolicy"] = "Never"
        world.server.create(resource, raw, self.name)

    def _do(self, world: "World", does: str, name: str, args: Any) -> None:
        server, drawn = world.server, self._drawn[name]
        if does == "join":
            self._join(world, name)
            return
        if does in {"minimum", "undefine"}:
            resource = format_of(drawn).resource
            definition = server.storage.get(resource, name, NAMESPACE) if resource else None
            if definition is None or resource is None:
                return
            if does == "undefine":
                server.delete(resource, definition, self.name)
                world.after(2.0, lambda: self._define(world, name))
                return
            drawn["minimum"] = 1 + args["index"]
            server.change(resource, definition, self.name, {"spec": spec_of(drawn)})
            return
        members = self._members(world, name)
        if not members:
            return
        raw = members[args["index"] % len(members)]
        if does == "open":
            self._open_gates(world, raw)
        elif does == "relabel":
            server.change(POD, raw, self.name, {"metadata": {"labels": {"app": args["app"]}}})
        elif does == "leave":
            server.delete(POD, raw, self.name)
        elif does == "remove":
            server.remove(POD, raw, self.name)
        else:
            server.change(POD, raw, self.name, {"status": {"phase": "Succeeded"}})

    def changed(self, world: "World", change: "Change") -> None:
        """Replace a deleted member; note events that excuse an incomplete gang."""
        if change.verb != "ADDED" and "status" not in change.what:
            if change.resource in {NODE, SCHEDULING_PROFILE, HYPER_NODE}:
                self.all_disturbed = change.at
            elif change.resource in RESOURCES:
                self.disturbed[change.object["metadata"]["name"]] = change.at
        if change.resource is not POD or (name := self._name_of(change.object)) is None:
            return
        if change.what == "bind":
            had_ended = change.object["status"].get("phase") in _ENDED
            members = self.never_shown if had_ended else self.bound
            members[name].add(change.object["metadata"]["uid"])
        elif _leaves(change):
            self.bound[name].discard(change.object["metadata"]["uid"])
            self.disturbed[name] = change.at
        returns = not world.is_calm or self._drawn[name].get("scheduler") == MOVED
        if change.after is None and change.by != "end" and returns:
            delay = world.random.choice((0.0, 0.05, 2.0))
            world.after(delay, lambda: self._join(world, name))

    def is_of_plugin(self, name: str) -> bool:
        """Return whether the gang belongs to the profile with the plugin of `Plugins`."""
        return bool(self._drawn[name].get("scheduler") == ACME)

    def is_whole(self, name: str) -> bool:
        """Return whether members may only be evicted all together."""
        return bool(self._drawn[name].get("whole"))

    def has_topology(self, name: str) -> bool:
        """Return whether all members must be in one topology domain."""
        return bool(self._drawn[name]["topology"])

    def must_be_near(self, name: str) -> bool:
        """Return whether all members must be in one HyperNode of the lowest tier."""
        return bool(self._drawn[name].get("near"))

    def has_constraints(self, name: str) -> bool:
        """Return whether a node may reject a member although it has room."""
        return bool(self._drawn[name].get("more"))

    def format_of(self, name: str) -> Format:
        return format_of(self._drawn[name])

    def needs(self, world: "World", name: str) -> tuple[int, dict[str, int]] | None:
        """Return the minimum of the gang, and of each role; None if no object defines it now."""
        drawn = self._drawn.get(name)
        if drawn is None or drawn.get("labels_name_it"):
            return None
        resource = format_of(drawn).resource
        if resource is not None and world.server.storage.get(resource, name, NAMESPACE) is None:
            return None
        return drawn["minimum"], roles_of(drawn)

    def was_disturbed(self, name: str, since: float) -> bool:
        """Return whether an event since this time excuses an incomplete gang."""
        return max(self.all_disturbed, self.disturbed.get(name, -math.inf)) >= since

    def _join(self, world: "World", name: str) -> None:
        """Create one more member; names of earlier members are used again."""
        drawn = self._drawn[name]
        taken = {raw["metadata"]["name"] for raw in world.server.storage.all(POD)}
        called = next(f"{name}-{n}" for n in range(100) if f"{name}-{n}" not in taken)
        if (claim := drawn.get("claim")) is not None:
            raw = pvc(called, namespace=NAMESPACE, storage_class=claim)
            world.server.create(PERSISTENT_VOLUME_CLAIM, raw, self.name)
        labels = {CONSTRAINED: "by its group", "wanted": str(drawn.get("devices", 0))}
        if by_labels := drawn.get("labels_name_it"):
            labels |= {_NAME_LABEL: name, _MINIMUM_LABEL: str(drawn["minimum"])}
        form, role = format_of(drawn), self._role(world, name)
        marks, annotations = marks_of(name, role, drawn)
        entry = {"name": "gpu", "resourceClaimTemplateName": "template"}
        raw = pod(
            called,
            namespace=NAMESPACE,
            cpu=drawn["cpu"],
            priority=drawn["priority"],
            requests={MEMORY: drawn["card"]} if drawn["card"] else {},
            group=None if by_labels or form.name_key else name,
            gates=("simulation/gate",) if drawn.get("gates") else (),
            claims=[called] if claim is not None else [],
            labels={**labels, **marks, **drawn.get("labels", {})},
            annotations=annotations,
            spec={
                "schedulerName": drawn.get("scheduler", SCHEDULER),
                **({"resourceClaims": [entry]} if drawn.get("devices") else {}),
                **({"preemptionPolicy": "Never"} if drawn.get("never") else {}),
            },
            **drawn.get("pod", {}),
        )
        made = world.server.create(POD, raw, self.name)
        if made is not None and form.source is GroupSource.KAI:
            late = world.random.choice((0.0, 0.02, 1.0))
            world.after(late, lambda: self._name_group(world, called, form.name_key, name))

    def _name_group(self, world: "World", called: str, key: str, name: str) -> None:
        """Write the name of its group into a member's annotation, as KAI's pod grouper does."""
        raw = world.server.storage.get(POD, called, NAMESPACE)
        if raw is not None:
            patch = {"metadata": {"annotations": {key: name}}}
            world.server.change(POD, raw, self.name, patch)

    def _role(self, world: "World", name: str) -> str:
        """Return a role with too few members; "" if the gang has no roles.

        Some gangs get no leader before a certain time.
        """
        drawn = self._drawn[name]
        if not (roles := roles_of(drawn)):
            return ""
        there = Counter(role_of(raw) for raw in self._members(world, name))
        may_lead = world.now >= drawn.get("leader_from", 0.0)
        return LEADER if may_lead and there[LEADER] < roles.get(LEADER, 0) else WORKER

    def _open_gates(self, world: "World", raw: "Raw") -> None:
        if raw["spec"].get("schedulingGates"):
            world.server.change(POD, raw, self.name, {"spec": {"schedulingGates": None}})

    def _members(self, world: "World", name: str) -> list["Raw"]:
        return [
            raw
            for raw in world.server.storage.all(POD)
            if self._name_of(raw) == name and "deletionTimestamp" not in raw["metadata"]
        ]

    def _name_of(self, raw: "Raw") -> str | None:
        """Return the name of the pod's group, even if only labels name it; None without a group."""
        labelled = (raw["metadata"].get("labels") or {}).get(_NAME_LABEL)
        return group_of(raw) or (labelled if labelled in self._drawn else None)


def _leaves(change: "Change") -> bool:
    """Return whether the pod ends or begins to terminate with this change."""
    after, before = change.after, change.before
    if after is None or before is None:
        return after is None
    return "deletionTimestamp" in after["metadata"] or after["status"]["phase"] in _ENDED


def group_of(raw: "Raw") -> str | None:
    """Return the name of the pod's group; None if it has no group of this actor."""
    if raw["metadata"].get("namespace") != NAMESPACE:
        return None
    group = raw["spec"].get("schedulingGroup")
    labels = raw["metadata"].get("labels") or {}
    return group["podGroupName"] if group else labels.get(GANG)


def role_of(raw: "Raw") -> str:
    """Return the role of a member; "" if it has none."""
    return str((raw["metadata"].get("labels") or {}).get(ROLE, ""))
