import re
from typing import Any

import pytest

from mooring.model.declared_features import (
    RESTART_ALL_CONTAINERS,
    USER_NAMESPACES_HOST_NETWORK,
    VOLUME_BIND_MOUNT_OPTIONS,
    declared_features,
    required_features,
)
from mooring.model.manifest_error import ManifestError

RESTARTS = {"restartPolicyRules": [{"action": "Restart"}, {"action": "RestartAllContainers"}]}
MOUNTS = {"volumeMounts": [{"name": "a"}, {"name": "b", "bindMountOptions": ["noexec"]}]}


@pytest.mark.parametrize(
    ("spec", "features"),
    [
        ({"containers": [{}]}, []),
        ({"containers": [{}, RESTARTS]}, [RESTART_ALL_CONTAINERS]),
        ({"initContainers": [RESTARTS]}, [RESTART_ALL_CONTAINERS]),
        ({"ephemeralContainers": [RESTARTS]}, []),
        ({"containers": [{"restartPolicyRules": [{"action": "Restart"}]}]}, []),
        ({"hostNetwork": True, "hostUsers": False}, [USER_NAMESPACES_HOST_NETWORK]),
        ({"hostNetwork": True, "hostUsers": True}, []),
        ({"hostNetwork": True}, []),
        ({"hostUsers": False}, []),
        ({"containers": [MOUNTS]}, [VOLUME_BIND_MOUNT_OPTIONS]),
        ({"initContainers": [MOUNTS]}, [VOLUME_BIND_MOUNT_OPTIONS]),
        ({"ephemeralContainers": [MOUNTS]}, [VOLUME_BIND_MOUNT_OPTIONS]),
        ({"containers": [{"volumeMounts": [{"bindMountOptions": []}]}]}, []),
        ({"containers": [{"volumeMounts": None, "restartPolicyRules": None}]}, []),
        (
            {"containers": [RESTARTS | MOUNTS], "hostNetwork": True, "hostUsers": False},
            [RESTART_ALL_CONTAINERS, USER_NAMESPACES_HOST_NETWORK, VOLUME_BIND_MOUNT_OPTIONS],
        ),
    ],
)
def test_a_pod_needs_the_features_that_its_spec_uses(
    spec: dict[str, Any], features: list[str]
) -> None:
    assert required_features(spec) == features


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        (
            {"containers": [{"restartPolicyRules": ["x"]}]},
            "spec.containers[0].restartPolicyRules[0]: must be an object, not 'x'",
        ),
        (
            {"initContainers": [{}, {"volumeMounts": 3}]},
            "spec.initContainers[1].volumeMounts: must be a list, not 3",
        ),
        ({"hostUsers": "no"}, "spec.hostUsers: must be true or false, not 'no'"),
        (
            {"hostUsers": False, "hostNetwork": 1},
            "spec.hostNetwork: must be true or false, not 1",
        ),
    ],
)
def test_a_field_of_the_wrong_type_is_named(spec: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ManifestError, match=re.escape(complaint)):
        required_features(spec)


def test_of_a_nodes_features_those_are_kept_that_pods_may_need() -> None:
    assert declared_features(("GuaranteedQoSPodCPUResize", RESTART_ALL_CONTAINERS)) == {
        RESTART_ALL_CONTAINERS
    }
