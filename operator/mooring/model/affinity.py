"""Inter-pod affinity terms and topology spread constraints of a pod's spec."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

from mooring.model.fields import integer, mapping, mappings, optional_mapping, text, texts
from mooring.model.paused_reading import collected
from mooring.model.selectors import LabelSelector, parse_label_selector


@dataclass(frozen=True, slots=True)
class AffinityTerm:
    """An inter-pod affinity term: the pods that it selects, and the topology key of its domains.

    `namespaces` is the term's list, or the pod's own namespace if the term has neither a list nor a
    selector. `namespace_selector` adds the namespaces that it matches. The API server has already
    merged matchLabelKeys and mismatchLabelKeys into `selector`.
    """

    selector: LabelSelector | None
    topology_key: str
    namespaces: frozenset[str]
    namespace_selector: LabelSelector | None


@dataclass(frozen=True, slots=True)
class WeightedAffinityTerm:
    """A preferred term and its weight (1 to 100); the weight is negative for anti-affinity."""

    weight: int
    term: AffinityTerm


@dataclass(frozen=True, slots=True)
class PodAffinity:
    """The inter-pod terms of a pod; in `preferred`, anti-affinity terms have negative weights."""

    required: tuple[AffinityTerm, ...] = ()
    required_anti: tuple[AffinityTerm, ...] = ()
    preferred: tuple[WeightedAffinityTerm, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether the pod has no inter-pod term."""
        return not (self.required or self.required_anti or self.preferred)

    @property
    def term_count(self) -> int:
        """The number of all inter-pod terms."""
        return len(self.required) + len(self.required_anti) + len(self.preferred)


@dataclass(frozen=True, slots=True)
class SpreadConstraint:
    """A topologySpreadConstraint with the API's defaults filled in.

    `hard` is True for DoNotSchedule, `honor_affinity` and `honor_taints` for the policy Honor.
    """

    max_skew: int
    topology_key: str
    hard: bool
    selector: LabelSelector | None
    min_domains: int = 1
    honor_affinity: bool = True
    honor_taints: bool = False
    match_label_keys: tuple[str, ...] = ()


def parse_pod_affinity(raw: Mapping[str, Any], namespace: str) -> PodAffinity:
    """Parse the inter-pod terms of `spec.affinity`; raise ManifestError if a field is malformed."""
    where = "spec.affinity"
    affinity, anti = mapping(raw, "podAffinity", where), mapping(raw, "podAntiAffinity", where)
    hard, soft = (
        "requiredDuringSchedulingIgnoredDuringExecution",
        "preferredDuringSchedulingIgnoredDuringExecution",
    )
    to, away = f"{where}.podAffinity", f"{where}.podAntiAffinity"
    preferred = chain(
        _weighted(affinity, soft, to, namespace, 1), _weighted(anti, soft, away, namespace, -1)
    )
    return PodAffinity(
        required=collected(_terms(affinity, hard, to, namespace)),
        required_anti=collected(_terms(anti, hard, away, namespace)),
        preferred=collected(preferred),
    )


def spread_constraints_of(raw: Iterable[Mapping[str, Any]]) -> Iterator[SpreadConstraint]:
    """Yield the parsed constraints of a spec; raise ManifestError if a field is malformed."""
    return (_constraint(c, f"spec.topologySpreadConstraints[{i}]") for i, c in enumerate(raw))


def _constraint(raw: Mapping[str, Any], where: str) -> SpreadConstraint:
    selector = optional_mapping(raw, "labelSelector", where)
    return SpreadConstraint(
        max_skew=integer(raw, "maxSkew", where) or 0,
        topology_key=text(raw, "topologyKey", where),
        hard=text(raw, "whenUnsatisfiable", where) == "DoNotSchedule",
        selector=parse_label_selector(selector, f"{where}.labelSelector"),
        min_domains=integer(raw, "minDomains", where) or 1,
        honor_affinity=text(raw, "nodeAffinityPolicy", where) != "Ignore",
        honor_taints=text(raw, "nodeTaintsPolicy", where) == "Honor",
        match_label_keys=texts(raw, "matchLabelKeys", where),
    )


def _terms(
    raw: Mapping[str, Any], field: str, where: str, namespace: str
) -> Iterator[AffinityTerm]:
    return (
        _term(term, f"{where}.{field}[{i}]", namespace)
        for i, term in enumerate(mappings(raw, field, where))
    )


def _weighted(
    raw: Mapping[str, Any], field: str, where: str, namespace: str, sign: int
) -> Iterator[WeightedAffinityTerm]:
    for i, preferred in enumerate(mappings(raw, field, where)):
        path = f"{where}.{field}[{i}]"
        term = mapping(preferred, "podAffinityTerm", path)
        yield WeightedAffinityTerm(
            sign * (integer(preferred, "weight", path) or 0),
            _term(term, f"{path}.podAffinityTerm", namespace),
        )


def _term(raw: Mapping[str, Any], where: str, namespace: str) -> AffinityTerm:
    namespaces = frozenset(texts(raw, "namespaces", where))
    selected = optional_mapping(raw, "namespaceSelector", where)
    if not namespaces and selected is None:
        namespaces = frozenset((namespace,))
    selector = optional_mapping(raw, "labelSelector", where)
    return AffinityTerm(
        selector=parse_label_selector(selector, f"{where}.labelSelector"),
        topology_key=text(raw, "topologyKey", where),
        namespaces=namespaces,
        namespace_selector=parse_label_selector(selected, f"{where}.namespaceSelector"),
    )
