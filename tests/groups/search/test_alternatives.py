"""Members of a group take later alternatives of their claims so that all members fit.

See kubernetes#138765.
"""

from collections import Counter
from typing import Any

import pytest

from deciding import Deciding
from device_builders import device_claim, device_class, resource_slice
from mooring.framework.post_filter import GroupNomination, GroupPreemption
from mooring.groups.search.alternatives import claims_with_alternatives
from mooring.groups.search.group_decision import GroupDecision, decide_group, preempt_for_group
from mooring.groups.search.group_search import SearchedMembers
from mooring.model.pod import Pod, parse_pod
from mooring.testing.builders import node, pod, pod_group

Raw = dict[str, Any]


def alternatives(*counts: int) -> Raw:
    """Return a request whose alternatives are these numbers of devices, the best first."""
    fields = {"deviceClassName": "gpu", "allocationMode": "ExactCount"}
    subs = [{"name": f"of-{count}", "count": count, **fields} for count in counts]
    return {"name": "r", "firstAvailable": subs}


def decided(
    devices: dict[str, int], *counts: int, members: int, minimum: int | None = None
) -> GroupDecision:
    """Return the decision about members whose claims have these alternatives.

    `devices` maps each node to its number of devices.
    """
    raws = [
        raw
        for name, count in devices.items()
        for raw in (
            node(name, cpu="8"),
            resource_slice(f"s-{name}", [f"{name}{n}" for n in range(count)], node=name),
        )
    ]
    names = [f"m{number}" for number in range(members)]
    claims = [device_claim(f"c-{name}", alternatives(*counts)) for name in names]
    group = pod_group("g", members if minimum is None else minimum)
    deciding = Deciding(*raws, device_class("gpu"), *claims, group)
    pods = [
        parse_pod(
            pod(
                name,
                group="g",
                spec={"resourceClaims": [{"name": "gpu", "resourceClaimName": f"c-{name}"}]},
            )
        )
        for name in names
    ]
    for member in pods:
        deciding.state.put_unscheduled(member)
    of = deciding.state.pod_groups.of(pods[0])
    assert of is not None
    searched = SearchedMembers(pods, deciding.pipeline, deciding.shared, seed=0)
    decision = decide_group(of, searched)
    books = deciding.state.dynamic_resources.claims
    assert not any(books.held(member.uid) for member in pods)
    assert [c.spec.requests[0].first_available[0].count for c in books.named_by(pods[0])] == [
        counts[0]
    ]
    return decision


def chosen(decision: GroupDecision) -> dict[str, int]:
    """Return how many members get each alternative, by the alternative's name."""
    found = [allocation for held in decision.devices.values() for allocation in held.values()]
    requests = Counter({result.request for result in each.results}.pop() for each in found)
    return {name.removeprefix("r/"): count for name, count in requests.items()}


def test_members_leave_devices_to_each_other() -> None:
    decision = decided({"a": 2}, 2, 1, members=2)
    assert len(decision.rows) == 2
    assert chosen(decision) == {"of-1": 2}


def test_no_device_is_given_twice() -> None:
    decision = decided({"a": 2}, 2, 1, members=2)
    found = [a for held in decision.devices.values() for a in held.values()]
    assert len({result.device for each in found for result in each.results}) == 2


@pytest.mark.parametrize(
    ("devices", "counts", "members", "expected"),
    [
        ({"a": 2, "b": 2}, (2, 1), 3, {"of-2": 1, "of-1": 2}),
        ({"a": 4}, (4, 2, 1), 2, {"of-2": 2}),
        ({"a": 4}, (4, 2, 1), 3, {"of-2": 1, "of-1": 2}),
        ({"a": 4}, (4, 2, 1), 4, {"of-1": 4}),
    ],
)
def test_as_few_claims_as_possible_get_later_alternatives(
    devices: dict[str, int], counts: tuple[int, ...], members: int, expected: dict[str, int]
) -> None:
    assert chosen(decided(devices, *counts, members=members)) == expected


def test_a_group_whose_members_fit_with_their_first_alternatives_gets_any_devices() -> None:
    decision = decided({"a": 2, "b": 2}, 2, 1, members=2)
    assert len(decision.rows) == 2
    assert not decision.devices


def test_the_minimum_is_placed_where_not_all_members_fit() -> None:
    decision = decided({"a": 2}, 2, 1, members=3, minimum=2)
    assert len(decision.rows) == 2
    assert decision.message.startswith("1 member beyond the minimum")


def test_a_group_that_fits_with_no_alternatives_is_told_so() -> None:
    decision = decided({"a": 2}, 2, 1, members=3)
    assert not decision.rows
    assert not decision.devices
    assert "1 of 3 members fit" in decision.message


def test_only_claims_with_a_choice_and_without_devices_are_changed() -> None:
    deciding = Deciding(
        device_claim("one", alternatives(1)),
        device_claim("exactly"),
        device_claim("choice", alternatives(2, 1)),
    )
    names = ("one", "exactly", "choice", "choice")
    entries = [{"name": str(n), "resourceClaimName": name} for n, name in enumerate(names)]
    member = parse_pod(pod("m", spec={"resourceClaims": entries}))
    searched = SearchedMembers([member], deciding.pipeline, deciding.shared, seed=0)
    assert [claim.name for claim in claims_with_alternatives(searched)] == ["choice"]


def gang_on_a_full_node(devices: int) -> tuple[Deciding, list[Pod]]:
    """Return a cluster with a full node, and two members that request two devices or one."""
    claims = [device_claim(f"c-m{number}", alternatives(2, 1)) for number in range(2)]
    slices = resource_slice("s", [f"a{number}" for number in range(devices)], node="a")
    low = [pod(f"low{number}", node="a", cpu="1", priority=number) for number in range(3)]
    group = pod_group("g", 2, priority=100)
    deciding = Deciding(node("a", cpu="3"), slices, device_class("gpu"), *claims, group, *low)
    members = [
        parse_pod(
            pod(
                f"m{number}",
                group="g",
                cpu="1",
                priority=100,
                spec={"resourceClaims": [{"name": "r", "resourceClaimName": f"c-m{number}"}]},
            )
        )
        for number in range(2)
    ]
    for member in members:
        deciding.state.put_unscheduled(member)
    return deciding, members


def preempted(deciding: Deciding, members: list[Pod]) -> GroupPreemption:
    group = deciding.state.pod_groups.of(members[0])
    assert group is not None
    pipeline, cache = deciding.pipeline, deciding.shared
    return preempt_for_group(group, members, pipeline, cache, seed=0, now=0.0)


def test_a_group_preempts_if_it_fits_then_with_later_alternatives() -> None:
    deciding, members = gang_on_a_full_node(devices=2)
    answer = preempted(deciding, members)
    assert isinstance(answer, GroupNomination)
    assert sorted(victim.name for victim in answer.victims) == ["low0", "low1"]
    assert answer.nodes == {member.uid: "a" for member in members}
    group = deciding.state.pod_groups.of(members[0])
    assert group is not None
    pipeline, cache, ended = deciding.pipeline, deciding.shared, answer.victims
    searched = SearchedMembers(members, pipeline, cache, seed=0, ended=ended)
    assert chosen(decide_group(group, searched)) == {"of-1": 2}


def test_nobody_is_evicted_for_a_group_that_fits_with_no_alternatives() -> None:
    answer = preempted(*gang_on_a_full_node(devices=1))
    assert not isinstance(answer, GroupNomination)
    assert answer.reason == (
        "preemption: the group does not fit without the pods of lower priority either."
    )
