"""Converts trees of queues; the pods of a queue may use exactly as much as its limit was."""

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.model.manifest_error import ManifestError
from mooring.policy.imports.inclusive_quotas import converted
from mooring.policy.imports.written_queue import WrittenQueue
from mooring.quota.model.queue import inclusive_quotas, parse_queue
from mooring.quota.state.queue_tree import QueueState
from queue_files import imported, queue_object

CPU = "cpu"


class Team(NamedTuple):
    """A queue whose amounts of cpu include those of the queues below it."""

    name: str
    parent: str = ""
    quota: int = 0
    limit: int | None = None
    kept: int = 0

    @property
    def written(self) -> WrittenQueue:
        limits = {} if self.limit is None else {CPU: self.limit}
        quotas = inclusive_quotas({CPU: self.quota}, limits, {CPU: self.kept})
        return WrittenQueue(self.name, f"Queue {self.name}", self.parent, quotas)


def states(
    teams: list[Team], notes: list[str], capacity: Mapping[str, int]
) -> dict[str, QueueState]:
    """Convert the queues; return the states of the resulting Queues by name."""
    found = dict[str, QueueState]()
    queues, root = [team.written for team in teams], WrittenQueue("root", "the root")
    for number, written in enumerate(converted(queues, root, notes, capacity)):
        parsed = parse_queue(written.manifest())
        found[written.name] = QueueState(parsed, number, found.get(parsed.parent))
    found["root"].add_up({CPU: None})
    return found


@st.composite
def trees(draw: st.DrawFn) -> list[Team]:
    """Draw queues whose quotas include the quotas of the queues below, as schedulers demand."""
    queues = list[Team]()
    amounts = st.integers(0, 20)
    for department in "ab":
        teams = list[Team]()
        for team in range(draw(st.integers(0, 2))):
            quota = draw(amounts)
            limit = draw(st.none() | st.integers(quota, 40))
            teams.append(
                Team(f"{department}{team}", department, quota, limit, draw(st.integers(0, quota)))
            )
        kept = sum(team.kept for team in teams)
        quota = sum(team.quota for team in teams) + draw(amounts)
        limit = draw(st.none() | st.integers(quota, 99))
        queues += [Team(department, "", quota, limit, draw(st.integers(kept, quota))), *teams]
    return draw(st.permutations(queues))


@given(trees())
def test_a_queue_may_use_its_limit_beside_what_others_keep(queues: list[Team]) -> None:
    found = states(queues, [], {CPU: 200})
    most = {"": 200}
    for each in sorted(queues, key=lambda queue: queue.parent):
        siblings = [other for other in queues if other.parent == each.parent and other is not each]
        left = most[each.parent] - sum(other.kept for other in siblings)
        most[each.name] = min(left, left if each.limit is None else each.limit)
        if not found[each.name].children:
            assert found[each.name].available(CPU) == most[each.name]


@given(trees())
def test_queues_together_use_no_more_than_the_limit_above(queues: list[Team]) -> None:
    found = states(queues, [], {CPU: 200})
    used = Counter[str]()
    for each in queues:
        if not found[each.name].children:
            amount = found[each.name].available(CPU)
            found[each.name].charge({CPU: amount})
            used.update({name: amount for name in (each.name, each.parent) if name})
    for each in queues:
        assert used[each.name] <= (200 if each.limit is None else each.limit)
    assert sum(used[each.name] for each in queues if not each.parent) <= 200


@given(trees())
def test_each_queue_has_its_quota_and_all_together_what_the_nodes_have(
    queues: list[Team],
) -> None:
    found = states(queues, [], {CPU: 200})
    kept = {each.name: sum(c.kept for c in queues if c.parent == each.name) for each in queues}
    for each in queues:
        # What queues below keep for themselves is no part of what a Queue has.
        assert found[each.name].nominal[CPU] + kept[each.name] == each.quota
    reserved = sum(each.kept for each in queues if not each.parent)
    assert found["root"].nominal[CPU] + reserved == 200


def test_quotas_of_the_queues_below_count_where_that_above_is_less() -> None:
    notes = list[str]()
    found = states([Team("a", quota=5, limit=6), Team("b", "a", quota=8)], notes, {CPU: 20})
    assert found["a"].nominal[CPU] == 8
    assert notes == [
        "Queue a: the limit of cpu is below the quota: the Queues below it may use more"
    ]
    notes.clear()
    states([Team("a", quota=5), Team("b", "a", quota=8)], notes, {CPU: 20})
    assert notes == [
        "Queue a: the quota of cpu is less than those of the queues below it, which count"
    ]


def test_quotas_beyond_what_the_nodes_have_leave_nothing_to_lend_at_the_root() -> None:
    found = states([Team("a", quota=30)], [], {CPU: 20})
    assert (found["root"].queue.quotas, found["a"].nominal[CPU]) == ({}, 30)


def test_a_parent_that_is_not_in_the_file_is_noted() -> None:
    notes = list[str]()
    root = WrittenQueue("root", "")
    found = [*converted([Team("a", "gone", 1).written], root, notes, {})]
    assert {each.name: each.parent for each in found} == {"root": "", "a": "gone"}
    assert notes == ["Queue a: its parent gone is not in the file"]


@pytest.mark.parametrize("parents", [{"a": "a"}, {"a": "b", "b": "c", "c": "b"}])
def test_a_circle_of_parents_is_one_clear_line(parents: dict[str, str]) -> None:
    api = "scheduling.volcano.sh/v1beta1 Queue"
    queues = [queue_object(api, name, {"parent": parent}) for name, parent in parents.items()]
    with pytest.raises(ManifestError, match=r"^the parents form a circle: [abc] -> "):
        imported(queues)
