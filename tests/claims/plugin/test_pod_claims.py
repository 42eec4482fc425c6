"""The functions of pod_claims.py; `test_plugin.py` tests how the plugin uses their results."""

from typing import Any

import pytest

from device_builders import (
    allocated,
    device_claim,
    device_class,
    device_result,
    group_consumer,
    request,
)
from mooring.claims.model.resource_claims import ResourceClaim, parse_resource_claim
from mooring.claims.plugin.pod_claims import (
    PodClaims,
    binding_failure,
    claims_of,
    is_bindable,
    is_reserved,
    may_be_freed,
    pod_claims,
)
from mooring.framework.verdicts import PluginError, Unschedulable
from mooring.model.pod import Pod, parse_pod
from mooring.state.cluster import ClusterState
from mooring.state.cluster_view import ClusterView
from mooring.testing.builders import cluster, node, pod, pod_group, uid_of

N1, GPU = node("n1"), device_class("gpu")


def using(*names: str, name: str = "web", **fields: Any) -> Pod:
    entries = [{"name": f"e{i}", "resourceClaimName": each} for i, each in enumerate(names)]
    return parse_pod(pod(name, spec={"resourceClaims": entries}, **fields))


def found(wanted: Pod, state: ClusterState) -> PodClaims:
    claims = pod_claims(wanted, ClusterView(state))
    assert isinstance(claims, PodClaims)
    return claims


def test_a_claim_that_is_named_twice_is_one_claim() -> None:
    state = cluster(device_claim("a"), device_claim("b"))
    claims = claims_of(using("b", "a", "b"), ClusterView(state))
    assert isinstance(claims, list)
    assert [claim.name for claim in claims] == ["b", "a"]


def test_claims_are_allocated_or_still_to_be() -> None:
    state = cluster(
        GPU, device_claim("a", allocation=allocated("d0", node="n1")), device_claim("b")
    )
    claims = found(using("a", "b"), state)
    assert [claim.name for claim in claims.to_allocate] == ["b"]
    (selector,) = claims.node_selectors
    assert selector.matches("n1", {})
    assert not selector.matches("n2", {})


def shared(holder: dict[str, Any]) -> ClusterState:
    """Return a cluster in which the claim `claim` is in flight for the pod `holder`."""
    state = cluster(N1, GPU, pod_group("g", 2), device_claim())
    first = parse_pod(holder)
    state.assume(first, state.nodes.row_of["n1"])
    claim = parse_resource_claim(device_claim(allocation=allocated("d0", node="n1")))
    assert claim.allocation is not None
    state.hold_claims(first.uid, {claim.uid: claim.allocation})
    return state


def test_members_of_a_group_share_what_one_of_them_is_being_allocated() -> None:
    claims = found(using("claim", name="b", group="g"), shared(pod("a", group="g")))
    assert claims.to_allocate == []
    assert [each.matches("n1", {}) for each in claims.node_selectors] == [True]


@pytest.mark.parametrize(
    ("holder", "group"), [(pod("a"), "g"), (pod("a", group="g"), None), (pod("a"), None)]
)
def test_others_wait_until_it_is_allocated(holder: dict[str, Any], group: str | None) -> None:
    wanted = using("claim", name="b", group=group)
    assert pod_claims(wanted, ClusterView(shared(holder))) == Unschedulable(
        "resource claim default/claim is in the process of being allocated"
    )


def test_a_request_without_a_class_is_an_error() -> None:
    state = cluster(GPU, device_claim("claim", request("r", device_class="")))
    with pytest.raises(PluginError, match="request r: unsupported request type"):
        pod_claims(using("claim"), ClusterView(state))


def test_a_claim_is_reserved_for_a_pod_of_this_uid() -> None:
    claim = parse_resource_claim(device_claim(reserved_for=["web"]))
    view = ClusterView(cluster())
    assert is_reserved(claim, using("claim"), view)
    assert not is_reserved(claim, using("claim", name="db"), view)


GROUPS_OWN = [{"name": "e0", "resourceClaimName": "claim"}]
"""An entry that a group and the pods of `using("claim")` have in common."""


def test_a_claim_is_reserved_for_the_group_of_a_pod_that_has_the_same_entry() -> None:
    claim = parse_resource_claim(device_claim(status={"reservedFor": [group_consumer("g")]}))
    view = ClusterView(cluster(pod_group("g", 2, claims=GROUPS_OWN), pod_group("h", 2)))
    assert is_reserved(claim, using("claim", group="g"), view)
    assert not is_reserved(claim, using("claim", group="h"), view)
    assert not is_reserved(claim, using("other", "claim", group="g"), view)


def of_template(group: str | None = None) -> Pod:
    """Return a pod for which the claim `claim` was created from a template."""
    entries = [{"name": "gpu", "resourceClaimTemplateName": "one"}]
    statuses = [{"name": "gpu", "resourceClaimName": "claim"}]
    raw = pod("web", group=group, spec={"resourceClaims": entries})
    raw["status"] = {"resourceClaimStatuses": statuses}
    return parse_pod(raw)


def test_a_pod_uses_the_claim_that_was_created_for_it_or_for_its_group() -> None:
    own = [{"name": "gpu", "resourceClaimTemplateName": "one"}]
    group = pod_group("g", 2, claims=own)
    for claim, wanted in (
        (device_claim(owner="web"), of_template()),
        (device_claim(group="g"), of_template("g")),
    ):
        view = ClusterView(cluster(group, claim))
        claims = claims_of(wanted, view)
        assert isinstance(claims, list)
        assert [claim.name for claim in claims] == ["claim"]
    view = ClusterView(cluster(group, device_claim(owner="another")))
    assert claims_of(of_template(), view) == Unschedulable(
        "ResourceClaim default/claim was not created for Pod default/web (Pod is not owner)"
    )
    assert claims_of(of_template("g"), view) == Unschedulable(
        "ResourceClaim default/claim was not created for Pod default/web "
        "(neither Pod nor PodGroup g is the owner)"
    )


@pytest.mark.parametrize(
    ("reserved_for", "others", "expected"),
    [
        ((), (), True),
        (("a",), (), True),
        (("a", "b"), (), True),
        (("a", "b"), (pod("b", group="g", node="n1"),), False),
        (("a", "elsewhere"), (), False),
        (("g",), (), True),
        (("g",), (pod("c", group="g", node="n1"),), False),
        (("g",), (pod("c", group="g", node="n1", terminating=True),), False),
    ],
)
def test_a_claim_may_be_freed_if_no_pod_on_a_node_uses_it(
    reserved_for: tuple[str, ...], others: tuple[dict[str, Any], ...], *, expected: bool
) -> None:
    state = cluster(N1, pod_group("g", 2, claims=GROUPS_OWN), *others)
    for name in ("a", "b"):
        if state.pods.get(uid_of(name)) is None:
            state.put_unscheduled(using("claim", name=name, group="g"))
    pods = [{"resource": "pods", "name": p, "uid": uid_of(p)} for p in reserved_for if p != "g"]
    consumers = [*pods, *([group_consumer("g")] if "g" in reserved_for else [])]
    raw = device_claim(allocation=allocated("d0", node="n1"), status={"reservedFor": consumers})
    claim, wanted = parse_resource_claim(raw), using("claim", name="a", group="g")
    assert may_be_freed(claim, wanted, ClusterView(state)) is expected


def bound(*told: tuple[str, dict[str, str]]) -> ResourceClaim:
    """Return a claim with two devices that must be attached; `told` has conditions by device."""
    results = [
        device_result(name, bindingConditions=["Attached"], bindingFailureConditions=["Failed"])
        for name in ("d0", "d1")
    ]
    statuses = [
        device_result(name, conditions=[{"type": t, "status": s} for t, s in conditions.items()])
        for name, conditions in told
    ]
    return parse_resource_claim(
        device_claim(allocation=allocated(*results), status={"devices": statuses})
    )


@pytest.mark.parametrize(
    ("told", "bindable", "failed"),
    [
        ([], False, False),
        ([("d0", {"Attached": "True"})], False, False),
        ([("d0", {"Attached": "True"}), ("d1", {"Attached": "True"})], True, False),
        ([("d0", {"Attached": "True"}), ("d1", {"Failed": "True"})], False, True),
        ([("d1", {"Failed": "True"})], False, False),
        ([("d0", {"Failed": "True", "Attached": "True"})], False, True),
    ],
)
def test_devices_are_bound_or_fail_in_the_order_of_the_allocation(
    told: list[tuple[str, dict[str, str]]],
    bindable: bool,  # noqa: FBT001 - a column
    failed: bool,  # noqa: FBT001 - a column
) -> None:
    claim = bound(*told)
    assert (is_bindable(claim), binding_failure(claim) is not None) == (bindable, failed)


def test_a_claim_without_binding_conditions_is_bindable() -> None:
    assert is_bindable(parse_resource_claim(device_claim(allocation=allocated("d0"))))
