"""Members that are placed in trials, one beside the other."""

from typing import Any

from deciding import Deciding
from group_searching import answered, apart, by_name, placed
from mooring.model.node import HOSTNAME
from mooring.testing.builders import node, pod
from mooring.testing.device_builders import device_claim, device_class, request, resource_slice

Raw = dict[str, Any]


THREE_NODES = (node("a", cpu="4"), node("b", cpu="4"), node("c", cpu="4"))


def test_members_with_inter_pod_terms_are_placed_beside_counted_ones() -> None:
    deciding = Deciding(node("a", cpu="3"), node("b", cpu="3"))
    members = [
        *[pod(f"w{i}", cpu="1", labels={"n": str(i)}) for i in range(4)],
        *[pod(f"x{i}", cpu="1", labels={"app": "x"}, affinity=apart("x")) for i in range(2)],
    ]
    found = by_name(deciding, placed(deciding, members))
    assert len(found) == 6
    assert found["x0"] != found["x1"]


def test_a_member_that_must_be_near_another_is_placed_after_it() -> None:
    term = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"app": "lead"}}}
    near = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    deciding = Deciding(node("a", cpu="8"), node("b", cpu="8"))
    members = [pod("w", cpu="4", affinity=near), pod("lead", cpu="1", labels={"app": "lead"})]
    found = by_name(deciding, placed(deciding, members))
    assert found["w"] == found["lead"]


def test_members_whose_claims_ask_for_others_are_not_rejected_for_one_another() -> None:
    """They have one spec if their claims were made of one template, which was made anew."""

    def member(name: str) -> Raw:
        spec = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "template"}]}
        made = [{"name": "gpu", "resourceClaimName": f"{name}-gpu"}]
        return pod(name, spec=spec, status={"resourceClaimStatuses": made})

    counts = {"old": 8, "new-1": 1, "new-2": 1}
    claims = [
        device_claim(f"{name}-gpu", request("r", count), owner=name)
        for name, count in counts.items()
    ]
    devices = resource_slice("own", ["d0", "d1"], node="a")
    deciding = Deciding(node("a"), device_class(), devices, *claims)
    found = by_name(deciding, placed(deciding, [member(name) for name in counts]))
    assert found == {"new-1": "a", "new-2": "a"}


def test_members_with_ports_are_placed_only_where_extenders_passed_them() -> None:
    deciding = Deciding(*THREE_NODES)
    members = [pod(f"w{i}", cpu="1", ports=(80,)) for i in range(2)]
    answers = answered({"w0": ["c"], "w1": ["c", "b"]})
    found = by_name(deciding, placed(deciding, members, answers=answers))
    assert found == {"w0": "c", "w1": "b"}
