"""Places groups on the live state; for small groups, a slow model tries every placement."""

import random
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deciding import Deciding
from device_builders import device_claim, device_class, request, resource_slice
from extending import put
from group_searching import (
    answered,
    apart,
    by_name,
    placed,
    placed_in_slices,
    search_for,
)
from mooring.extenders.verdicts import ExtenderResults
from mooring.groups.search.group_search import Assignment
from mooring.groups.search.search_budget import SearchBudget
from mooring.model.events import Kind
from mooring.model.node import parse_node
from mooring.model.pod import parse_pod
from mooring.testing.builders import node, pod
from pod_terms import near, to_pods

Raw = dict[str, Any]


def test_the_search_changes_nothing() -> None:
    deciding = Deciding(node("a", cpu="3"))
    placed(deciding, [pod(f"x{i}", cpu="1", affinity=apart("x")) for i in range(3)])
    assert len(deciding.state.pods) == 0


def test_trying_a_node_with_its_nominated_pods_takes_a_step_of_the_budget() -> None:
    names = [f"n{number}" for number in range(50)]
    members = [pod(f"x{number}", cpu="1", ports=[80]) for number in range(2)]

    def steps(*free: Raw, cpu: str = "4", port: int = 80) -> int:
        deciding = Deciding(*(node(name, cpu=cpu) for name in names), *free)
        budget = SearchBudget()
        for name in names:
            deciding.nominate(pod(f"to-{name}", cpu="3", priority=9, ports=[port]), name)
        before = budget.remaining
        found = search_for(deciding, members, budget=budget).place()
        assert found.complete is (bool(free) or port != 80)
        return before - budget.remaining

    assert steps() > len(names)
    assert steps(cpu="3") < len(names)  # requests alone say that the nominated pods leave no room
    assert steps(port=81) < 5  # the best nodes suffice
    assert steps(*(node(name, cpu="4") for name in "ab")) < 5


def test_removing_pods_for_a_search_takes_steps_of_the_budget() -> None:
    others = [pod(f"o{number}", node="a", cpu="10m") for number in range(200)]
    deciding, budget = Deciding(node("a", cpu="4"), *others), SearchBudget()
    search = search_for(deciding, [pod("x", cpu="1", ports=[80])], budget=budget)

    def steps(gone: list[Raw]) -> int:
        before = budget.remaining
        search.without([parse_pod(raw) for raw in gone]).place()
        return before - budget.remaining

    assert steps([]) < 5 <= steps(others)


def test_a_node_that_nominated_pods_bar_changes_no_scores_of_other_nodes() -> None:
    """Node c has nine times the taints of b: beside c the taint of b hardly counts."""
    taints = {"a": 0, "b": 1, "c": 9}
    nodes = [node(name, cpu="10", memory="10Gi") for name in taints]
    for raw, number in zip(nodes, taints.values(), strict=True):
        keys = (f"t{key}" for key in range(number))
        raw["spec"]["taints"] = [{"key": key, "effect": "PreferNoSchedule"} for key in keys]
    deciding = Deciding(*nodes, pod("big", node="a", cpu="8", memory="1Gi"))
    deciding.nominate(pod("nominated", cpu="1", priority=9, ports=[80]), "c")
    member = pod("x", cpu="1", ports=[80])
    assert deciding.decision(member).node == "a"
    assert by_name(deciding, placed(deciding, [member])) == {"x": "a"}


THREE_NODES = (node("a", cpu="4"), node("b", cpu="4"), node("c", cpu="4"))


@pytest.mark.parametrize("ports", [(), (80,)])
def test_the_scores_of_extenders_count_beside_those_of_plugins(ports: tuple[int, ...]) -> None:
    deciding = Deciding(*THREE_NODES)
    members = [pod(f"w{i}", cpu="1", ports=ports) for i in range(2)]
    scores = {"w0": [0, 0, 10_000], "w1": [0, 10_000, 0]}
    answers = answered({name: ["a", "b", "c"] for name in scores}, scores)
    found = by_name(deciding, placed(deciding, members, answers=answers))
    assert found == {"w0": "c", "w1": "b"}


def test_the_diagnosis_names_the_extender_with_its_reason() -> None:
    deciding = Deciding(*THREE_NODES)
    members = [pod(f"w{i}", cpu="3") for i in range(2)]
    search = search_for(deciding, members, answers=answered({"w0": ["a"], "w1": ["a"]}))
    assignment = search.place()
    assert len(assignment.rows) == 1
    found = search.diagnosis(assignment.rows, None)
    assert found is not None
    diagnosis, cause = found
    assert cause == "extender e: busy"
    text = "0/3 nodes are available: 1 Insufficient cpu, 2 extender e: busy."
    assert diagnosis.message == text
    assert "Extender" in diagnosis.plugins


@pytest.mark.parametrize("fields", [{}, {"ports": [80]}], ids=["counted", "one by one"])
def test_a_node_that_reserve_rejected_is_not_chosen_again(fields: dict[str, Any]) -> None:
    deciding = Deciding(node("a"), node("b"), node("c"))
    members = [pod("x", cpu="1", **fields), pod("y", cpu="1", **fields)]
    rejected: dict[str, list[str]] = {parse_pod(raw).uid: ["a"] for raw in members}
    assert "a" not in by_name(deciding, placed(deciding, members, rejected)).values()


@pytest.mark.parametrize("fields", [{}, {"ports": [80]}], ids=["counted", "one by one"])
def test_a_node_that_gets_the_row_of_one_that_reserve_rejected_may_be_chosen(
    fields: dict[str, Any],
) -> None:
    deciding = Deciding(node("small", cpu="1"), node("rejected"))
    members = [pod("x", cpu="2", **fields)]
    rejected: dict[str, list[str]] = {parse_pod(members[0]).uid: ["rejected"]}
    deciding.state.delete(Kind.NODE, "rejected")
    assert not placed(deciding, members, rejected).rows
    deciding.state.put(Kind.NODE, "new", parse_node(node("new")))
    assert by_name(deciding, placed(deciding, members, rejected)) == {"x": "new"}


@pytest.mark.deep
def test_what_is_found_in_slices_is_what_is_found_at_once() -> None:
    rng = random.Random(5)  # noqa: S311 - has to be repeatable
    pauses = 0
    for _ in range(100):
        members, nodes = drawn(rng)
        raws = [member.raw(f"m{i}") for i, member in enumerate(members)]
        sizes = [size.raw(f"n{i}") for i, size in enumerate(nodes)]
        whole = placed(Deciding(*sizes), raws)
        sliced, paused = placed_in_slices(Deciding(*sizes), raws)
        pauses += paused
        assert sliced == whole or (
            (sliced.rows, sliced.tries, sliced.impossible, sliced.cause)
            == (whole.rows, whole.tries, whole.impossible, whole.cause)
        )
    assert pauses > 100


@dataclass(frozen=True)
class Member:
    """A member of a group in the slow model."""

    cpu: int
    memory: int
    port: int | None
    rack: str | None
    app: str
    apart: bool
    passes: frozenset[int] | None = None
    """The nodes that an extender passes, by their number; None without an extender."""

    def raw(self, name: str) -> Raw:
        return pod(
            name,
            cpu=str(self.cpu),
            memory=f"{self.memory}Gi",
            ports=() if self.port is None else (self.port,),
            node_selector={"rack": self.rack} if self.rack else None,
            labels={"app": self.app},
            affinity=apart(self.app) if self.apart else None,
        )


@dataclass(frozen=True)
class Size:
    """A node in the slow model."""

    cpu: int
    memory: int
    pods: int
    rack: str
    number: int = 0

    def raw(self, name: str) -> Raw:
        labels = {"rack": self.rack}
        return node(
            name, cpu=str(self.cpu), memory=f"{self.memory}Gi", pods=self.pods, labels=labels
        )


def agree(on: list[Member], size: Size) -> bool:
    """Return whether these members can be together on one node of this size."""
    ports = [m.port for m in on if m.port is not None]
    return (
        sum(m.cpu for m in on) <= size.cpu
        and sum(m.memory for m in on) <= size.memory
        and len(on) <= size.pods
        and len(ports) == len(set(ports))
        and all(m.rack in (None, size.rack) for m in on)
        and all(m.passes is None or size.number in m.passes for m in on)
        and not any(
            m.apart and any(o.app == m.app for j, o in enumerate(on) if j != i)
            for i, m in enumerate(on)
        )
    )


def exists(members: list[Member], nodes: list[Size]) -> bool:
    """Return whether a placement of all members exists, by trying every placement."""
    on: list[list[Member]] = [[] for _ in nodes]
    seen: set[object] = set()

    def place(position: int) -> bool:
        if position == len(members):
            return True
        state = (position, tuple(tuple(sorted(map(repr, here))) for here in on))
        if state in seen:
            return False
        seen.add(state)
        for here, size in zip(on, nodes, strict=True):
            here.append(members[position])
            if agree(here, size) and place(position + 1):
                return True
            here.pop()
        return False

    return place(0)


def drawn(rng: random.Random) -> tuple[list[Member], list[Size]]:
    """Return a random group, and nodes about as large as the members that were put on them."""
    kinds = [
        Member(
            rng.randint(1, 6),
            rng.randint(1, 6),
            rng.choice((None, None, None, None, 80, 81)),
            rng.choice((None, None, None, "r1", "r2")),
            rng.choice("ab"),
            rng.random() < 0.2,
        )
        for _ in range(rng.randint(1, 3))
    ]
    sizes: list[list[Member]] = [[] for _ in range(rng.randint(2, 4))]
    members = [rng.choice(kinds) for _ in range(rng.randint(2, 7))]
    for member in members:
        rng.choice(sizes).append(member)
    nodes = [
        Size(
            sum(m.cpu for m in here) + rng.choice((-1, 0, 0, 1)),
            sum(m.memory for m in here) + rng.choice((0, 0, 1)),
            len(here) + rng.choice((0, 0, 2)),
            rng.choice(("r1", "r2")),
        )
        for here in sizes
    ]
    return members, [r if r.cpu > 0 else Size(0, r.memory, r.pods, r.rack) for r in nodes]


def searched(members: list[Member], nodes: list[Size]) -> tuple[Assignment, list[list[Member]]]:
    deciding = Deciding(*(size.raw(f"n{i}") for i, size in enumerate(nodes)))
    raws = [member.raw(f"m{i}") for i, member in enumerate(members)]
    answers = ExtenderResults()
    for member, raw in zip(members, raws, strict=True):
        if member.passes is not None:
            names = {f"n{i}" for i in range(len(nodes))}
            passed = [f"n{i}" for i in sorted(member.passes)]
            put(answers, raw, passed, names.difference(passed))
    assignment = placed(deciding, raws, answers=answers)
    on: list[list[Member]] = [[] for _ in nodes]
    for member, raw in zip(members, raws, strict=True):
        row = assignment.rows.get(parse_pod(raw).uid)
        if row is not None:
            on[int(deciding.state.nodes.names[row].removeprefix("n"))].append(member)
    return assignment, on


def with_extender(
    rng: random.Random, members: list[Member], nodes: list[Size]
) -> tuple[list[Member], list[Size]]:
    """Return the members and nodes; an extender passes only some nodes for some members."""
    numbers = range(len(nodes))
    passes = {
        member: frozenset(n for n in numbers if rng.random() < 0.8) if rng.random() < 0.8 else None
        for member in dict.fromkeys(members)
    }
    sizes = [replace(size, number=number) for number, size in enumerate(nodes)]
    return [replace(member, passes=passes[member]) for member in members], sizes


def test_at_least_98_percent_of_the_groups_that_fit_are_found() -> None:
    rng, feasible, found = random.Random(3), 0, 0  # noqa: S311 - has to be repeatable
    for _ in range(300):
        members, nodes = drawn(rng)
        if exists(members, nodes):
            feasible += 1
            assignment, _ = searched(members, nodes)
            found += assignment.complete
    assert feasible > 50
    assert found >= 0.98 * feasible


@settings(max_examples=60)
@given(st.integers(0, 2**32), st.booleans())
def test_no_group_is_placed_wrongly_or_wrongly_said_not_to_fit(seed: int, extender: bool) -> None:  # noqa: FBT001 - drawn
    rng = random.Random(seed)  # noqa: S311 - has to be repeatable
    members, nodes = drawn(rng)
    if extender:
        members, nodes = with_extender(rng, members, nodes)
    assignment, on = searched(members, nodes)
    assert all(agree(here, size) for here, size in zip(on, nodes, strict=True))
    assert assignment.complete == (sum(map(len, on)) == len(members))
    assert not (assignment.impossible and exists(members, nodes))


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
    beside = near(to_pods({"app": "lead"}))
    deciding = Deciding(node("a", cpu="8"), node("b", cpu="8"))
    members = [pod("w", cpu="4", affinity=beside), pod("lead", cpu="1", labels={"app": "lead"})]
    found = by_name(deciding, placed(deciding, members))
    assert found["w"] == found["lead"]


def test_members_whose_claims_ask_for_others_are_not_rejected_for_one_another() -> None:
    """The members share one spec; their template changed between the creation of claims."""

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
