from typing import Any

from mooring.model.pod import Pod, parse_pod
from mooring.model.selectors import parse_label_selector
from mooring.state.topology.equivalent_pods import (
    EquivalenceTable,
    EquivalentPods,
    OwnedTerm,
    Role,
    key_of,
)
from mooring.state.topology.pod_selection import PodSelector, Selection, selection
from mooring.testing.builders import pod
from pod_terms import apart, to_pods

HARD = "requiredDuringSchedulingIgnoredDuringExecution"
SOFT = "preferredDuringSchedulingIgnoredDuringExecution"
WEB = {"app": "web"}
TO_WEB = to_pods(WEB, "zone")
APART = apart(TO_WEB)


def parsed(**fields: Any) -> Pod:
    return parse_pod(pod(**{"labels": WEB} | fields))


def add(table: EquivalenceTable, pod: Pod) -> EquivalentPods:
    return table.add(pod, key_of(pod))


def find(table: EquivalenceTable, pod: Pod) -> EquivalentPods | None:
    return table.find(key_of(pod))


def about(table: EquivalenceTable, role: Role, labels: dict[str, str]) -> list[OwnedTerm]:
    return list(table.terms[role].selecting("default", {}, labels))


def pods(labels: dict[str, str], *namespaces: str) -> Selection:
    selector = parse_label_selector({"matchLabels": labels})
    every = parse_label_selector({}) if not namespaces else None
    part = PodSelector(selector, frozenset(namespaces), every)
    return selection((part,), terminating=True)


def test_pods_with_the_same_namespace_labels_and_terms_are_equivalent() -> None:
    table = EquivalenceTable()
    equivalent = add(table, parsed(name="a", cpu="1", affinity=APART))
    assert find(table, parsed(name="b", cpu="2", affinity=APART)) is equivalent


def test_pods_that_differ_in_namespace_labels_terms_or_termination_are_not_equivalent() -> None:
    table = EquivalenceTable()
    add(table, parsed())
    assert find(table, parsed(namespace="team-a")) is None
    assert find(table, parsed(labels={**WEB, "tier": "1"})) is None
    assert find(table, parsed(affinity=APART)) is None
    assert find(table, parsed(terminating=True)) is None


def test_equivalent_pods_are_found_by_the_labels_a_selection_requires() -> None:
    table = EquivalenceTable()
    web = add(table, parsed(labels={**WEB, "tier": "1"}))
    add(table, parsed(labels={"app": "db"}))
    there = add(table, parsed(namespace="team-a"))
    assert list(table.candidates(pods(WEB, "default"))) == [web]
    assert set(table.candidates(pods(WEB))) == {web, there}
    assert list(table.candidates(pods(WEB, "elsewhere"))) == []


def test_dropped_pods_are_found_no_more() -> None:
    table = EquivalenceTable()
    equivalent = add(table, parsed())
    assert table.having("default", None) == (equivalent,)
    table.drop(equivalent)
    assert find(table, parsed()) is None
    assert table.having("default", None) == ()
    assert list(table.candidates(pods(WEB))) == []


def test_each_term_of_a_pod_has_its_role_and_weight() -> None:
    weighted = [{"weight": 7, "podAffinityTerm": TO_WEB}]
    equivalent = add(
        EquivalenceTable(),
        parsed(
            affinity={
                "podAffinity": {HARD: [TO_WEB], SOFT: weighted},
                "podAntiAffinity": {HARD: [TO_WEB], SOFT: weighted},
            }
        ),
    )
    assert [(term.role, term.weight) for term in equivalent.terms] == [
        (Role.REQUIRED, 1),
        (Role.FORBIDDEN, 1),
        (Role.PREFERRED, 7),
        (Role.PREFERRED, -7),
    ]


def test_different_pods_with_the_same_term_own_it_together() -> None:
    table = EquivalenceTable()
    owners = [add(table, parsed(labels={**WEB, "n": n}, affinity=APART)) for n in "12"]
    (term,) = about(table, Role.FORBIDDEN, WEB)
    assert term.owners == set(owners)
    assert about(table, Role.FORBIDDEN, {"app": "db"}) == []
    assert about(table, Role.REQUIRED, WEB) == []


def test_a_term_is_dropped_with_its_last_owner() -> None:
    table = EquivalenceTable()
    first, last = (add(table, parsed(labels={**WEB, "n": n}, affinity=APART)) for n in "12")
    assert table.drop(first) == []
    (term,) = about(table, Role.FORBIDDEN, WEB)
    assert table.drop(last) == [term]
    assert about(table, Role.FORBIDDEN, WEB) == []


def test_pods_that_come_back_are_added_anew() -> None:
    table = EquivalenceTable()
    before: EquivalentPods = add(table, parsed(affinity=APART))
    table.drop(before)
    after = add(table, parsed(affinity=APART))
    assert after is not before
    assert about(table, Role.FORBIDDEN, WEB) == list(after.terms)
