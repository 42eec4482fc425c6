from mooring.framework.registry import NoArgs
from mooring.framework.verdicts import Unschedulable
from mooring.model.pod import parse_pod
from mooring.plugins.scheduling_gates import SchedulingGates
from mooring.testing.builders import cluster, pod
from mooring.testing.fakes import handle

PLUGIN = SchedulingGates(NoArgs(), handle(cluster()))


def test_a_pod_with_gates_is_gated_and_its_gates_are_named() -> None:
    gated = parse_pod(pod(gates=["quota", "review"]))
    assert PLUGIN.pre_enqueue(gated) == Unschedulable(
        "waiting for scheduling gates: [quota review]"
    )


def test_a_pod_without_gates_passes() -> None:
    assert PLUGIN.pre_enqueue(parse_pod(pod())) is None
