"""The calls of extenders that a decision about a group needs, with and without earlier answers."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from deciding import Deciding
from driving import driven
from mooring.extenders.verdicts import ExtenderResults, Needed
from mooring.groups.search.extender_calls import needed_about
from mooring.model.pod import Pod, parse_pod
from mooring.testing.builders import node, pod
from pod_terms import near, to_pods

FILTERS = {"urlPrefix": "http://e", "filterVerb": "filter"}
GPU = "acme.io/gpu"


def members(count: int, **fields: Any) -> list[Pod]:
    return [parse_pod(pod(f"w{i}", **fields)) for i in range(count)]


class Calls:
    """A cluster with extenders, and the extenders' answers about the members of a group."""

    def __init__(self, *nodes: dict[str, Any], extenders: Sequence[Any] = (FILTERS,)) -> None:
        self.deciding = Deciding(*nodes, extenders=[*extenders])
        self.answers = ExtenderResults()
        self.about = (
            self.deciding.pipeline,
            self.deciding.shared,
            self.answers,
        )

    def needed(self, group: list[Pod], *, again: bool = False) -> list[Needed]:
        return [*needed_about(group, *self.about, again=again)]

    def all_pass(self, group: list[Pod], *, again: bool = False) -> int:
        """Let every sent node pass; return for how many members extenders were asked."""
        needed = self.needed(group, again=again)
        for each in needed:
            self.answers.put(each, each.nodes, {}, {})
        return len(needed)


def test_extenders_are_asked_about_each_of_equal_members_some_at_a_time() -> None:
    calls, group = Calls(node("a")), members(300)
    assert [calls.all_pass(group) for _ in range(4)] == [128, 128, 44, 0]


def test_nodes_that_fit_only_beside_other_members_are_sent() -> None:
    beside = near(to_pods({"app": "lead"}))
    calls = Calls(node("a"), node("b", cpu="1"), node("c", taints=["own:NoSchedule"]))
    (needed,) = calls.needed(members(1, affinity=beside, cpu="2"))
    assert needed.nodes == ("a",)


def test_a_member_that_fits_nowhere_is_sent_without_nodes() -> None:
    (needed,) = Calls(node("a", cpu="1")).needed(members(1, cpu="2"))
    assert needed.nodes == ()


def test_members_that_no_extender_filters_or_scores_are_passed_over() -> None:
    gpu = {**FILTERS, "managedResources": [{"name": GPU}]}
    binder = {"urlPrefix": "http://b", "bindVerb": "bind"}
    calls = Calls(node("a", resources={GPU: 8}), extenders=(gpu, binder))
    plain, with_gpu = parse_pod(pod("plain")), parse_pod(pod("gpu", requests={GPU: 1}))
    assert [needed.pod for needed in calls.needed([plain, with_gpu])] == [with_gpu]


def test_members_whose_passed_nodes_were_taken_are_asked_about_again_a_few_times() -> None:
    calls = Calls(*(node(f"n{i}", cpu="1") for i in range(6)))
    group, again = members(2, cpu="1"), list[int]()
    calls.all_pass(group)
    for number in range(5):
        calls.deciding.place(pod(f"other-{number}", cpu="1"), f"n{number}")
        assert calls.all_pass(group) == 0
        again.append(calls.all_pass(group, again=True))
    assert again == [2, 2, 2, 2, 0]


def test_members_whose_passed_nodes_all_fit_are_not_asked_about_again() -> None:
    calls, group = Calls(node("a"), node("b")), members(2, cpu="1")
    calls.all_pass(group)
    calls.deciding.place(pod("other", cpu="1"), "a")
    assert calls.needed(group, again=True) == []


def test_members_with_requirements_of_their_own_are_looked_at_in_slices() -> None:
    calls = Calls(node("a"))
    group = [parse_pod(pod(f"w{i}", cpu=f"{i + 1}m")) for i in range(5)]
    assert driven(partial(calls.all_pass, group)) == (5, 5)
    assert driven(partial(calls.all_pass, group, again=True)) == (0, 10)
