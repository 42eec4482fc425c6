"""The model of a Policy, the configuration of kube-scheduler in Kubernetes 1.22 and before.

Source: `kube-scheduler/config/v1/legacy_types.go` and `validation.go` of v1.20.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pydantic import Field

from mooring.policy.extender import Extenders
from mooring.policy.name_syntax import QualifiedName
from mooring.policy.profile_errors import FieldError
from mooring.policy.reading import PolicyModel, read
from mooring.policy.score_args import CPU_AND_MEMORY, Resources, Shape


class Labels(PolicyModel):
    """Labels with the same values on all nodes of a Service's pods."""

    labels: tuple[QualifiedName, ...] = Field(min_length=1)


class LabelsPresence(PolicyModel):
    """Labels that nodes must have, or must not have."""

    labels: tuple[QualifiedName, ...] = Field(min_length=1)
    presence: bool = False


class ServiceLabel(PolicyModel):
    """A label whose values the pods of a Service are spread over."""

    label: QualifiedName


class LabelPreference(PolicyModel):
    """A label whose presence (or absence) raises a node's score."""

    label: QualifiedName
    presence: bool = False


class Ratio(PolicyModel):
    """A score that depends on the node's utilization."""

    shape: Shape
    resources: Resources = CPU_AND_MEMORY


class _Argument(PolicyModel):
    def mistakes(self) -> Iterator[FieldError]:
        """Yield a mistake if the argument does not have exactly one field."""
        given = [name for name, value in self if value is not None]
        if len(given) != 1:
            members = ", ".join(field.alias or "" for field in type(self).model_fields.values())
            yield FieldError("", f"must have exactly one of {members}")


class PredicateArgument(_Argument):
    """The argument of a predicate; a predicate with an argument may have any name."""

    service_affinity: Labels | None = None
    labels_presence: LabelsPresence | None = None


class PriorityArgument(_Argument):
    """The argument of a priority; a priority with an argument may have any name."""

    service_anti_affinity: ServiceLabel | None = None
    label_preference: LabelPreference | None = None
    requested_to_capacity_ratio_arguments: Ratio | None = None


class Predicate(PolicyModel):
    """A filter; if it has an argument, it may have any name."""

    name: str = Field(min_length=1)
    argument: PredicateArgument | None = None


class Priority(PolicyModel):
    """A score; if it has an argument, it may have any name."""

    name: str = Field(min_length=1)
    weight: int = Field(ge=1, le=2**31 - 1)
    argument: PriorityArgument | None = None


class Policy(PolicyModel):
    """A Policy. An absent list means the default list; an empty list stays empty."""

    api_version: str = ""
    kind: Literal["Policy"]
    predicates: tuple[Predicate, ...] | None = None
    priorities: tuple[Priority, ...] | None = None
    extenders: Extenders = ()
    hard_pod_affinity_symmetric_weight: int = Field(0, ge=0, le=100)
    """The `hardPodAffinityWeight` of InterPodAffinity; 0 means the default, 1."""
    always_check_all_predicates: bool = False


def read_policy(document: object) -> Policy:
    """Read a Policy from a document; raise ProfileInvalid with every schema mistake."""
    return read(Policy, _as_v1(document), "")


def _as_v1(document: object) -> object:
    if not isinstance(document, Mapping) or not isinstance(document.get("extenders"), list):
        return document
    return {**document, "extenders": [_as_v1_extender(e) for e in document["extenders"]]}


def _as_v1_extender(extender: object) -> object:
    if not isinstance(extender, Mapping):
        return extender
    modern: dict[str, Any] = dict(extender)
    if "enableHttps" in modern:
        modern["enableHTTPS"] = modern.pop("enableHttps")
    if isinstance(modern.get("httpTimeout"), int):
        modern["httpTimeout"] = f"{modern['httpTimeout']}ns"
    return modern
