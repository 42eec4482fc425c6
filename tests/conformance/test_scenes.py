import json

import pytest

from conformance.scenes.profiles import PROFILES
from conformance.scenes.suites import SUITES, random_scene, suites_of

SEED = 7


@pytest.mark.parametrize("suite", SUITES)
def test_a_scene_is_the_same_again_whatever_else_was_drawn(suite: str) -> None:
    first = random_scene(suite, SEED, 3)
    random_scene(suite, SEED, 4)
    assert random_scene(suite, SEED, 3) == first


def test_another_seed_and_another_number_give_other_scenes() -> None:
    scenes = [random_scene("mixed", SEED, 0), random_scene("mixed", 8, 0)]
    assert random_scene("mixed", SEED, 1) not in scenes
    assert scenes[0] != scenes[1]


@pytest.mark.parametrize("suite", SUITES)
def test_no_two_objects_of_a_scene_have_one_name(suite: str) -> None:
    for index in range(30):
        scene = random_scene(suite, SEED, index)
        names = [
            (raw["kind"], raw["metadata"].get("namespace"), raw["metadata"]["name"])
            for raw in (*scene.objects, scene.pod)
        ]
        assert len(names) == len(set(names))


@pytest.mark.parametrize("suite", ["preemption", "mixed", "extenders"])
def test_no_two_pods_that_may_be_victims_started_at_once(suite: str) -> None:
    for index in range(30):
        pods = [raw for raw in random_scene(suite, SEED, index).objects if raw["kind"] == "Pod"]
        assert len({pod["status"]["startTime"] for pod in pods}) == len(pods)


def test_a_version_has_the_suites_that_its_api_knows() -> None:
    assert suites_of("v1.38.0-beta.0") == tuple(SUITES)
    assert {*SUITES} - {*suites_of("v1.36.3")} == {"shapes", "mountoptions", "rules138"}
    assert "imagevolumes" not in suites_of("1.34")


def test_every_profile_has_its_cases() -> None:
    names = {random_scene("profiles", SEED, index).profile["schedulerName"] for index in range(200)}
    assert names == {profile["schedulerName"] for profile in PROFILES}


@pytest.mark.parametrize(
    ("suite", "corner"),
    [
        ("resources", '"restartPolicy": "Always"'),
        ("resources", '"runtimeClassName"'),
        ("resources", '"hugepages-2Mi"'),
        ("resources", '"allocatedResources"'),
        ("taints", '[{"operator": "Exists"}'),
        ("taints", '"tolerationSeconds"'),
        ("nodeaffinity", '"Gt"'),
        ("nodeaffinity", '"matchFields"'),
        ("nodeaffinity", '"nodeSelectorTerms": [{}'),
        ("ports", '"hostNetwork"'),
        ("ports", '"SCTP"'),
        ("images", '"image": "registry.example/big"'),
        ("spread", '"minDomains"'),
        ("spread", '"nodeTaintsPolicy": "Honor"'),
        ("spread", '"matchLabelKeys"'),
        ("spread", '"deletionTimestamp"'),
        ("defaultspread", '"kind": "ReplicationController"'),
        ("podaffinity", '"namespaceSelector": {}'),
        ("podaffinity", '"mismatchLabelKeys"'),
        ("volumes", '"ReadWriteOncePod"'),
        ("volumes", '"local"'),
        ("volumes", '"WaitForFirstConsumer"'),
        ("volumes", '"kind": "CSIStorageCapacity"'),
        ("volumes", '"kind": "VolumeAttachment"'),
        ("dra", '"firstAvailable"'),
        ("dra", '"distinctAttribute"'),
        ("dra", '"allowMultipleAllocations"'),
        ("dra", '"allocationMode": "All"'),
        ("dra", '"reservedFor"'),
        ("storage", '"maximumVolumeSize"'),
        ("storage", '"volume.kubernetes.io/selected-node"'),
        ("shapes", '"schedulerName": "halfstorage"'),
        ("drivers", '"preventPodSchedulingIfMissing": true'),
        ("drivers", '"ebs.csi.aws.com"'),
        ("imagevolumes", '"reference": "registry.example/huge'),
        ("features", '"RestartAllContainers"'),
        ("features", '"hostUsers": false'),
        ("mountoptions", '"bindMountOptions"'),
        ("resize", '"initContainerStatuses": [{'),
        ("resize", '"restartCount": 0}'),
        ("resize", '"reason": "Infeasible"'),
        ("preemption", '"priorityClassName": "never"'),
        ("preemption", '"disruptedPods"'),
        ("extenders", '"example.com/card"'),
        ("extenders", '"extender-seed"'),
        ("rules138", '"selector": {}'),
        ("rules138", '"labelSelector": {}'),
        ("rules138", '"storage": "16e-1"'),
        ("rules138", '"9223372036854775807"'),
        ("rules138", '"key": "absent", "operator": "DoesNotExist"'),
        ("profiles", '"RequestedToCapacityRatio"'),
        ("profiles", '"addedAffinity"'),
    ],
)
def test_the_corners_of_the_api_are_reached(suite: str, corner: str) -> None:
    scenes = (random_scene(suite, SEED, index) for index in range(50))
    assert any(corner in json.dumps([s.objects, s.pod, s.profile]) for s in scenes)
