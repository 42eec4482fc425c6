"""The invariants of pod groups. How to add one: see `simulation.invariants`."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from itertools import chain
from typing import TYPE_CHECKING, Final

from faults.books import Amount, PodSeen
from mooring.groups.model.pod_group import GroupKey
from mooring.kube.api_resources import HYPER_NODE, POD
from simulation.actors.faults import Faults
from simulation.actors.group_formats import ROLE
from simulation.actors.groups import Groups, group_of, role_of
from simulation.actors.plugins import Plugins
from simulation.state_invariants import engine_of
from simulation.storage import Change

if TYPE_CHECKING:
    from simulation.world import Sent, World


_GRACE_SECONDS: Final = 15.0
"""So long after its first Binding the whole minimum of a gang is bound."""
_LATE_SECONDS: Final = 4.0
"""What a Binding was decided on may be so old: watches may be three seconds behind."""
_CONFIRMED_SECONDS: Final = 75.0
"""So long after a plugin said so it is known at the latest that a pod is not bound."""
_ON_ITS_WAY_SECONDS: Final = 10.0
"""What happens to a gang so shortly before a Binding may not be known to the replica."""


def no_part_of_a_gang_is_bound(world: "World", change: Change) -> str | None:
    """Check, some seconds later, that the gang has its minimum, unless a fault was in force.

    A fault may bind some members and reject others; these are tried again, see
    `every_gang_that_a_node_would_take_is_bound`. A member that had ended before it was bound counts
    while the replica assumes it: no watch shows it, and it is read after a minute.
    """
    if change.what == "bind" and (name := group_of(change.object)) is not None:
        groups, decisions = world.actor(Groups), world.decisions
        needs = groups.needs(world, name)
        if needs is not None:
            uid = change.object["metadata"]["uid"]
            at = decisions.decided_at(change.by, uid, change.at)
            ended = groups.never_shown[name]
            assumed = {each for each in ended if decisions.assumed(change.by, each, at)}
            world.after(_GRACE_SECONDS, lambda: _look_at(world, name, *needs, at, assumed))
    return None


def _look_at(
    world: "World",
    name: str,
    minimum: int,
    roles: Mapping[str, int],
    decided_at: float,
    assumed: set[str],
) -> None:
    groups, since = world.actor(Groups), decided_at - _LATE_SECONDS
    if groups.was_disturbed(name, since) or world.actor(Faults).over_at >= since:
        return
    if groups.is_of_plugin(name) and world.actor(Plugins).troubled_until >= since:
        return
    bound = Counter(role_of(world.books.raw[uid]) for uid in groups.bound[name] | assumed)
    if bound.total() < minimum or not bound >= Counter(roles):
        broken = f"of {name} {dict(bound)} are bound, and it needs {minimum}, {dict(roles)}"
        world.fail(f"no part of a gang is bound: {broken} (at {world.now:.3f})")


def no_binding_of_a_gang_is_sent_before_its_minimum_has_nodes(
    world: "World", sent: "Sent"
) -> str | None:
    """Check that the replica has assumed the gang's minimum before it sends a Binding.

    An unanswered Binding is repeated after half a minute; only the decision's time counts.
    """
    if sent.what != "bind":
        return None
    namespace, name = sent.path.split("/")[4], sent.path.split("/")[6]
    raw = world.server.storage.get(POD, name, namespace)
    group = group_of(raw) if raw is not None else None
    engine = engine_of(world, sent.identity)
    if group is None or engine is None:
        return None
    now, uid = world.timeline.now, raw["metadata"]["uid"] if raw is not None else ""
    since = min(now - _ON_ITS_WAY_SECONDS, world.decisions.decided_at(sent.identity, uid, now))
    if world.actor(Groups).was_disturbed(group, since) or _was_lied_about(world, group):
        return None
    state = engine.scheduler.state
    key = GroupKey(world.actor(Groups).format_of(group).source, namespace, group)
    known = state.pod_groups.get(key)
    there = chain.from_iterable(map(state.pods_of, state.nodes.row_of))
    placed = [
        placed.pod
        for placed in chain(there, state.pods_without_node())  # their node may go meanwhile
        if state.pod_groups.key_of(placed.pod) == key
    ]
    if known is None or known.definition is None:
        return None
    least, of_roles = known.definition.minimum, Counter(pod.labels.get(ROLE, "") for pod in placed)
    needs = world.actor(Groups).needs(world, group)
    # The replica may not know the present minimum yet.
    roles = needs[1] if needs is not None and needs[0] == least else {}
    if of_roles.total() >= least and of_roles >= Counter(roles):
        return None
    return f"{sent.path}: {dict(of_roles)} have nodes, and {group} needs {least}, {roles}"


def _was_lied_about(world: "World", group: str) -> bool:
    """Return whether a plugin may have claimed falsely that members are bound.

    Mooring finds this out one member at a time, a minute later.
    """
    plugins = world.actor(Plugins)
    told_at = world.timeline.now - _CONFIRMED_SECONDS
    return world.actor(Groups).is_of_plugin(group) and plugins.troubled_until >= told_at


def every_gang_that_a_node_would_take_is_bound(world: "World") -> str | None:
    """Check that no gang waits if one node has room for all its members."""
    waiting, placed = defaultdict[str, list[PodSeen]](list), Counter[str]()
    roles = defaultdict[str, Counter[str]](Counter)
    for raw in world.server.storage.all(POD):
        name, pod = group_of(raw), PodSeen.read(raw)
        if name is None or pod.leaving or pod.finished:
            continue
        if pod.scheduler not in world.books.profiles:
            continue  # nobody tries it
        roles[name][role_of(raw)] += 1
        if pod.node:
            placed[name] += 1
        else:
            waiting[name].append(pod)
    for name, pods in waiting.items():
        needs = world.actor(Groups).needs(world, name)
        if needs is None or roles[name].total() < needs[0] or not roles[name] >= Counter(needs[1]):
            continue
        if world.actor(Groups).has_constraints(name):
            continue  # what one member has, another may lack
        if placed[name] and world.actor(Groups).has_topology(name):
            continue  # the others may go to one domain only
        if node := _takes_all(world, pods):
            return f"{len(pods)} members of {name} wait, and {node} would take them"
    return None


def no_gang_is_in_two_hyper_nodes_of_the_lowest_tier(world: "World") -> str | None:
    """Check that members are in one HyperNode if their group requires it; HyperNodes are fixed."""
    leaf_of = {
        member["selector"]["exactMatch"]["name"]: raw["metadata"]["name"]
        for raw in world.server.storage.all(HYPER_NODE)
        for member in raw["spec"]["members"]
    }
    found, groups = defaultdict[str, set[str]](set), world.actor(Groups)
    for raw in world.server.storage.all(POD):
        name, pod = group_of(raw), PodSeen.read(raw)
        if name is not None and pod.node and not pod.finished and groups.must_be_near(name):
            found[name].add(leaf_of[pod.node])
    return next(
        (f"{name} is in {leaves}" for name, leaves in found.items() if len(leaves) > 1), None
    )


def _takes_all(world: "World", pods: list[PodSeen]) -> str | None:
    """Return a node with room for all these pods and without other nominated pods, or None."""
    books = world.books
    need = sum((pod.need for pod in pods), Amount())
    kept = {pod.nominated for pod in books.pods.values() if not pod.node}
    for name in books.nodes:
        fits = all(books.takes(name, pod) for pod in pods) and books.free(name).covers(need)
        if name not in kept and fits and not pods[0].wants_cards:
            return name
    return None
