"""The models of label and node selectors in a profile; they validate each field.

The rules are those of apimachinery's `labels.NewRequirement` and component-helpers'
`nodeaffinity.NewNodeSelector`. `mooring.model.selectors` does the matching.
"""

from collections.abc import Iterator
from typing import Literal

from pydantic import ConfigDict, Field

from mooring.model.selectors import parse_int64
from mooring.policy.name_syntax import LabelValue, QualifiedName
from mooring.policy.profile_errors import FieldError
from mooring.policy.reading import PolicyModel


def _values_fit(operator: str, values: tuple[str, ...]) -> Iterator[FieldError]:
    match operator:
        case "In" | "NotIn" if not values:
            yield FieldError("values", f"must not be empty where operator is {operator}")
        case "Exists" | "DoesNotExist" if values:
            yield FieldError("values", f"must be empty where operator is {operator}")
        case "Gt" | "Lt" if len(values) != 1 or parse_int64(values[0]) is None:
            yield FieldError("values", f"must be one integer where operator is {operator}")


class LabelRequirement(PolicyModel):
    """One condition on a label."""

    model_config = ConfigDict(
        json_schema_extra={
            "x-kubernetes-validations": [
                {
                    "rule": "self.operator in ['In', 'NotIn'] ? "
                    "has(self.values) && self.values.size() > 0 : "
                    "!has(self.values) || self.values.size() == 0",
                    "message": "In and NotIn need values, Exists and DoesNotExist must have none",
                    "fieldPath": ".values",
                }
            ]
        }
    )

    key: QualifiedName
    """The key of the label that is compared."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    """The relation between the label's value and `values`."""
    values: tuple[LabelValue, ...] = Field((), max_length=64)
    """For In and NotIn: the values, at least one. For Exists and DoesNotExist: none."""

    def mistakes(self) -> Iterator[FieldError]:
        """Yield a mistake if the number of values does not suit the operator."""
        return _values_fit(self.operator, self.values)


class LabelSelector(PolicyModel):
    """Selects objects by labels: all conditions must hold; without conditions it selects all."""

    match_labels: dict[QualifiedName, LabelValue] = Field({}, max_length=64)
    """Labels that the object must have, with exactly these values."""
    match_expressions: tuple[LabelRequirement, ...] = Field((), max_length=64)
    """Conditions on labels of the object; all of them must hold."""


class NodeRequirement(PolicyModel):
    """One condition on a node's label."""

    key: QualifiedName
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    values: tuple[LabelValue, ...] = ()

    def mistakes(self) -> Iterator[FieldError]:
        """Yield a mistake if the values do not suit the operator: Gt and Lt need one integer."""
        return _values_fit(self.operator, self.values)


class NodeFieldRequirement(PolicyModel):
    """One condition on a node's name, the only field that can select nodes."""

    key: Literal["metadata.name"]
    operator: Literal["In", "NotIn"]
    values: tuple[str, ...] = Field(min_length=1, max_length=1)


class NodeSelectorTerm(PolicyModel):
    """Conditions that must all hold; a term without conditions selects no node."""

    match_expressions: tuple[NodeRequirement, ...] = ()
    match_fields: tuple[NodeFieldRequirement, ...] = ()


class NodeSelector(PolicyModel):
    """Selects nodes for which at least one term holds."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = Field(min_length=1)


class PreferredTerm(PolicyModel):
    """A term, and the number it adds to a node's score."""

    weight: int = Field(ge=1, le=100)
    preference: NodeSelectorTerm


class NodeAffinity(PolicyModel):
    """Which nodes a pod requires and which it prefers, as in v1.NodeAffinity."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: tuple[PreferredTerm, ...] = ()
