"""What a group that does not fit is said to lack makes it fit, and nothing of it is for nothing.

The engine itself decides about the group beside a node of what the message says.
"""

import re
from collections.abc import Mapping

from hypothesis import assume, given
from hypothesis import strategies as st

from deciding import Deciding
from group_searching import search_for
from mooring.groups.search.group_decision import GroupDecision, decide_group
from mooring.model.pod import parse_pod
from mooring.testing.builders import node, pod, pod_group

Amounts = Mapping[str, str]

GPU = "nvidia.com/gpu"
AMPLE = {"cpu": "1000", "memory": "1000Gi", "pods": "1000", GPU: "1000"}
LACK = re.compile(r"fit, needs (.+?) more")
UNITS = {"CPUs": "cpu", "GiB of memory": "memory", "pod slots": "pods", GPU: GPU}
NODES = st.fixed_dictionaries(
    {
        "cpu": st.sampled_from(("0", "1500m", "2", "4", "7")),
        "memory": st.sampled_from(("1Gi", "4Gi", "6500Mi")),
        "pods": st.sampled_from(("0", "1", "3", "110")),
        GPU: st.sampled_from(("0", "1", "4")),
    }
)
MEMBERS = st.tuples(
    st.fixed_dictionaries(
        {
            "cpu": st.sampled_from(("500m", "1", "1750m", "3")),
            "memory": st.sampled_from(("1", "700Mi", "3Gi")),
        },
        optional={GPU: st.sampled_from(("1", "2"))},
    ),
    st.integers(1, 5),
)


def decided(nodes: list[Amounts], kinds: list[tuple[Amounts, int]]) -> GroupDecision:
    """Return the decision about a gang with so many members that request these amounts each."""
    raws = [
        pod(f"m{kind}-{number}", group="g", requests=amounts)
        for kind, (amounts, members) in enumerate(kinds)
        for number in range(members)
    ]
    offered = (node(f"n{number}", resources=amounts) for number, amounts in enumerate(nodes))
    deciding = Deciding(*offered, pod_group("g", len(raws)))
    pods = [parse_pod(raw) for raw in raws]
    for one in pods:
        deciding.state.put_unscheduled(one)
    group = deciding.state.pod_groups.of(pods[0])
    assert group is not None
    return decide_group(group, search_for(deciding, raws).searched)


def lacking(message: str) -> dict[str, str]:
    """Return what the message says is missing, as amounts of a node."""
    found = LACK.search(message)
    amounts: dict[str, str] = {}
    for text in found[1].split(" and ") if found else ():
        amount, unit = text.split(" ", 1)
        resource = UNITS[unit]
        amounts[resource] = f"{amount}Gi" if resource == "memory" else amount
    return amounts


@given(st.lists(NODES, min_size=1, max_size=4), st.lists(MEMBERS, min_size=1, max_size=2))
def test_a_node_with_what_is_said_to_be_missing_makes_the_group_fit(
    nodes: list[Amounts], kinds: list[tuple[Amounts, int]]
) -> None:
    decision = decided(nodes, kinds)
    assume(not decision.rows)
    missing = lacking(decision.message)
    assert missing, decision.message
    assert decided([*nodes, AMPLE | missing], kinds).rows, decision.message
    for resource in missing:
        others = {name: AMPLE[name] for name in missing if name != resource}
        assert not decided([{**each, **others} for each in nodes], kinds).rows, decision.message
