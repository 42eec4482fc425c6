"""The invariants of the simulation: small functions whose names are sentences.

They know nothing about Mooring's code: they read the model server's history, the requests that left
each replica, and the events that each watch had shown (`Watches.told`).

To add one, write a function that returns None, or the error in a few words. Put it into
`AT_EVERY_REQUEST` (arguments: the world, and a write that leaves a replica), `AT_EVERY_READ` (the
same for a read), `AT_EVERY_CHANGE` (the world, and a change on the server), `WHEN_CALM` (the world,
some time after the last fault), `WHEN_EMPTY` (after all pods were deleted) or `AT_THE_END` (after
the replicas have stopped). Invariants that read a replica's state are in `state_invariants.py`.
Break the code once, and check that a seed finds it.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import orjson

from faults.books import Amount, PodSeen
from mooring.kube.api_resources import POD
from simulation.accelerator_invariants import (
    a_claim_gets_devices_that_suit_it,
    every_pod_whose_extended_resources_are_free_is_bound,
    no_claim_for_extended_resources_is_left,
    no_claim_has_devices_without_the_finalizer,
    no_claim_outlives_the_attempt_for_it,
    the_extended_resources_of_a_bound_pod_are_on_its_node,
)
from simulation.actors.accelerators import EXTENDED
from simulation.actors.groups import Groups, group_of
from simulation.actors.queues import queue_of
from simulation.actors.rebalancing import MOVED
from simulation.allocation_invariants import (
    every_pod_whose_devices_are_free_is_bound,
    no_claim_is_kept_for_a_pod_that_has_ended,
    no_device_gives_more_than_it_has,
    no_device_is_allocated_twice,
    the_claim_of_a_bound_pod_is_reserved_for_it,
    the_devices_in_use_equal_a_recount,
    the_devices_of_a_bound_pod_are_on_its_node,
)
from simulation.claim_invariants import (
    no_volume_is_taken_from_its_claim,
    the_volumes_of_a_bound_pod_are_on_its_node,
)
from simulation.cluster_books import (
    LATE_SECONDS,
    kept_for_others,
    known_nodes,
    known_pods,
    known_versions,
)
from simulation.constraints import is_suitable
from simulation.device_invariants import (
    every_pod_that_requests_a_card_has_one,
    no_card_has_more_pods_than_memory,
    no_pod_is_bound_where_a_needed_extender_refuses_it,
    no_pod_is_bound_where_its_plugin_refuses_it,
    what_a_plugin_reserved_is_undone,
)
from simulation.group_invariants import (
    every_gang_that_a_node_would_take_is_bound,
    no_binding_of_a_gang_is_sent_before_its_minimum_has_nodes,
    no_gang_is_in_two_hyper_nodes_of_the_lowest_tier,
    no_part_of_a_gang_is_bound,
)
from simulation.placement_invariants import a_placement_keeps_the_constraints_of_its_pod
from simulation.preemption_invariants import (
    a_budget_allows_what_its_status_says,
    every_pod_that_preemption_would_place_is_placed,
    no_budget_is_charged_for_a_pod_that_stays,
    no_eviction_is_sent_that_a_budget_forbids,
    no_pod_is_evicted_a_second_time,
    no_preemption_has_more_victims_than_its_profile_allows,
    no_victim_has_run_for_less_than_its_profile_demands,
    nobody_leaves_before_the_delay_of_the_preemption_is_over,
    nobody_takes_the_room_of_a_nominated_pod,
    own_evictions_are_charged,
    whoever_has_pods_evicted_is_nominated,
)
from simulation.queue_invariants import (
    no_queue_gets_more_than_it_may_use,
    no_queue_gives_more_than_it_has_borrowed,
    what_queues_use_equals_a_recount,
)
from simulation.rebalancing_invariants import (
    an_eviction_is_told_in_the_status_before,
    no_more_pods_are_moved_than_the_limits_say,
    no_place_is_kept_that_nobody_waits_for,
)
from simulation.rebalancing_purposes import (
    no_pod_is_moved_in_vain,
    no_pod_is_moved_outside_of_the_windows,
    no_workload_misses_more_pods_than_its_limit,
)
from simulation.request_invariants import (
    no_pod_is_bound_that_was_seen_to_end,
    no_token_is_used_long_after_it_was_refused,
)
from simulation.state_invariants import (
    a_replica_leads,
    every_pod_without_a_node_is_queued_once,
    nothing_is_assumed_beyond_its_deadline,
    nothing_is_kept_of_pods_that_are_gone,
    the_books_equal_a_recount,
)
from simulation.storage import Change
from simulation.volume_invariants import (
    every_pod_whose_claims_would_do_is_bound,
    no_claim_of_one_pod_has_two,
    no_node_has_more_volumes_than_it_can_attach,
    no_volume_is_asked_for_where_there_is_no_space,
    no_volume_is_held_for_a_pod_that_is_not_bound,
    no_volume_is_held_for_a_pod_that_is_queued,
)

if TYPE_CHECKING:
    from simulation.world import Sent, World


# At every request.


def nobody_writes_while_another_holds_the_lease(world: "World", sent: "Sent") -> str | None:
    """Check that a replica without the lease writes nothing except the lease itself."""
    holder = world.books.holder
    if holder in {"", sent.identity} or "/leases" in sent.path:
        return None
    return f"{sent.identity} sends {sent.what} {sent.path} while {holder} holds it"


def no_pod_is_bound_to_a_second_node(world: "World", sent: "Sent") -> str | None:
    """Check that a replica that has bound a pod sends no Binding for another node."""
    if sent.what != "bind":
        return None
    body = orjson.loads(sent.body)
    uid, node = body["metadata"]["uid"], body["target"]["name"]
    bound = world.books.bound_by.get(uid)
    if bound is None or bound.by != sent.identity:
        return None
    there = bound.object["spec"]["nodeName"]
    return f"{sent.path} to {node}, and it is on {there}" if there != node else None


# At every change.

_LATE_WITH_CLAIMS: Final = 120.0
"""A claim is written up to four times before the Binding, each time for 30 s without an answer."""


def no_node_holds_more_than_it_has(world: "World", change: Change) -> str | None:
    """Check the resources that the pod requests; pods of other binders count if known."""
    if change.what != "bind":
        return None
    name = change.object["spec"]["nodeName"]
    decided_at = world.decisions.decided_at(change.by, change.object["metadata"]["uid"], change.at)
    there = known_pods(world, change.by, name, decided_at)
    used = _requested_by(PodSeen.read(change.object), sum((pod.need for pod in there), Amount()))
    late = _LATE_WITH_CLAIMS if _has_claims(change.object) else LATE_SECONDS
    had = [node.allocatable for node in known_nodes(world, change.by, name, late)]
    if any(amount.covers(used) for amount in had):
        return None
    return f"{name} has {had[-1] if had else 'nothing'}, its pods take {used}"


def _has_claims(pod: Mapping[str, Any]) -> bool:
    """Return whether claims are written or awaited between decision and Binding."""
    spec = pod["spec"]
    has_volumes = any("persistentVolumeClaim" in volume for volume in spec.get("volumes", ()))
    return bool(spec.get("resourceClaims") or has_volumes)


def _requested_by(pod: PodSeen, used: Amount) -> Amount:
    """Return the used amounts of only those resources that the pod requests.

    Other resources may be overcommitted if the node's name has returned. Resources that a class of
    devices stands for are left out, too.
    """
    wanted = {name for name, amount in pod.need.others if amount and name != EXTENDED}
    return Amount(
        used.cpu if pod.need.cpu else 0,
        used.memory if pod.need.memory else 0,
        used.pods,
        tuple((name, amount) for name, amount in used.others if name in wanted),
    )


def victims_go_only_where_somebody_needs_them(world: "World", change: Change) -> str | None:
    """Check that each eviction makes room for a pod of higher priority.

    This pod must have waited a moment before; the node must suit it and be large enough without
    pods of lower priority, as far as the replica knew. For a group that is disrupted as a whole,
    and for a victim of a group's preemption, any node is allowed: a victim in the same zone may
    keep members away.
    """
    by_replica = change.by.partition("-")[0] in world.replicas
    removes = change.what in {"evict", "delete pods"}
    if change.resource is not POD or not by_replica or not removes or change.before is None:
        return None
    victim = PodSeen.read(change.before)
    if queue_of(change.before) is not None:
        return None  # see no_queue_gives_more_than_it_has_borrowed
    if change.what == "evict" and victim.scheduler == MOVED:
        return None  # rebalancing has evicted it
    group = group_of(change.before)
    goes_with_others = group is not None and world.actor(Groups).is_whole(group)
    anywhere = goes_with_others or not victim.node  # it was being bound
    everywhere = world.books.nodes_lately(change.at)
    told = partial(world.server.watches.told, change.by, POD, "kopf")
    for pod in world.books.waited_lately(change.at, told):
        for_group = group_of(world.books.raw[pod.uid]) is not None
        names = everywhere if anywhere or for_group else [victim.node]
        needs = (_may_need(world, change.by, pod, name) for name in names)
        if pod.priority > victim.priority and any(needs):
            return None
    return f"{victim.key} of priority {victim.priority} leaves {victim.node}: nobody needs it"


def _may_need(world: "World", identity: str, pod: PodSeen, name: str) -> bool:
    """Return whether the pod would fit on the node without pods of lower priority."""
    others = _requested_by(pod, _others_need(world, pod, name))
    return any(
        is_suitable(world.books.raw[pod.uid], raw) and (node.allocatable - others).covers(pod.need)
        for raw, node in known_versions(world, identity, name)
    )


def _others_need(world: "World", preemptor: PodSeen, name: str) -> Amount:
    """Return the requests of pods that were on the node all the time and may not be evicted."""
    books = world.books
    stay = (
        pod
        for pod in books.on_node[name].values()
        if pod.priority >= preemptor.priority and pod.uid != preemptor.uid and not pod.leaving
    )
    return sum(
        (pod.need for pod in stay if not books.is_new(pod.uid, world.timeline.now)), Amount()
    )


# When all is calm.


def every_pod_that_a_node_would_take_is_bound(world: "World") -> str | None:
    """Check, some time after the last fault, that no pod waits that fits on a node."""
    books = world.books
    for pod in books.pods.values():
        if not books.waits(pod):
            continue
        fitting = [name for name in books.nodes if books.takes(name, pod)]
        if fitting and not kept_for_others(books, pod, fitting):
            return f"{pod.key} ({pod.uid}) waits, and {fitting} would take it"
    return None


# At the end.


def every_replica_stops_in_order(world: "World") -> str | None:
    """Check that SIGTERM ends a replica with exit code 0, and that the lease is then free.

    A replica that has just found another version of the API server ends with 1, as orderly.
    """
    codes = {replica.identity: replica.exit_code for replica in world.replicas.values()}
    now = f"1.{world.server.minor}"
    for replica in world.replicas.values():
        known = replica.scheduler
        version = known.engine.scheduler.state.server_version if known is not None else now
        if replica.exit_code not in ((0,) if version == now else (0, 1)):
            return f"the exit codes are {codes}"
    return f"{world.books.holder} has the lease still" if world.books.holder else None


def no_error_is_left_to_nobody(world: "World") -> str | None:
    """Check that no task or callback failed without code that handles the error."""
    for replica in world.replicas.values():
        for context in replica.loop.errors:
            return f"{replica.identity}: {context.get('message')}: {context.get('exception')!r}"
    return None


def no_task_is_left(world: "World") -> str | None:
    """Check that a stopped replica has ended all its tasks."""
    for replica in world.replicas.values():
        if replica.left_behind:
            return f"{replica.name} leaves {replica.left_behind[:3]}"
    return None


AT_EVERY_READ: Final[tuple[Callable[["World", "Sent"], str | None], ...]] = (
    no_token_is_used_long_after_it_was_refused,
)
AT_EVERY_REQUEST: Final[tuple[Callable[["World", "Sent"], str | None], ...]] = (
    no_token_is_used_long_after_it_was_refused,
    nobody_writes_while_another_holds_the_lease,
    no_pod_is_bound_to_a_second_node,
    no_pod_is_bound_that_was_seen_to_end,
    no_binding_of_a_gang_is_sent_before_its_minimum_has_nodes,
    an_eviction_is_told_in_the_status_before,
    no_pod_is_moved_in_vain,
    no_pod_is_moved_outside_of_the_windows,
    no_eviction_is_sent_that_a_budget_forbids,
    no_pod_is_evicted_a_second_time,
    own_evictions_are_charged,
    no_budget_is_charged_for_a_pod_that_stays,
    nobody_leaves_before_the_delay_of_the_preemption_is_over,
    no_preemption_has_more_victims_than_its_profile_allows,
    whoever_has_pods_evicted_is_nominated,
    no_volume_is_held_for_a_pod_that_is_queued,
    no_queue_gives_more_than_it_has_borrowed,
)
AT_EVERY_CHANGE: Final[tuple[Callable[["World", Change], str | None], ...]] = (
    no_node_holds_more_than_it_has,
    a_placement_keeps_the_constraints_of_its_pod,
    victims_go_only_where_somebody_needs_them,
    no_part_of_a_gang_is_bound,
    no_card_has_more_pods_than_memory,
    every_pod_that_requests_a_card_has_one,
    no_pod_is_bound_where_a_needed_extender_refuses_it,
    no_pod_is_bound_where_its_plugin_refuses_it,
    no_volume_is_taken_from_its_claim,
    the_volumes_of_a_bound_pod_are_on_its_node,
    no_device_is_allocated_twice,
    no_device_gives_more_than_it_has,
    the_devices_of_a_bound_pod_are_on_its_node,
    no_more_pods_are_moved_than_the_limits_say,
    no_workload_misses_more_pods_than_its_limit,
    no_claim_of_one_pod_has_two,
    no_node_has_more_volumes_than_it_can_attach,
    no_volume_is_asked_for_where_there_is_no_space,
    no_claim_has_devices_without_the_finalizer,
    no_claim_outlives_the_attempt_for_it,
    a_claim_gets_devices_that_suit_it,
    the_extended_resources_of_a_bound_pod_are_on_its_node,
    no_victim_has_run_for_less_than_its_profile_demands,
    nobody_takes_the_room_of_a_nominated_pod,
    no_queue_gets_more_than_it_may_use,
)
WHEN_CALM: Final[tuple[Callable[["World"], str | None], ...]] = (
    a_replica_leads,
    every_pod_that_a_node_would_take_is_bound,
    every_gang_that_a_node_would_take_is_bound,
    no_gang_is_in_two_hyper_nodes_of_the_lowest_tier,
    every_pod_without_a_node_is_queued_once,
    nothing_is_assumed_beyond_its_deadline,
    the_books_equal_a_recount,
    what_a_plugin_reserved_is_undone,
    no_claim_is_kept_for_a_pod_that_has_ended,
    the_claim_of_a_bound_pod_is_reserved_for_it,
    the_devices_in_use_equal_a_recount,
    every_pod_whose_devices_are_free_is_bound,
    no_place_is_kept_that_nobody_waits_for,
    no_claim_for_extended_resources_is_left,
    every_pod_whose_extended_resources_are_free_is_bound,
    every_pod_whose_claims_would_do_is_bound,
    no_volume_is_held_for_a_pod_that_is_not_bound,
    a_budget_allows_what_its_status_says,
    every_pod_that_preemption_would_place_is_placed,
    what_queues_use_equals_a_recount,
)
WHEN_EMPTY: Final[tuple[Callable[["World"], str | None], ...]] = (
    the_books_equal_a_recount,
    the_devices_in_use_equal_a_recount,
    what_queues_use_equals_a_recount,
    a_budget_allows_what_its_status_says,
    nothing_is_kept_of_pods_that_are_gone,
)
AT_THE_END: Final[tuple[Callable[["World"], str | None], ...]] = (
    every_replica_stops_in_order,
    no_error_is_left_to_nobody,
    no_task_is_left,
)
