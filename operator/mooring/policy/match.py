"""Finds the profile of a pod, and profiles that may match the same pods."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from heapq import nsmallest
from itertools import product
from typing import Final

from mooring.model.pod import Pod
from mooring.model.selectors import LabelSelector as CompiledSelector
from mooring.model.selectors import parse_label_selector
from mooring.model.workloads import NAMESPACE_NAME
from mooring.policy.label_selectors import LabelSelector
from mooring.policy.profile import SchedulingProfile

_MOST_NAMED: Final = 10
"""A message about profiles for the same pods names at most this many profiles."""
_EVERYTHING: Final = CompiledSelector()
"""The compiled form of an absent selector and of an empty selector."""


@dataclass(frozen=True, slots=True)
class _Rule:
    profile: str
    namespaces: CompiledSelector
    pods: CompiledSelector

    @property
    def reads_namespaces(self) -> bool:
        """Whether the rule reads labels of the namespace other than the label with its name."""
        return any(wanted.key != NAMESPACE_NAME for wanted in self.namespaces.requirements)


class ProfileMatcher:
    """The compiled match rules of all profiles; immutable.

    If several profiles match a pod, the profile with the highest precedence applies. If precedences
    are equal, the first profile by name applies.
    """

    def __init__(self, profiles: Iterable[SchedulingProfile]) -> None:
        self._rules: dict[str, list[_Rule]] = {}
        for profile in sorted(profiles, key=lambda p: (-p.spec.match.precedence, p.name)):
            match = profile.spec.match
            rule = _Rule(
                profile.name, compiled(match.namespace_selector), compiled(match.pod_selector)
            )
            for scheduler_name in profile.scheduler_names:
                self._rules.setdefault(scheduler_name, []).append(rule)

    def claimants(self, scheduler_name: str) -> tuple[str, ...]:
        """Return the profiles for pods with this `schedulerName`, by precedence and name."""
        return tuple(rule.profile for rule in self._rules.get(scheduler_name, ()))

    def outranked(self) -> Mapping[str, tuple[str, ...]]:
        """Return the profiles that never apply, each with the profiles that apply in its place.

        Only profiles with equal or empty selectors are compared.
        """
        taken: dict[str, list[str | None]] = {}
        for rules in self._rules.values():
            first: dict[tuple[CompiledSelector, CompiledSelector], str] = {}
            for rule in rules:
                wider = product((_EVERYTHING, rule.namespaces), (_EVERYTHING, rule.pods))
                by = next((first[each] for each in wider if each in first), None)
                taken.setdefault(rule.profile, []).append(by)
                first.setdefault((rule.namespaces, rule.pods), rule.profile)
        return {name: tuple(sorted({*filter(None, by)})) for name, by in taken.items() if all(by)}

    def reads_namespaces(self, scheduler_name: str) -> bool:
        """Return whether namespace labels decide which profile takes pods with this scheduler name.

        The label with the namespace's name does not count.
        """
        return any(rule.reads_namespaces for rule in self._rules.get(scheduler_name, ()))

    def scheduler_names(self) -> Collection[str]:
        """Return every `schedulerName` that a profile matches."""
        return self._rules.keys()

    def find(self, pod: Pod, namespace_labels: Mapping[str, str]) -> str | None:
        """Return the name of the pod's profile; None if no profile matches.

        The namespace's name counts as its label `kubernetes.io/metadata.name`, even if the
        Namespace object is not known yet.
        """
        rules = self._rules.get(pod.spec.scheduler_name, ())
        labels = {NAMESPACE_NAME: pod.namespace, **namespace_labels} if rules else {}
        for rule in rules:
            if rule.namespaces.matches(labels) and rule.pods.matches(pod.labels):
                return rule.profile
        return None


def compiled(selector: LabelSelector | None) -> CompiledSelector:
    """Return the compiled selector; absent and empty selectors match everything."""
    if selector is None:
        return _EVERYTHING
    return parse_label_selector(selector.model_dump(mode="json", by_alias=True)) or _EVERYTHING


def may_share_pods(one: SchedulingProfile, other: SchedulingProfile) -> bool:
    """Return whether a pod could match both profiles, and their mode and precedence are equal."""
    a, b = one.spec.match, other.spec.match
    return (
        one.spec.mode == other.spec.mode
        and a.precedence == b.precedence
        and not {*one.scheduler_names}.isdisjoint(other.scheduler_names)
        and _can_both_match(a.namespace_selector, b.namespace_selector)
        and _can_both_match(a.pod_selector, b.pod_selector)
    )


def conflict_in_short(name: str, others: Collection[str]) -> str:
    """Return `outranked by NAME` if one of `others` applies before `name`, else `outranks NAME`."""
    # Of equal profiles, the first by name applies. The text names only one profile, so that it
    # seldom changes.
    outranking = _first(1, (other for other in others if other < name))
    return f"outranked by {outranking}" if outranking else f"outranks {_first(1, others)}"


def conflict_text(name: str, others: Collection[str]) -> str:
    """Return a sentence with the profiles that outrank `name`, and those that `name` outranks."""
    above = _first(_MOST_NAMED, (other for other in others if other < name))
    below = _first(_MOST_NAMED, (other for other in others if other > name))
    ranks = [f"outranked by {above}"] if above else []
    ranks += [f"outranks {below}"] if below else []
    who = "both" if len(others) == 1 else "they"
    return (
        f"{' and '.join(ranks)}: {who} may match the same pods, with the same precedence, and the "
        "first by name takes them; set match.precedence, or select other pods"
    )


def _first(most: int, names: Iterable[str]) -> str:
    first = nsmallest(most + 1, names)
    return ", ".join(first[:most]) + (" and others" if len(first) > most else "")


@dataclass(slots=True)
class _LabelConstraint:
    """All requirements on one label; `allowed` is None if every value is allowed."""

    allowed: frozenset[str] | None = None
    excluded: frozenset[str] = frozenset()
    present: bool = False
    absent: bool = False

    def add(self, operator: str, values: Iterable[str]) -> None:
        match operator:
            case "In":
                given = frozenset(values)
                self.allowed = given if self.allowed is None else self.allowed & given
                self.present = True
            case "NotIn":
                self.excluded |= frozenset(values)
            case "Exists":
                self.present = True
            case _:
                self.absent = True

    @property
    def possible(self) -> bool:
        if self.present and self.absent:
            return False
        return self.allowed is None or bool(self.allowed - self.excluded)


def _can_both_match(*selectors: LabelSelector | None) -> bool:
    wanted: dict[str, _LabelConstraint] = {}
    for selector in filter(None, selectors):
        for key, value in selector.match_labels.items():
            wanted.setdefault(key, _LabelConstraint()).add("In", (value,))
        for expression in selector.match_expressions:
            label = wanted.setdefault(expression.key, _LabelConstraint())
            label.add(expression.operator, expression.values)
    return all(label.possible for label in wanted.values())
