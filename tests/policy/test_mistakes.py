"""Mistakes in users' documents are reported with their paths; mistakes.yaml has the cases."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from mooring.gpu_cards.card_args import GPUShareArgs
from mooring.plugins.node_label import NodeLabelArgs
from mooring.plugins.node_pressure import NodePressureArgs
from mooring.plugins.node_resources_fit import RequestedToCapacityRatioArgs
from mooring.plugins.service_affinity import ServiceAffinityArgs
from mooring.policy.extender import Extender
from mooring.policy.imports.configuration import import_configuration
from mooring.policy.imports.old_policy import import_policy
from mooring.policy.merge import Catalog
from mooring.policy.reading import read
from mooring.policy.rebalancing import Rebalancing
from mooring.policy.resolve import load_profile
from mooring.volumes.cloud_volume_counts import VolumeCountArgs
from policies import KUBE_SCHEDULER_ARGS

CASES = [
    pytest.param(kind, case, id=f"{kind} {case.get('plugin', '')} {next(iter(case['mistakes']))}")
    for kind, cases in yaml.safe_load(Path(__file__).with_name("mistakes.yaml").read_text()).items()
    for case in cases
]
ARGS: Mapping[str, type[BaseModel]] = {
    **KUBE_SCHEDULER_ARGS,
    "GPUShare": GPUShareArgs,
    "NodeLabel": NodeLabelArgs,
    "NodePressure": NodePressureArgs,
    "RequestedToCapacityRatio": RequestedToCapacityRatioArgs,
    "ServiceAffinity": ServiceAffinityArgs,
    "VolumeCount": VolumeCountArgs,
}


@pytest.mark.parametrize(("kind", "case"), CASES)
def test_a_mistake_is_told_with_its_path(
    kind: str,
    case: Mapping[str, Any],
    catalog: Catalog,
    all_plugins: Catalog,
    manifest: Callable[..., Mapping[str, Any]],
    mistakes: Callable[[Callable[[], object]], dict[str, str]],
) -> None:
    given = case["given"]
    read_as: Mapping[str, Callable[[], object]] = {
        "configuration": lambda: import_configuration(given, catalog),
        "policy": lambda: import_policy(given, all_plugins),
        "profile": lambda: load_profile(manifest("a", **given), catalog),
        "arguments": lambda: read(ARGS[case["plugin"]], given, ""),
        "extender": lambda: read(Extender, given, ""),
        "rebalancing": lambda: read(Rebalancing, given, ""),
    }
    assert mistakes(read_as[kind]) == case["mistakes"]
