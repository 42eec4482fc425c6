"""Kubelet features that some nodes declare, and pods that need some of them."""

from conformance.scenes.cluster import Cluster, Raw
from conformance.scenes.draw import Draw

FEATURES = (
    "InPlacePodVerticalScalingInitContainers",
    "RestartAllContainersOnContainerExits",
    "UserNamespacesHostNetworkSupport",
    "VolumeBindMountOptions",
)


def declared_features(cluster: Cluster, pod: Raw) -> None:
    """Let nodes declare random features, and let the pod need up to two."""
    draw = cluster.draw
    for node in cluster.nodes:
        declared = [feature for feature in FEATURES if draw.chance(0.4)]
        if declared:
            node["status"]["declaredFeatures"] = declared
    if draw.chance(0.7):
        _restart_rules(draw, pod)
    if draw.chance(0.5):
        pod["spec"] |= {"hostNetwork": True, "hostUsers": draw.chance(0.2)}


def mount_options(cluster: Cluster, pod: Raw) -> None:
    """Give a container a volume mount with options (an API field since 1.37)."""
    pod["spec"].setdefault("volumes", []).append({"name": "scratch", "emptyDir": {}})
    options = cluster.draw.some(("noexec", "nodev", "nosuid"), 1, 3)
    mount = {"name": "scratch", "mountPath": "/scratch", "bindMountOptions": options}
    cluster.draw.choice(pod["spec"]["containers"])["volumeMounts"] = [mount]


def _restart_rules(draw: Draw, pod: Raw) -> None:
    """Give a container or init container a rule that restarts all containers or only itself."""
    container = pod["spec"]["containers"][0]
    if draw.chance(0.3):
        container = {"name": "i8", "image": container["image"]}
        pod["spec"].setdefault("initContainers", []).append(container)
    action = draw.choice(("RestartAllContainers", "RestartAllContainers", "Restart"))
    codes = {"operator": "In", "values": [draw.randint(1, 9)]}
    rule = {"action": action, "exitCodes": codes}
    container |= {"restartPolicy": "Never", "restartPolicyRules": [rule]}
