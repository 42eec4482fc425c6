"""Which profile a pod belongs to."""

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
    """The match rules of all profiles, compiled: asked once for every pod event.

    Of the profiles that match a pod the one with the highest precedence has it, then the first by
    name. Immutable: a changed profile means a new matcher.
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
        """The name of the pod's profile; None: the pod is not ours.

        A namespace always carries its name as label `kubernetes.io/metadata.name`, even where
        the Namespace object is not known yet.
        """
        rules = self._rules.get(scheduler_name, ())
        labels = {_NAMESPACE_NAME: namespace, **namespace_labels} if rules else {}
        for rule in rules:
            if rule.namespaces.matches(labels) and rule.pods.matches(pod_labels):
                return rule.profile
        return None


def _compiled(selector: LabelSelector | None) -> CompiledSelector:
    """An absent selector sets no condition, as an empty one."""
    raw = selector.model_dump(mode="json", by_alias=True) if selector else {}
    return parse_label_selector(raw) or CompiledSelector()
