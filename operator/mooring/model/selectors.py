"""Compiled label and node selectors.

Semantics follow apimachinery's `labels` package and component-helpers'
`scheduling/corev1/nodeaffinity`: a nil selector matches nothing, an empty one everything,
and a node selector term that cannot be parsed never matches.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, Literal

from mooring.model.fields import integer, mapping, mappings, strings, text, texts
from mooring.model.manifest_error import ManifestError

Operator = Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]

_LABEL_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist")
_NODE_OPERATORS: Final = (*_LABEL_OPERATORS, "Gt", "Lt")
_LABEL_VALUE: Final = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_INT64: Final = range(-(2**63), 2**63)
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,63}")  # no label value is longer
_LONGEST_INTEGER: Final = 64
_SHOWN_VALUES: Final = 3
_FEW_VALUES: Final = 16


@dataclass(frozen=True, slots=True)
class Requirement:
    """One condition on a label, or in `match_fields` on a field of the object."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()
    _found: Collection[str] = field(init=False, repr=False, compare=False)
    """The same items as `values`; a set if there are many, so that a value is found quickly."""

    def __post_init__(self) -> None:
        found = self.values if len(self.values) <= _FEW_VALUES else frozenset(self.values)
        object.__setattr__(self, "_found", found)

    def matches(self, value: str | None) -> bool:
        """Return whether the label's value meets the requirement; None is a missing label."""
        match self.operator:
            case "In":
                return value is not None and value in self._found
            case "NotIn":
                return value is None or value not in self._found
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case "Gt" | "Lt":
                return self._compares(value)

    @property
    def text(self) -> str:
        """The requirement as kubectl writes it, `app=db`; a long list of values is shortened."""
        values = ",".join(self.values[:_SHOWN_VALUES])
        if len(self.values) > _SHOWN_VALUES:
            values += ",..."
        match self.operator:
            case "In" | "NotIn" if len(self.values) == 1:
                return f"{self.key}{'=' if self.operator == 'In' else '!='}{values}"
            case "In" | "NotIn":
                return f"{self.key} {self.operator.lower()} ({values})"
            case "Exists":
                return self.key
            case "DoesNotExist":
                return f"!{self.key}"
            case "Gt" | "Lt":
                return f"{self.key}{'>' if self.operator == 'Gt' else '<'}{values}"

    def _compares(self, value: str | None) -> bool:
        have, want = parse_int64(value), parse_int64(self.values[0])
        if have is None or want is None:
            return False
        return have > want if self.operator == "Gt" else have < want


def parse_int64(value: str | None) -> int | None:
    """Parse a number as Go's strconv.ParseInt(s, 10, 64) does; None if it is malformed."""
    return _int64(value) if value is not None and len(value) <= _LONGEST_INTEGER else None


@lru_cache(maxsize=4096)  # of 64 characters each
def _int64(value: str) -> int | None:
    if not _INTEGER.fullmatch(value):
        return None
    number = int(value)
    return number if number in _INT64 else None


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """A label selector: all requirements must hold; without requirements it matches everything."""

    requirements: tuple[Requirement, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether there is no requirement, so that every object matches."""
        return not self.requirements

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether an object with these labels is selected."""
        # Counts do so for each pod, and `all` takes twice as long.
        for requirement in self.requirements:
            if not requirement.matches(labels.get(requirement.key)):
                return False
        return True

    def narrowed(self, *requirements: Requirement) -> "LabelSelector":
        """Return this selector with additional requirements."""
        return LabelSelector((*self.requirements, *requirements))


@dataclass(frozen=True, slots=True)
class NodeSelectorTerm:
    """Requirements on labels and fields; `valid` is False if one of them cannot be parsed."""

    expressions: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()
    valid: bool = True

    @property
    def empty(self) -> bool:
        """Whether the term has no requirement; then it matches no node."""
        return not self.expressions and not self.fields

    def matches(self, name: str, labels: Mapping[str, str]) -> bool:
        """Return whether a node of this name and these labels satisfies the term."""
        return (
            self.valid
            and not self.empty
            and all(r.matches(labels.get(r.key)) for r in self.expressions)
            and all(r.matches(name) for r in self.fields)
        )


@dataclass(frozen=True, slots=True)
class NodeSelector:
    """A selector of nodes: at least one term must match."""

    terms: tuple[NodeSelectorTerm, ...] = ()

    def matches(self, name: str, labels: Mapping[str, str]) -> bool:
        """Return whether a node of this name and these labels is selected."""
        return any(term.matches(name, labels) for term in self.terms)


@dataclass(frozen=True, slots=True)
class PreferredTerm:
    """A node selector term and the weight (1-100) that it adds to a matching node's score."""

    weight: int
    term: NodeSelectorTerm


def selector_from_labels(labels: Mapping[str, str]) -> LabelSelector:
    """Return a selector that requires exactly these labels, like the selector of a Service."""
    return LabelSelector(tuple(requirements_from_labels(labels)))


def requirements_from_labels(labels: Mapping[str, str]) -> Iterator[Requirement]:
    """Yield a requirement `key in (value)` for each label, sorted by key."""
    return (Requirement(key, "In", (value,)) for key, value in sorted(labels.items()))


def parse_label_selector(raw: Mapping[str, Any] | None, where: str = "") -> LabelSelector | None:
    """Compile a metav1.LabelSelector; None if `raw` is None; ManifestError if it is malformed."""
    if raw is None:
        return None
    wanted = selector_from_labels(strings(raw, "matchLabels", where))
    expressions = _requirements(raw, "matchExpressions", _LABEL_OPERATORS, where)
    return wanted.narrowed(*expressions) if expressions else wanted


def parse_node_selector(raw: Mapping[str, Any] | None, where: str = "") -> NodeSelector | None:
    """Compile a v1.NodeSelector; None if `raw` is None; ManifestError if it is malformed."""
    return None if raw is None else NodeSelector(tuple(node_terms_of(raw, where)))


def node_terms_of(raw: Mapping[str, Any], where: str) -> Iterator[NodeSelectorTerm]:
    """Yield the compiled terms of a v1.NodeSelector; raise ManifestError if one is malformed."""
    terms = mappings(raw, "nodeSelectorTerms", where)
    return (parse_node_term(t, f"{where}.nodeSelectorTerms[{i}]") for i, t in enumerate(terms))


def parse_preferred_terms(
    raw: Sequence[Mapping[str, Any]], where: str = ""
) -> tuple[PreferredTerm, ...]:
    """Compile preferred node affinity terms; raise ManifestError if one is malformed."""
    return tuple(preferred_terms_of(raw, where))


def preferred_terms_of(
    raw: Sequence[Mapping[str, Any]], where: str = ""
) -> Iterator[PreferredTerm]:
    """Yield compiled preferred node affinity terms; raise ManifestError if one is malformed."""
    return (
        PreferredTerm(
            integer(entry, "weight", f"{where}[{i}]") or 0,
            parse_node_term(
                mapping(entry, "preference", f"{where}[{i}]"), f"{where}[{i}].preference"
            ),
        )
        for i, entry in enumerate(raw)
    )


def parse_node_term(raw: Mapping[str, Any], where: str = "") -> NodeSelectorTerm:
    """Compile a v1.NodeSelectorTerm; `valid` is False if a requirement cannot be parsed."""
    expressions = _requirements(raw, "matchExpressions", _NODE_OPERATORS, where)
    fields = _requirements(raw, "matchFields", _NODE_OPERATORS, where)
    # As in component-helpers' nodeaffinity.go.
    valid = all(map(_label_requirement_parses, expressions)) and all(
        r.key == "metadata.name" and r.operator in ("In", "NotIn") and len(r.values) == 1
        for r in fields
    )
    return NodeSelectorTerm(expressions, fields, valid)


def _label_requirement_parses(requirement: Requirement) -> bool:
    values = requirement.values
    match requirement.operator:
        case "In" | "NotIn":
            well_formed = len(values) > 0
        case "Exists" | "DoesNotExist":
            well_formed = not values
        case "Gt" | "Lt":
            well_formed = len(values) == 1 and parse_int64(values[0]) is not None
    return well_formed and all(_LABEL_VALUE.fullmatch(v) for v in values)


def _requirements(
    raw: Mapping[str, Any], field: str, operators: Sequence[str], where: str
) -> tuple[Requirement, ...]:
    path = f"{where}.{field}" if where else field
    return tuple(
        _requirement(entry, operators, f"{path}[{i}]")
        for i, entry in enumerate(mappings(raw, field, where))
    )


def _requirement(raw: Mapping[str, Any], operators: Sequence[str], where: str) -> Requirement:
    operator: Any = raw.get("operator")
    if operator not in operators:
        raise ManifestError(
            f"{where}.operator", f"{operator!r} is not one of {', '.join(operators)}"
        )
    return Requirement(text(raw, "key", where), operator, texts(raw, "values", where))
