"""Checks by a slow recount whether a node may have a pod, by the rules of pod and neighbours.

It covers node selectors and required node affinity, taints, host ports, required inter-pod affinity
and anti-affinity in both directions, and hard topology spread. It shares no code with Mooring: each
question counts everything again, as the Kubernetes documents define it.

A replica may know an older cluster. So each object stands for all versions that the replica may
know (`Surroundings`), including None if it may not know the object. A node is rejected only if it
is rejected in every case: an object that forbids the node must exist in each version, and an object
that the pod needs must exist in one.

To add a constraint, write a function like those in `_RULES`.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from simulation.storage import Raw

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_CORDONED: Final = {"key": "node.kubernetes.io/unschedulable", "value": "", "effect": "NoSchedule"}
_FORBIDDING: Final = ("NoSchedule", "NoExecute")
_EVERY_ADDRESS: Final = "0.0.0.0"
"""Stands for every address of the node, in the API too."""

Term = Mapping[str, Any]


class _Picture(NamedTuple):
    """A pod and its node, in one version of each."""

    pod: Raw
    node: Raw

    def domain(self, key: str) -> str | None:
        """Return the pod's domain by this topology key; None if it has none."""
        return _labels(self.node).get(key)


class _Neighbour(NamedTuple):
    """A pod on a node, in all versions that a replica may know."""

    pictures: Sequence[_Picture]
    may_be_gone: bool

    def certainly(self, holds: Callable[[_Picture], bool]) -> bool:
        """Return whether the pod exists and `holds` is True in every version."""
        return not self.may_be_gone and all(map(holds, self.pictures))

    def possibly(self, holds: Callable[[_Picture], bool]) -> bool:
        return any(map(holds, self.pictures))


class Surroundings:
    """Nodes and the pods on them, in every version that a replica may know."""

    def __init__(
        self,
        nodes: Mapping[str, Collection[Raw | None]],
        pods: Mapping[str, Collection[Raw | None]],
    ) -> None:
        """Store the versions of nodes by name and of pods by uid; None means that it is absent."""
        self.nodes = nodes
        self._neighbours = {uid: self._seen(versions) for uid, versions in pods.items()}

    @classmethod
    def known_exactly(cls, nodes: Iterable[Raw], pods: Iterable[Raw]) -> "Surroundings":
        """Return surroundings with a single version of each object."""
        return cls(
            {raw["metadata"]["name"]: (raw,) for raw in nodes},
            {raw["metadata"]["uid"]: (raw,) for raw in pods},
        )

    def others(self, pod: Raw) -> list[_Neighbour]:
        """Return all pods on nodes except this one."""
        uid = pod["metadata"]["uid"]
        return [each for other, each in self._neighbours.items() if other != uid and each.pictures]

    def and_pod(self, raw: Raw) -> "Surroundings":
        """Return these surroundings with one more pod on its node."""
        others = Surroundings(self.nodes, {raw["metadata"]["uid"]: (raw,)})
        others._neighbours = self._neighbours | others._neighbours
        return others

    def _seen(self, versions: Collection[Raw | None]) -> _Neighbour:
        pictures, may_be_gone = list[_Picture](), False
        for raw in versions:
            where = raw["spec"].get("nodeName") if raw is not None else None
            ended = raw is None or (raw.get("status") or {}).get("phase") in {"Succeeded", "Failed"}
            for node in self.nodes.get(where or "", (None,)):
                if raw is None or ended or node is None:
                    may_be_gone = True
                else:
                    pictures.append(_Picture(raw, node))
        return _Neighbour(pictures, may_be_gone)


def refusal(pod: Raw, name: str, around: Surroundings) -> str | None:
    """Return why the node certainly rejects the pod; None if it may accept the pod."""
    said = None
    others = around.others(pod)
    for node in around.nodes.get(name, ()):
        if node is None:
            continue
        reasons = (rule(pod, node, others, around) for rule in _RULES)
        said = next(filter(None, reasons), None)
        if said is None:
            return None
    return said


def is_suitable(pod: Raw, node: Raw) -> bool:
    """Return whether the node's labels and taints allow the pod."""
    return _node_refuses(pod, node, (), Surroundings({}, {})) is None


def keeps_away(pod: Raw, node: Raw, neighbour: Raw) -> str | None:
    """Return why `neighbour` on the node would keep the pod away; None if it would not.

    A nominated pod's terms do not keep away pods without terms: PreFilter skips the plugin for
    these, and it counts no nominated pods (interpodaffinity/filtering.go).
    """
    there = {**neighbour, "spec": {**neighbour["spec"], "nodeName": node["metadata"]["name"]}}
    around = Surroundings.known_exactly((node,), (there,))
    rules = [_ports_are_taken, _is_apart]
    if any(_terms(pod, kind) for kind in ("podAffinity", "podAntiAffinity")):
        rules.append(_others_are_apart)
    return next(filter(None, (rule(pod, node, around.others(pod), around) for rule in rules)), None)


def skews(pod: Raw, name: str, around: Surroundings) -> str | None:
    """Return why topology spread certainly rejects the node; None if it may accept the pod."""
    others = around.others(pod)
    said = [_is_spread(pod, node, others, around) for node in around.nodes.get(name, ()) if node]
    return said[-1] if said and None not in said else None


def _node_refuses(
    pod: Raw, node: Raw, _others: Sequence[_Neighbour], _around: Surroundings
) -> str | None:
    if not _is_selected(pod, node):
        return f"its labels are {_labels(node)}"
    cordoned = bool((node.get("spec") or {}).get("unschedulable"))
    taint = next(_untolerated(pod, node, (_CORDONED,) if cordoned else ()), None)
    return f"it has the taint {taint['key']}" if taint is not None else None


def _ports_are_taken(
    pod: Raw, node: Raw, others: Sequence[_Neighbour], _around: Surroundings
) -> str | None:
    name, wanted = node["metadata"]["name"], list(_ports(pod))
    for other in others if wanted else ():
        if other.certainly(
            lambda seen: seen.node["metadata"]["name"] == name and _collide(wanted, seen.pod)
        ):
            return f"{_name(other)} has its host port"
    return None


def _is_apart(
    pod: Raw, node: Raw, others: Sequence[_Neighbour], _around: Surroundings
) -> str | None:
    """Return why the pod's own anti-affinity rejects the node, or None."""
    for term in _terms(pod, "podAntiAffinity"):
        domain = _labels(node).get(term["topologyKey"])
        for other in others if domain is not None else ():
            if other.certainly(lambda seen: _is_meant(term, pod, seen, domain)):  # noqa: B023 - called at once
                return f"it is not to be with {_name(other)}"
    return None


def _others_are_apart(
    pod: Raw, node: Raw, others: Sequence[_Neighbour], _around: Surroundings
) -> str | None:
    """Return why the anti-affinity of other pods rejects the node, or None."""

    def forbids(seen: _Picture) -> bool:
        return any(
            _matches(term, seen.pod, pod)
            and seen.domain(term["topologyKey"]) is not None
            and seen.domain(term["topologyKey"]) == _labels(node).get(term["topologyKey"])
            for term in _terms(seen.pod, "podAntiAffinity")
        )

    for other in others:
        if other.certainly(forbids):
            return f"{_name(other)} is not to be with it"
    return None


def _is_together(
    pod: Raw, node: Raw, others: Sequence[_Neighbour], _around: Surroundings
) -> str | None:
    """Return why the pod's affinity rejects the node, or None.

    The first pod of a series that requires its own kind is accepted.
    """
    terms = _terms(pod, "podAffinity")
    domains = [_labels(node).get(term["topologyKey"]) for term in terms]
    if not terms:
        return None
    if None in domains:
        return "it has not the label of its affinity"

    def matches_all(seen: _Picture) -> bool:
        return all(_matches(term, pod, seen.pod) for term in terms)

    def is_there(seen: _Picture, term: Term, domain: str | None) -> bool:
        return matches_all(seen) and seen.domain(term["topologyKey"]) == domain

    missing = [
        term
        for term, domain in zip(terms, domains, strict=True)
        if not any(other.possibly(lambda seen: is_there(seen, term, domain)) for other in others)  # noqa: B023 - called at once
    ]
    if not missing:
        return None

    def counts_somewhere(seen: _Picture) -> bool:
        return matches_all(seen) and any(seen.domain(term["topologyKey"]) for term in terms)

    is_first = all(_matches(term, pod, pod) for term in terms)
    if is_first and not any(other.certainly(counts_somewhere) for other in others):
        return None
    return "nobody is there whom it wants to be with"


def _is_spread(
    pod: Raw, node: Raw, others: Sequence[_Neighbour], around: Surroundings
) -> str | None:
    rules = [
        rule
        for rule in pod["spec"].get("topologySpreadConstraints") or ()
        if rule["whenUnsatisfiable"] == "DoNotSchedule"
    ]
    keys = [rule["topologyKey"] for rule in rules]
    for rule in rules:
        if not _labels(node).keys() >= {*keys}:
            return f"it lacks one of the labels {keys}"
        if (skew := _skew(rule, pod, node, keys, others, around)) > rule["maxSkew"]:
            return f"the skew over {rule['topologyKey']} would be {skew}"
    return None


def _skew(
    rule: Term,
    pod: Raw,
    node: Raw,
    keys: Sequence[str],
    others: Sequence[_Neighbour],
    around: Surroundings,
) -> int:
    """Return the least possible skew with the pod on the node."""
    key = rule["topologyKey"]

    def is_eligible(one: Raw) -> bool:
        honours_taints = rule.get("nodeTaintsPolicy", "Ignore") == "Honor"
        honours_labels = rule.get("nodeAffinityPolicy", "Honor") == "Honor"
        return (
            _labels(one).keys() >= {*keys}
            and (not honours_labels or _is_selected(pod, one))
            and not (honours_taints and any(_untolerated(pod, one)))
        )

    def counts(seen: _Picture, domain: str) -> bool:
        return (
            seen.domain(key) == domain
            and is_eligible(seen.node)
            and "deletionTimestamp" not in seen.pod["metadata"]
            and _selects_for(rule, pod, seen.pod)
        )

    def at_most(domain: str) -> int:
        return sum(other.possibly(lambda seen: counts(seen, domain)) for other in others)

    def at_least(domain: str) -> int:
        return sum(other.certainly(lambda seen: counts(seen, domain)) for other in others)

    certain, possible = set[str](), set[str]()
    for versions in around.nodes.values():
        shown = [_labels(one)[key] for one in versions if one is not None and is_eligible(one)]
        possible.update(shown)
        if len(shown) == len(versions) and len({*shown}) == 1:
            certain.update(shown)
    if not certain:
        return 0
    least = min(map(at_most, certain))
    if len(possible) < (rule.get("minDomains") or 1):
        least = 0
    itself = selects(rule.get("labelSelector"), pod)
    return at_least(_labels(node)[key]) + itself - least


def _selects_for(rule: Term, pod: Raw, other: Raw) -> bool:
    """Return whether a spread constraint of `pod` counts `other`."""
    alike = [key for key in rule.get("matchLabelKeys") or () if key in _labels(pod)]
    return (
        bool(pod["metadata"]["namespace"] == other["metadata"]["namespace"])
        and selects(rule.get("labelSelector"), other)
        and all(_labels(other).get(key) == _labels(pod)[key] for key in alike)
    )


_Rule = Callable[[Raw, Raw, Sequence[_Neighbour], Surroundings], "str | None"]
_RULES: Final[tuple[_Rule, ...]] = (
    _node_refuses,
    _ports_are_taken,
    _is_apart,
    _others_are_apart,
    _is_together,
    _is_spread,
)


def _name(other: _Neighbour) -> str:
    return str(other.pictures[0].pod["metadata"]["name"])


def _labels(raw: Raw) -> dict[str, str]:
    return raw["metadata"].get("labels") or {}


def _matches(term: Term, owner: Raw, other: Raw) -> bool:
    """Return whether an inter-pod term of `owner` selects `other`.

    The only supported namespace selector is the empty one, which selects all namespaces.
    """
    everywhere = term.get("namespaceSelector") == {}
    namespaces = term.get("namespaces") or [owner["metadata"]["namespace"]]
    there = everywhere or other["metadata"]["namespace"] in namespaces
    return there and selects(term.get("labelSelector"), other)


def _is_meant(term: Term, owner: Raw, seen: _Picture, domain: str | None) -> bool:
    return seen.domain(term["topologyKey"]) == domain and _matches(term, owner, seen.pod)


def _terms(pod: Raw, kind: str) -> list[Term]:
    affinity = (pod["spec"].get("affinity") or {}).get(kind) or {}
    return list(affinity.get(_REQUIRED) or ())


def selects(selector: Term | None, raw: Raw) -> bool:
    """Return whether the label selector selects the object; None selects nothing."""
    if selector is None:
        return False
    labels = _labels(raw)
    plain = (selector.get("matchLabels") or {}).items() <= labels.items()
    return plain and _satisfies(selector.get("matchExpressions") or (), labels)


def _satisfies(expressions: Iterable[Term], labels: Mapping[str, str]) -> bool:
    for expression in expressions:
        value, operator = labels.get(expression["key"]), expression["operator"]
        holds = {
            "In": value is not None and value in expression.get("values", ()),
            "NotIn": value is None or value not in expression.get("values", ()),
            "Exists": value is not None,
            "DoesNotExist": value is None,
        }
        if not holds[operator]:
            return False
    return True


def _is_selected(pod: Raw, node: Raw) -> bool:
    """Return whether the pod's node selector and required node affinity accept the node."""
    spec = pod["spec"]
    if not (spec.get("nodeSelector") or {}).items() <= _labels(node).items():
        return False
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(_REQUIRED)
    if required is None:
        return True
    name = {"metadata.name": node["metadata"]["name"]}
    return any(
        _satisfies(term.get("matchExpressions") or (), _labels(node))
        and _satisfies(term.get("matchFields") or (), name)
        for term in required["nodeSelectorTerms"]
    )


def _untolerated(pod: Raw, node: Raw, more: Sequence[Term] = ()) -> Iterator[Term]:
    """Yield the taints of the node, and of `more`, that the pod does not tolerate."""
    taints = [*((node.get("spec") or {}).get("taints") or ()), *more]
    tolerations = pod["spec"].get("tolerations") or ()
    for taint in taints:
        tolerated = any(_tolerates(toleration, taint) for toleration in tolerations)
        if taint["effect"] in _FORBIDDING and not tolerated:
            yield taint


def _tolerates(toleration: Term, taint: Term) -> bool:
    if toleration.get("effect", taint["effect"]) != taint["effect"]:
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return bool(toleration.get("key", taint["key"]) == taint["key"])
    same = toleration.get("value", "") == taint.get("value", "")
    return bool(toleration.get("key") == taint["key"] and same)


def _ports(pod: Raw) -> Iterator[tuple[str, str, int]]:
    """Yield address, protocol and number of each host port."""
    for container in pod["spec"]["containers"]:
        for port in container.get("ports") or ():
            if port.get("hostPort"):
                address = port.get("hostIP") or _EVERY_ADDRESS
                yield address, port.get("protocol") or "TCP", port["hostPort"]


def _collide(wanted: Sequence[tuple[str, str, int]], other: Raw) -> bool:
    for address, *rest in wanted:
        for taken, *those in _ports(other):
            either = _EVERY_ADDRESS in {address, taken}
            if rest == those and (either or address == taken):
                return True
    return False
