"""The suites of cases: their features, profiles and kinds of clusters."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from conformance.scenes.budgets import budgets, budgets_of_all
from conformance.scenes.claims import claims_in_use
from conformance.scenes.cluster import Cluster, Feature, Scene, always, one_of, sometimes
from conformance.scenes.declared_features import declared_features, mount_options
from conformance.scenes.demand import (
    host_ports,
    huge_amounts,
    image_volumes,
    images,
    init_containers,
    limits_only,
    modest_requests,
    overhead,
    pod_level,
    priority,
    requests,
    resize,
    resize_stages,
    scarce,
)
from conformance.scenes.devices import device_claims
from conformance.scenes.draw import Draw
from conformance.scenes.extenders import EXTENDERS, extended
from conformance.scenes.nodes import NodeStyle, random_nodes
from conformance.scenes.placement import (
    affinity_across_namespaces,
    avoid_own_app,
    node_affinity,
    owner,
    pod_affinity,
    required_pod_affinity,
    services,
    spread,
    spread_over_all,
    tolerations,
)
from conformance.scenes.pods import finished, leaving, new_pod, started
from conformance.scenes.profiles import BY_RESOURCES, DEFAULT, PROFILES, STORAGE_PROFILES
from conformance.scenes.storage import inline_disk, required_driver, volumes
from conformance.scenes.storage_capacity import exact_storage, measured_storage
from mooring.model.kubernetes_rules import minor_version

_USUAL_NODES: Final = NodeStyle()


@dataclass(frozen=True)
class Suite:
    """The features of the pending pod and of bound pods; `pods` is the range of bound pods."""

    pending: Sequence[Feature]
    bound: Sequence[Feature] = (requests, sometimes(0.1, scarce))
    nodes: NodeStyle = _USUAL_NODES
    pods: tuple[int, int] = (0, 30)
    profiles: Sequence[Mapping[str, Any]] = (DEFAULT,)
    extenders: Sequence[dict[str, Any]] = ()
    since: str = "1.34"
    """The first minor version of Kubernetes whose API and kube-scheduler can have such cases."""


_EXTRAS = (
    sometimes(0.25, scarce),
    sometimes(0.1, limits_only),
    sometimes(0.35, init_containers),
    sometimes(0.15, pod_level),
    sometimes(0.12, overhead),
)
_PLAIN = (requests, sometimes(0.1, scarce))
_LIGHT = (sometimes(0.4, requests), sometimes(0.05, scarce))
"""Of a pending pod for which amounts should seldom be what decides."""
_LEAVING = sometimes(0.08, leaving)

SUITES: Final[Mapping[str, Suite]] = {
    "resources": Suite((requests, *_EXTRAS), (requests, *_EXTRAS, sometimes(0.08, resize))),
    "taints": Suite((*_LIGHT, sometimes(0.85, tolerations)), nodes=NodeStyle(tainted=0.65)),
    "nodeaffinity": Suite((*_LIGHT, node_affinity)),
    "ports": Suite((*_LIGHT, host_ports), (*_PLAIN, sometimes(0.4, host_ports))),
    "images": Suite((images, *_LIGHT), nodes=NodeStyle(imaged=0.75)),
    "spread": Suite(
        (*_LIGHT, sometimes(0.3, tolerations), sometimes(0.2, node_affinity), spread),
        (*_PLAIN, _LEAVING),
        NodeStyle(tainted=0.25),
        (10, 40),
    ),
    "defaultspread": Suite((*_PLAIN, sometimes(0.9, services), sometimes(0.4, owner))),
    "podaffinity": Suite(
        (*_LIGHT, pod_affinity),
        (*_PLAIN, sometimes(0.25, pod_affinity), sometimes(0.1, required_pod_affinity), _LEAVING),
    ),
    "volumes": Suite((*_LIGHT, volumes, sometimes(0.3, inline_disk))),
    "storage": Suite((*_LIGHT, measured_storage)),
    "shapes": Suite((*_LIGHT, measured_storage), profiles=STORAGE_PROFILES, since="1.37"),
    "drivers": Suite((*_LIGHT, required_driver, sometimes(0.2, inline_disk))),
    "imagevolumes": Suite(
        (sometimes(0.5, images), image_volumes, *_LIGHT), nodes=NodeStyle(imaged=0.75), since="1.35"
    ),
    "features": Suite((*_LIGHT, declared_features), since="1.36"),
    "mountoptions": Suite(
        (*_LIGHT, declared_features, sometimes(0.7, mount_options)), since="1.37"
    ),
    "dra": Suite((*_LIGHT, device_claims), nodes=NodeStyle(3, 6, plain=True), since="1.36"),
    "claims": Suite(
        (
            sometimes(0.3, modest_requests),
            sometimes(0.4, priority("high", "never")),
            claims_in_use,
        ),
        (modest_requests, priority("low", "lower", "mid"), started),
        NodeStyle(3, 6, plain=True),
        (0, 20),
        since="1.36",
    ),
    "preemption": Suite(
        (
            modest_requests,
            priority("high", "high", "mid", "never", "low"),
            sometimes(0.15, avoid_own_app),
            sometimes(0.15, host_ports),
            sometimes(0.15, spread),
            sometimes(0.15, required_pod_affinity),
            sometimes(0.1, inline_disk),
            sometimes(0.08, volumes),
            budgets,
        ),
        (
            modest_requests,
            priority("low", "low", "lower", "mid", "high", "negative"),
            sometimes(0.15, host_ports),
            sometimes(0.08, required_pod_affinity),
            started,
        ),
        NodeStyle(3, 6, plain=True),
        (10, 30),
    ),
    "extenders": Suite(
        (
            modest_requests,
            extended,
            priority("high", "high", "mid", "never", "low"),
            sometimes(0.15, avoid_own_app),
            sometimes(0.15, host_ports),
            sometimes(0.15, spread),
            sometimes(0.15, budgets),
        ),
        (
            modest_requests,
            priority("low", "low", "lower", "mid", "high", "negative"),
            sometimes(0.1, host_ports),
            started,
        ),
        NodeStyle(4, 8, plain=True),
        (4, 30),
        extenders=EXTENDERS,
    ),
    "profiles": Suite(
        (
            *_LIGHT,
            sometimes(0.4, scarce),
            sometimes(0.4, pod_affinity),
            sometimes(0.3, node_affinity),
            sometimes(0.3, tolerations),
            sometimes(0.3, host_ports),
            sometimes(0.3, services),
            sometimes(0.2, spread),
        ),
        (*_PLAIN, sometimes(0.3, pod_affinity), sometimes(0.2, host_ports)),
        NodeStyle(tainted=0.2, imaged=0.3),
        profiles=PROFILES,
    ),
    "resize": Suite(
        (requests, *_EXTRAS),
        (
            requests,
            sometimes(0.35, init_containers),
            sometimes(0.3, pod_level),
            sometimes(0.1, overhead),
            sometimes(0.75, resize_stages),
        ),
        pods=(10, 30),
    ),
    "mixed": Suite(
        (
            sometimes(0.15, images),
            requests,
            *_EXTRAS,
            sometimes(0.3, tolerations),
            sometimes(0.25, node_affinity),
            sometimes(0.2, host_ports),
            sometimes(0.3, spread),
            sometimes(0.3, pod_affinity),
            sometimes(0.2, services),
            sometimes(0.2, owner),
            sometimes(0.2, volumes),
            sometimes(0.1, inline_disk),
            sometimes(0.35, priority("high", "low", "mid", "never")),
            sometimes(0.3, budgets),
        ),
        (
            requests,
            *_EXTRAS,
            sometimes(0.15, pod_affinity),
            sometimes(0.15, host_ports),
            sometimes(0.3, priority("low", "mid", "negative")),
            sometimes(0.05, resize),
            started,
        ),
        NodeStyle(tainted=0.2, imaged=0.3),
    ),
    "rules138": Suite(
        (
            *_LIGHT,
            one_of(
                spread_over_all,
                pod_level,
                huge_amounts,
                exact_storage,
                affinity_across_namespaces,
                budgets_of_all,
            ),
        ),
        (modest_requests, priority("low", "low", "lower", "mid", "high", "negative"), started),
        pods=(0, 15),
        profiles=BY_RESOURCES,
        since="1.38",
    ),
}
"""By name, in the order in which they are recorded."""


def suites_of(version: str) -> tuple[str, ...]:
    """Return the suites that kube-scheduler of this Kubernetes version supports, in order."""
    asked = minor_version(version) or ()
    return tuple(n for n, suite in SUITES.items() if (minor_version(suite.since) or ()) <= asked)


def random_scene(suite: str, seed: int, index: int) -> Scene:
    """Return the scene of this number in a suite; it depends on nothing but the arguments."""
    draw = Draw(f"{seed} {suite} {index}")
    return _compose(SUITES[suite], draw, f"{suite}-{index:03}")


def _compose(suite: Suite, draw: Draw, label: str) -> Scene:
    cluster = Cluster(draw, label, random_nodes(draw, label, suite.nodes))
    bound = always((*suite.bound, sometimes(0.03, finished)))
    places = [*cluster.node_names * 8, f"{label}-gone"]
    for number in range(draw.randint(*suite.pods)):
        pod = new_pod(draw, f"e{number:02}")
        pod["spec"]["nodeName"] = draw.choice(places)
        bound(cluster, pod)
        cluster.pods.append(pod)
    profile = draw.choice(suite.profiles)
    pending = new_pod(draw, f"{label}-pending")
    pending["spec"]["schedulerName"] = profile["schedulerName"]
    always(suite.pending)(cluster, pending)
    objects = [*cluster.others, *cluster.nodes, *cluster.pods]
    return Scene(objects, pending, dict(profile), suite.extenders, cluster.made)
