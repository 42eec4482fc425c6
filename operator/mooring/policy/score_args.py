"""Arguments that several plugins share: shapes of score functions, and weighted resources.

Source: staging `kube-scheduler/config/v1/types_pluginargs.go`, `apis/config/v1/defaults.go` and
`apis/config/validation/validation_pluginargs.go` of v1.36.3.
"""

from itertools import pairwise
from typing import Annotated, Final

from pydantic import AfterValidator, Field

from mooring.policy.profile_errors import FieldError, ProfileInvalid
from mooring.policy.reading import PolicyModel


class ShapePoint(PolicyModel):
    """A point of a piecewise linear score function."""

    utilization: int = Field(ge=0, le=100)
    """The utilization of a node in percent of its capacity."""
    score: int = Field(ge=0, le=10)


def rising(shape: tuple[ShapePoint, ...]) -> tuple[ShapePoint, ...]:
    """Return the shape; raise ProfileInvalid if a utilization is not above the previous one."""
    for number, (before, point) in enumerate(pairwise(shape), start=1):
        if before.utilization >= point.utilization:
            message = f"must be more than {before.utilization}, the one before it, "
            message += f"got {point.utilization}"
            raise ProfileInvalid([FieldError(f"[{number}].utilization", message)])
    return shape


Shape = Annotated[tuple[ShapePoint, ...], Field(min_length=1), AfterValidator(rising)]
"""The points of a score function, at least one; the utilization rises from point to point."""


LESS_USED_FIRST: Final = (
    ShapePoint(utilization=0, score=10),
    ShapePoint(utilization=100, score=0),
)
"""The shape by which a node with less utilization has a higher score."""


class ResourceSpec(PolicyModel):
    """A resource and its weight in a score."""

    name: str = Field(min_length=1)
    weight: Annotated[int, Field(ge=0, le=100), AfterValidator(lambda weight: weight or 1)] = 1
    """The weight of the resource, 1 to 100; 0 means the default, 1."""


CPU_AND_MEMORY: Final = (ResourceSpec(name="cpu"), ResourceSpec(name="memory"))
"""The resources that kube-scheduler scores by default."""


Resources = Annotated[
    tuple[ResourceSpec, ...], AfterValidator(lambda given: given or CPU_AND_MEMORY)
]
"""The resources to score; an empty list means cpu and memory."""
