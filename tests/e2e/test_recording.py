"""Cases are recorded with the real kube-scheduler, and Mooring decides the same."""

from collections.abc import Iterator

import pytest

from conformance.comparing import decided, differences
from conformance.recording.recorder import Recorder
from conformance.scenes.extenders import EXTENDERS
from conformance.scenes.suites import SUITES, random_scene, suites_of
from controlplane.releases import chosen_release

SEED = 20261121


@pytest.fixture(scope="module")
def recorder() -> Iterator[Recorder]:
    with Recorder() as running:
        yield running


@pytest.fixture(scope="module")
def recorder_with_extenders() -> Iterator[Recorder]:
    with Recorder(EXTENDERS) as running:
        yield running


@pytest.mark.parametrize("suite", suites_of(chosen_release().version))
def test_mooring_decides_a_fresh_case_as_kube_scheduler_does(
    request: pytest.FixtureRequest, suite: str
) -> None:
    fixture = "recorder_with_extenders" if SUITES[suite].extenders else "recorder"
    recorder: Recorder = request.getfixturevalue(fixture)
    scene = random_scene(suite, SEED, 0)
    case = recorder.record(scene)
    assert differences(case, decided(case)) == []
    nodes = [raw for raw in scene.objects if raw["kind"] == "Node"]
    assert len([raw for raw in case["objects"] if raw["kind"] == "Node"]) == len(nodes)


def test_a_scene_leaves_nothing_to_the_next(recorder: Recorder) -> None:
    recorder.record(random_scene("volumes", SEED, 1))
    scene = random_scene("taints", SEED, 1)
    names = {raw["metadata"]["name"] for raw in scene.objects}
    surroundings = {"Namespace", "PriorityClass"}
    left = {
        raw["metadata"]["name"]
        for raw in recorder.record(scene)["objects"]
        if raw["kind"] not in surroundings
    }
    assert left == names
