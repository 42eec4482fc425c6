from collections.abc import Callable

import pytest
from pydantic import BaseModel

from mooring.policy.args import CPU_AND_MEMORY
from mooring.policy.legacy_args import (
    NodeLabelArgs,
    NodePressureArgs,
    NodeResourcesLeastAllocatedArgs,
    NodeResourcesMostAllocatedArgs,
    RequestedToCapacityRatioArgs,
    ServiceAffinityArgs,
    VolumeCountArgs,
)
from mooring.policy.reading import read

Mistakes = Callable[[Callable[[], object]], dict[str, str]]


def test_without_conditions_every_pressure_is_checked() -> None:
    assert NodePressureArgs().conditions == ("MemoryPressure", "DiskPressure", "PIDPressure")


@pytest.mark.parametrize("model", [NodeResourcesLeastAllocatedArgs, NodeResourcesMostAllocatedArgs])
def test_without_resources_cpu_and_memory_are_scored(
    model: type[NodeResourcesLeastAllocatedArgs | NodeResourcesMostAllocatedArgs],
) -> None:
    assert read(model, {"resources": []}, "").resources == CPU_AND_MEMORY


@pytest.mark.parametrize(
    ("model", "document", "expected"),
    [
        (NodeLabelArgs, {"presentLabels": ["a b"]}, "presentLabels[0]"),
        (ServiceAffinityArgs, {"affinityLabels": [""]}, "affinityLabels[0]"),
        (NodePressureArgs, {"conditions": ["Ready"]}, "conditions[0]"),
        (
            NodeLabelArgs,
            {"presentLabels": ["a"], "absentLabels": ["b", "a"]},
            "absentLabels[1]",
        ),
        (
            NodeLabelArgs,
            {"presentLabelsPreference": ["a"], "absentLabelsPreference": ["a"]},
            "absentLabelsPreference[0]",
        ),
        (RequestedToCapacityRatioArgs, {"shape": []}, "shape"),
        (VolumeCountArgs, {"maxVolumes": 0}, "maxVolumes"),
    ],
)
def test_a_mistake_in_arguments_is_located(
    model: type[BaseModel], document: object, expected: str, mistakes: Mistakes
) -> None:
    assert [*mistakes(lambda: read(model, document, ""))] == [expected]
