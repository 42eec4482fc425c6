import pytest

from mooring.policy.args import CPU_AND_MEMORY
from mooring.policy.legacy_args import (
    NodePressureArgs,
    NodeResourcesLeastAllocatedArgs,
    NodeResourcesMostAllocatedArgs,
)
from mooring.policy.reading import read


def test_without_conditions_every_pressure_is_checked() -> None:
    assert NodePressureArgs().conditions == ("MemoryPressure", "DiskPressure", "PIDPressure")


@pytest.mark.parametrize("model", [NodeResourcesLeastAllocatedArgs, NodeResourcesMostAllocatedArgs])
def test_without_resources_cpu_and_memory_are_scored(
    model: type[NodeResourcesLeastAllocatedArgs | NodeResourcesMostAllocatedArgs],
) -> None:
    assert read(model, {"resources": []}, "").resources == CPU_AND_MEMORY
