"""Find the profile of a pod."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mooring.model.selectors import LabelSelector as CompiledSelector
from mooring.model.selectors import parse_label_selector
from mooring.policy.profile import SchedulingProfile
from mooring.policy.selectors import LabelSelector

__all__ = ["ProfileMatcher"]

_NAMESPACE_NAME = "kubernetes.io/metadata.name"


@dataclass(frozen=True, slots=True)
class _Rule:
    profile: str
    namespaces: CompiledSelector
    pods: CompiledSelector


class ProfileMatcher:
    """The compiled match rules of all profiles.

    If several profiles match a pod, the one with the highest precedence is used; of equal ones,
    the first by name. A matcher is immutable: a changed profile needs a new matcher.
    """

    def __init__(self, profiles: Iterable[SchedulingProfile]) -> None:
        self._rules: dict[str, list[_Rule]] = {}
        for profile in sorted(profiles, key=lambda p: (-p.spec.match.precedence, p.name)):
            match = profile.spec.match
            rule = _Rule(
                profile.name, _compiled(match.namespace_selector), _compiled(match.pod_selector)
            )
            for scheduler_name in profile.scheduler_names:
                self._rules.setdefault(scheduler_name, []).append(rule)

    def find(
        self,
        scheduler_name: str,
        namespace: str,
        namespace_labels: Mapping[str, str],
        pod_labels: Mapping[str, str],
    ) -> str | None:
        """The name of the pod's profile; None if no profile matches.

        The namespace's name counts as its label `kubernetes.io/metadata.name`, even if the
        Namespace object is not known yet.
        """
        rules = self._rules.get(scheduler_name, ())
        labels = {_NAMESPACE_NAME: namespace, **namespace_labels} if rules else {}
        for rule in rules:
            if rule.namespaces.matches(labels) and rule.pods.matches(pod_labels):
                return rule.profile
        return None


def _compiled(selector: LabelSelector | None) -> CompiledSelector:
    """The compiled selector; an absent one matches everything, like an empty one."""
    raw = selector.model_dump(mode="json", by_alias=True) if selector else {}
    return parse_label_selector(raw) or CompiledSelector()
