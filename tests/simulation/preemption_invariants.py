"""The invariants of preemption: the right victims, and no pod that waits but may preempt.

How to add one: see `simulation.invariants`.
"""

from collections.abc import Iterator
from itertools import accumulate
from math import inf
from typing import TYPE_CHECKING, Any, Final

import orjson

from faults.books import Amount, PodSeen
from mooring.kube.api_resources import POD, POD_DISRUPTION_BUDGET, SCHEDULING_PROFILE
from mooring.kube.timestamps import rfc3339
from mooring.model.events import Kind
from mooring.model.fields import timestamp
from mooring.model.pod import Uid
from mooring.state.evictions import Evictions
from simulation.actors.faults import Faults
from simulation.actors.groups import Groups, group_of
from simulation.actors.queues import queue_of
from simulation.actors.rebalancing import MOVED
from simulation.api_server import EPOCH
from simulation.cluster_books import LATE_SECONDS, known_pods, known_versions
from simulation.constraints import Surroundings, keeps_away, refusal, skews
from simulation.disruption_controller import is_ready
from simulation.scenario import ACME
from simulation.state_invariants import engine_of, engines
from simulation.storage import Change, Raw

if TYPE_CHECKING:
    from mooring.run.build import Engine
    from simulation.world import Sent, World


_AGO_SECONDS: Final = 1.0
"""What a replica nominated so long before a decision was in its books then."""
_FLUSH_SECONDS: Final = 30.0
"""How often those are tried again who wait until a limit spares their victims no more."""
_CHARGED_SECONDS: Final = 120.0
"""How long a budget may be charged for a pod that has left."""
_REMOVES: Final = ("evict", "delete pods")


# At every request.


def victim_of(world: "World", sent: "Sent") -> Raw | None:
    """Return the running pod whose eviction or deletion this request is; None for others."""
    if sent.what not in _REMOVES:
        return None
    parts = sent.path.split("/")
    at = parts.index("pods")
    raw = world.server.storage.get(POD, parts[at + 1], parts[at - 1])
    body = orjson.loads(sent.body) if sent.body else {}
    options = body.get("deleteOptions") or body
    uid = (options.get("preconditions") or {}).get("uid")
    if raw is None or (uid is not None and uid != raw["metadata"]["uid"]):
        return None
    runs = raw["spec"].get("nodeName") and "deletionTimestamp" not in raw["metadata"]
    return raw if runs else None


def no_eviction_is_sent_that_a_budget_forbids(world: "World", sent: "Sent") -> str | None:
    """Check the pod's budgets in all versions that the replica may know."""
    raw, engine = victim_of(world, sent), engine_of(world, sent.identity)
    if raw is None or engine is None or sent.what != "evict":
        return None
    known = engine.scheduler.state.pods.get(Uid(raw["metadata"]["uid"]))
    if known is not None and known.pod.phase == "Pending":
        return None  # the Eviction API needs no budget for it
    budgets = [each for each in world.server.budgets_of(raw) if _is_known(world, sent, each)]
    if len(budgets) > 1 and _is_known(world, sent, raw):
        names = [budget["metadata"]["name"] for budget in budgets]
        return f"{sent.identity} evicts {raw['metadata']['name']}, which {names} select"
    for budget in budgets:
        versions = [*_known_budgets(world, sent.identity, budget)]
        allowed = [(each.get("status") or {}).get("disruptionsAllowed", 0) for each in versions]
        if max(allowed) <= 0:
            name, called = budget["metadata"]["name"], raw["metadata"]["name"]
            return f"{sent.identity} evicts {called}, and {name} has allowed {allowed}"
    return None


def _is_known(world: "World", sent: "Sent", raw: Raw) -> bool:
    """Return whether the replica has known for a while that the pod or budget exists."""
    resource = POD if "nodeName" in raw["spec"] else POD_DISRUPTION_BUDGET
    told = world.server.watches.told(sent.identity, resource, at=world.timeline.now - LATE_SECONDS)
    uid = raw["metadata"]["uid"]
    made = (change for change in world.server.storage.history if change.verb == "ADDED")
    return any(
        change.object["metadata"]["uid"] == uid and change.version <= told for change in made
    )


def _known_budgets(world: "World", identity: str, budget: Raw) -> Iterator[Raw]:
    """Yield the versions of the budget that the replica may know, the newest first."""
    yield budget
    at = world.timeline.now - LATE_SECONDS
    told = world.server.watches.told(identity, POD_DISRUPTION_BUDGET, at=at)
    for change in reversed(world.server.storage.history):
        same = change.object["metadata"]["uid"] == budget["metadata"]["uid"]
        if change.resource is POD_DISRUPTION_BUDGET and same and change.before is not None:
            if change.version <= told:
                return
            yield change.before


def no_pod_is_evicted_a_second_time(world: "World", sent: "Sent") -> str | None:
    """Check that a replica does not repeat an eviction that the server has carried out."""
    if sent.what not in _REMOVES:
        return None
    body = orjson.loads(sent.body) if sent.body else {}
    options = body.get("deleteOptions") or body
    uid = (options.get("preconditions") or {}).get("uid")
    answered = world.removals.evicted.get((sent.identity, uid or ""))
    if answered is None or answered + 3.0 * world.network.latency + 0.01 > sent.at:
        return None  # the answer may be on its way
    if world.network.was_disturbed(world.began + answered):
        return None
    return f"{sent.identity} sends {sent.what} {sent.path} again, which was done at {answered:.3f}"


def own_evictions_are_charged(world: "World", sent: "Sent") -> str | None:
    """Check that a replica charges each of its evictions to the pod's budgets."""
    raw, engine = victim_of(world, sent), engine_of(world, sent.identity)
    if raw is None or engine is None or not raw["metadata"].get("labels"):
        return None
    state = engine.scheduler.state
    placed = state.pods.get(Uid(raw["metadata"]["uid"]))
    if placed is None or not state.evictions.evicting(placed.pod):
        return None
    for budget in _budgets(engine):
        selects = budget.selector is not None and budget.selector.requirements
        if budget.namespace != raw["metadata"]["namespace"] or not selects:
            continue
        if raw["metadata"]["name"] in budget.disrupted_pods:
            continue
        if not budget.selector.matches(raw["metadata"]["labels"]):
            continue
        left = state.evictions.disruptions_allowed(budget)
        if left >= budget.disruptions_allowed > 0 and placed.pod.ready:
            return f"{sent.identity} evicts {raw['metadata']['name']}: {budget.key} allows {left}"
    return None


def no_budget_is_charged_for_a_pod_that_stays(world: "World", sent: "Sent") -> str | None:
    """Check that budgets are charged only for pods that are being evicted or have left."""
    engine = engine_of(world, sent.identity)
    if engine is None:
        return None
    state = engine.scheduler.state
    world.removals.refused.update(dict.fromkeys(state.evictions.refused, sent.at))
    for key, charges in state.evictions._records.charges.items():
        for uid in charges:
            placed = state.pods.get(Uid(uid))
            stays = placed is not None and not placed.pod.terminating
            if placed is not None and stays and not state.evictions.evicting(placed.pod):
                return f"{sent.identity} charges {key} for {placed.pod.key}, which stays"
    return None


def no_preemption_has_more_victims_than_its_profile_allows(
    world: "World", sent: "Sent"
) -> str | None:
    """Count the pods whose evictions began for the same preemptor, and that leave for it alone.

    A pod whose eviction began for another preemptor does not count, even if nobody else waits for
    this pod any more (docs/adr/0012-resources-that-an-eviction-frees.md).
    """
    raw, engine = victim_of(world, sent), engine_of(world, sent.identity)
    if raw is None or engine is None or raw["spec"].get("schedulerName") == MOVED:
        return None
    evictions = engine.scheduler.state.evictions
    records, begun = evictions._records, world.removals.begun
    preemptors = records.awaited_by.get(raw["metadata"]["uid"], {})
    found: list[str] = []
    for preemptor in preemptors.values():
        most = _preemption(world, preemptor.spec.scheduler_name).get("maxVictims")
        victims = [
            victim
            for victim in records.victims[preemptor.uid]
            if {*records.awaited_by[victim]} == {preemptor.uid}
            and (evictions, victim) in begun
            and begun[evictions, victim].preemptor == preemptor.uid
        ]
        if most is None or len(victims) <= most:
            return None
        found.append(f"{sorted(victims)} leave for {preemptor.key}, and {most} may")
    return "; ".join(found) or None


def _budgets(engine: "Engine") -> list[Any]:
    return [*engine.scheduler.cluster.objects(Kind.POD_DISRUPTION_BUDGET).values()]


def whoever_has_pods_evicted_is_nominated(world: "World", sent: "Sent") -> str | None:
    """Check that the replica keeps the victim's node for a pod, or has done so a moment ago.

    Any node is allowed for a group (its victims may be on other nodes), for a victim whose group is
    disrupted as a whole, and for a victim in a Queue (it frees quota).
    """
    raw, engine = victim_of(world, sent), engine_of(world, sent.identity)
    if raw is None or engine is None:
        return None
    victim, nominations = PodSeen.read(raw), engine.scheduler.state.nominations
    if sent.what == "evict" and victim.scheduler == MOVED:
        return None
    group, names = group_of(raw), engine.scheduler.state.nodes.names
    anywhere = queue_of(raw) or (group is not None and world.actor(Groups).is_whole(group))
    groups = engine.scheduler.cluster.pod_groups
    for nominee in nominations:
        if anywhere or groups.of(nominee.pod) or names[nominee.row] == victim.node:
            world.removals.kept_at[sent.identity, victim.node] = world.timeline.now
            return None
    kept_at = world.removals.kept_at.get((sent.identity, victim.node), 0.0)
    if kept_at > world.timeline.now - LATE_SECONDS or _somebody_went(world):
        return None
    return f"{sent.identity} sends {sent.what} of {victim.key} on {victim.node} for nobody"


def _somebody_went(world: "World") -> bool:
    """Return whether the preempting pod may have gone or been bound a moment ago."""
    books, since = world.books, world.timeline.now - LATE_SECONDS
    went = bool(books.gone) and books.gone[-1][0].at > since
    return went or any(at > since for at in books.bound_at.values())


# At every change.


def _preemption(world: "World", scheduler: str) -> Raw:
    """Return the section `preemption` of the profile with this scheduler name."""
    profile = world.server.storage.get(SCHEDULING_PROFILE, scheduler)
    return (profile["spec"].get("preemption") or {}) if profile is not None else {}


def _is_member(raw: Raw) -> bool:
    """Return whether the pod names a group, perhaps by a label that a profile defines."""
    labels = raw["metadata"].get("labels") or {}
    return group_of(raw) is not None or any("pod-group" in key for key in labels)


def _preempted(world: "World", change: Change) -> PodSeen | None:
    """Return the pod that a replica has preempted with this change; None for moved pods."""
    by_replica = change.by.partition("-")[0] in world.replicas
    if change.resource is not POD or not by_replica or change.what not in _REMOVES:
        return None
    if change.before is None or change.before["spec"].get("schedulerName") == MOVED:
        return None
    world.removals.evicted[change.by, change.before["metadata"]["uid"]] = world.now
    return PodSeen.read(change.before)


def no_victim_has_run_for_less_than_its_profile_demands(
    world: "World", change: Change
) -> str | None:
    """Check the pod's running time by the replica's clock."""
    victim = _preempted(world, change)
    if victim is None or change.before is None:
        return None
    least = _preemption(world, victim.scheduler).get("minRuntimeSeconds", 0)
    started = change.before["status"].get("startTime")
    if not least:
        return None
    since = world.timeline.now - LATE_SECONDS
    error = max(world.actor(Faults).clock_errors(world, change.by, since))
    latest = rfc3339(EPOCH + change.at + error - least + 2.0)  # times have no fractions
    if started is not None and started <= latest:
        return None
    return f"{victim.key} has run since {started}, and leaves before {latest}"


def nobody_leaves_before_the_delay_of_the_preemption_is_over(
    world: "World", sent: "Sent"
) -> str | None:
    """Check that at least one of the pod's preemptors has waited long enough."""
    raw, engine = victim_of(world, sent), engine_of(world, sent.identity)
    if raw is None or engine is None or raw["spec"].get("schedulerName") == MOVED:
        return None
    awaited_by = engine.scheduler.state.evictions._records.awaited_by
    preemptors = awaited_by.get(raw["metadata"]["uid"], {}).values()
    late = [_delay_left(world, each.spec.scheduler_name, each.created) for each in preemptors]
    if not late or min(late) <= 0:
        return None
    keys = [each.key for each in preemptors]
    return f"{raw['metadata']['name']} leaves for {keys}, {min(late)} s before they may preempt"


def _delay_left(world: "World", scheduler: str, created: float) -> float:
    """Return the seconds until a pod may preempt that did not fit when it was created."""
    delay = _preemption(world, scheduler).get("delaySeconds", 0)
    return created + delay - (EPOCH + world.timeline.now) if delay else 0.0


def nobody_takes_the_room_of_a_nominated_pod(world: "World", change: Change) -> str | None:
    """Check that a pod leaves room for nominated pods of at least its priority.

    Only nominations count that the same replica made some time before its decision and still keeps.
    """
    engine = engine_of(world, change.by)
    if change.what != "bind" or engine is None:
        return None
    pod, state = PodSeen.read(change.object), engine.scheduler.state
    if _is_member(change.object):
        return None
    decided_at = world.decisions.decided_at(change.by, pod.uid, change.at)
    nominees = [
        world.books.pods[nominee.pod.uid]
        for nominee in state.nominations
        if state.nodes.names[nominee.row] == pod.node
        # A reservation keeps out pods of lower priority only.
        and nominee.pod.spec.priority >= pod.priority + (nominee.reservation is not None)
        and nominee.pod.uid != pod.uid
        and _was_nominated(world, change.by, nominee.pod.uid, pod.node, decided_at)
    ]
    if not nominees or pod.wants_cards:
        return None
    there = [
        other
        for other in known_pods(world, change.by, pod.node, decided_at)
        if world.decisions.decided_at(change.by, other.uid, decided_at) <= decided_at
    ]
    used = sum((each.need for each in (*there, *nominees)), Amount())
    uids = [nominee.uid for nominee in nominees]
    versions = known_versions(world, change.by, pod.node)
    wanted = Amount(used.cpu if pod.need.cpu else 0, used.memory if pod.need.memory else 0)
    if not any(node.allocatable.covers(wanted) for _, node in versions):
        return f"{pod.key} is on {pod.node}, which is kept for {uids}"
    for nominee in nominees:
        said = [keeps_away(change.object, raw, world.books.raw[nominee.uid]) for raw, _ in versions]
        if None not in said:
            return f"{pod.key} is on {pod.node}, which is kept for {nominee.key}: {said[-1]}"
    return _skews_beside(world, change, pod, nominees)


def _skews_beside(
    world: "World", change: Change, pod: PodSeen, nominees: list[PodSeen]
) -> str | None:
    """Return an error if the pod breaks its own spread once these pods are on its node, or None."""
    decision = world.decisions.about(change)
    if decision is None or not change.object["spec"].get("topologySpreadConstraints"):
        return None
    around = decision.around
    for nominee in nominees:
        raw = world.books.raw[nominee.uid]
        around = around.and_pod({**raw, "spec": {**raw["spec"], "nodeName": pod.node}})
    said = [skews(raw, pod.node, around) for raw in decision.pods]
    if not said or None in said:
        return None
    return f"{pod.key} is on {pod.node}, beside {[each.key for each in nominees]}: {said[-1]}"


def _was_nominated(world: "World", identity: str, uid: str, node: str, at: float) -> bool:
    """Return whether the replica had nominated the pod to the node some time before `at`.

    All statuses that it has written since must have the same nomination.
    """
    since = world.decisions.nominated_since(identity, uid)
    if uid not in world.books.pods or since > at - _AGO_SECONDS:
        return False
    said = [
        (change.at, (change.object["status"] or {}).get("nominatedNodeName"))
        for change in world.removals.nominations_of.get(uid, ())
        if change.by == identity
    ]
    return bool(said) and said[-1][0] <= at - _AGO_SECONDS and said[-1][1] == node


# When all is calm.


def a_budget_allows_what_its_status_says(world: "World") -> str | None:
    """Check that no replica charges a budget for an eviction that has ended."""
    for identity, engine in engines(world):
        evictions = engine.scheduler.state.evictions
        for key, charges in evictions._records.charges.items():
            for uid in charges:
                if not _may_be_charged(world, identity, evictions, key, uid):
                    return f"{identity} charges {key} for {uid}, whose eviction has ended"
        for budget in _budgets(engine):
            charged = len(evictions._records.charges.get(budget.key, ()))
            left = evictions.disruptions_allowed(budget) + charged
            if left < budget.disruptions_allowed and not _is_exhausted(world, budget.key):
                said = f"{budget.disruptions_allowed}, and {identity} counts {left}"
                return f"{budget.key} allows {said}"
    return None


def _may_be_charged(
    world: "World", identity: str, evictions: Evictions, key: str, uid: str
) -> bool:
    """Return whether the replica may still charge the budget `key` for the eviction of a pod.

    It may do so for two minutes after the pod has left if the pod was ready and the budget's status
    was not written since the eviction began: another pod may have become ready at the same time.
    """
    now, told = world.timeline.now, world.server.watches.told
    began = world.removals.begun[evictions, uid].at
    shown = told(identity, POD_DISRUPTION_BUDGET, at=now - LATE_SECONDS)
    versions = [each for each in world.server.storage.history if _is_version(each, uid)]
    is_counted = any(is_ready(each.object) for each in versions) and not any(
        change.resource is POD_DISRUPTION_BUDGET and change.name == key
        for change in world.server.storage.history
        if change.at > began and change.version <= shown
    )
    left = next((change for change in versions if _has_left(change)), None)
    late = _CHARGED_SECONDS * is_counted + LATE_SECONDS
    return left is not None and left.version > told(identity, POD, at=now - late)


def _is_version(change: Change, uid: str) -> bool:
    return change.resource is POD and change.object["metadata"]["uid"] == uid


def _has_left(change: Change) -> bool:
    """Return whether the pod terminates, has finished or is deleted."""
    raw = change.object
    finished = raw["status"].get("phase") in {"Succeeded", "Failed"}
    return change.after is None or finished or "deletionTimestamp" in raw["metadata"]


def _is_exhausted(world: "World", key: str) -> bool:
    """Return whether the Eviction API may have reported the budget as exhausted."""
    namespace, _, name = key.partition("/")
    raw = world.server.storage.get(POD_DISRUPTION_BUDGET, name, namespace)
    return raw is None or (raw.get("status") or {}).get("disruptionsAllowed", 0) <= 0


def every_pod_that_preemption_would_place_is_placed(world: "World") -> str | None:
    """Check that no pod waits without a nomination although preemption would make it fit."""
    books = world.books
    for pod in books.pods.values():
        if not books.waits(pod) or pod.nominated or not _may_preempt(world, pod):
            continue
        for name in books.nodes:
            kept = any(
                other.nominated == name and other.priority >= pod.priority
                for other in books.pods.values()
                if not other.node and other.uid != pod.uid
            )
            if not kept and (victims := _victims(world, pod, name)):
                keys = [victim.key for victim in victims]
                return f"{pod.key} ({pod.uid}) waits, and {name} would take it without {keys}"
    return None


def _may_preempt(world: "World", pod: PodSeen) -> bool:
    """Return whether the pod may preempt, and only requests and constraints matter."""
    spec = world.books.raw[pod.uid]["spec"]
    if pod.wants_cards or pod.scheduler == ACME or spec.get("preemptionPolicy") == "Never":
        return False
    if queue_of(world.books.raw[pod.uid]) or "podAffinity" in (spec.get("affinity") or {}):
        return False  # its queue, or the wish to be with a pod, says who may be a victim
    if world.server.storage.get(SCHEDULING_PROFILE, "rival") is not None:
        return False
    profile = world.server.storage.get(SCHEDULING_PROFILE, pod.scheduler)
    if profile is None or profile["spec"].get("extenders"):
        return False
    created = timestamp(world.books.raw[pod.uid]["metadata"], "creationTimestamp", "metadata")
    if _delay_left(world, pod.scheduler, created or 0.0) > -LATE_SECONDS - _FLUSH_SECONDS:
        return False
    return "DefaultPreemption" not in str(profile["spec"].get("plugins"))


def _victims(world: "World", pod: PodSeen, name: str) -> list[PodSeen]:
    """Return the pods to evict so that the pod fits on the node; [] if that does not help."""
    books, limits = world.books, _preemption(world, pod.scheduler)
    lower = [
        other
        for other in books.on_node[name].values()
        if other.priority < pod.priority and _may_leave(world, other, limits)
    ]
    free = books.free(name) + sum((other.need for other in lower), Amount())
    if not lower or not free.covers(pod.need) or books.refuses(name, pod):
        return []
    uids = {other.uid for other in lower}
    nodes = [books.versions[each][-1][0].object for each in books.nodes]
    stay = [uid for there in books.on_node.values() for uid in there if uid not in uids]
    around = Surroundings.known_exactly(nodes, [books.raw[uid] for uid in stay])
    if refusal(books.raw[pod.uid], name, around) is not None:
        return []
    most = limits.get("maxVictims")
    if most is not None and not _is_enough(books.free(name), lower, pod.need, most):
        return []
    return lower


def _is_enough(free: Amount, lower: list[PodSeen], need: Amount, most: int) -> bool:
    """Return whether evicting at most `most` pods, the largest first, frees enough."""
    largest = sorted(lower, key=lambda each: (each.need.cpu, each.need.memory), reverse=True)
    after = accumulate((each.need for each in largest[:most]), initial=free)
    return any(left.covers(need) for left in after)


def _may_leave(world: "World", other: PodSeen, limits: Raw) -> bool:
    """Return whether `other` may be a victim, and already was at the queue's last flush.

    The leader's clock says how long `other` has run.
    """
    raw = world.books.raw[other.uid]
    if other.leaving or _is_member(raw):
        return False
    least, started = limits.get("minRuntimeSeconds", 0), raw["status"].get("startTime")
    tried_at = world.timeline.now - LATE_SECONDS - _FLUSH_SECONDS
    error = min(world.actor(Faults).clock_errors(world, world.books.holder, tried_at))
    if least and (started is None or started > rfc3339(EPOCH + tried_at + error - least)):
        return False
    if limits.get("disruptionBudgets") != "Strict":
        return True
    rests = world.removals.refused.get(other.uid, -inf) + world.began > tried_at
    return not rests and not world.server.budgets_of(raw)
