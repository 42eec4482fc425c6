"""Placement rules of pods: tolerations, affinities, topology spread and services."""

from conformance.scenes.cluster import Cluster, Raw
from conformance.scenes.draw import Draw
from conformance.scenes.selectors import (
    label_selector,
    namespace_selector,
    node_expression,
    node_term,
)
from conformance.scenes.vocabulary import (
    APPS,
    EFFECTS,
    HASH,
    TAINT_KEYS,
    TAINT_VALUES,
    TEAMS,
    TOPOLOGY_KEYS,
    image,
)

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_UNSCHEDULABLE = "node.kubernetes.io/unschedulable"


def tolerations(cluster: Cluster, pod: Raw) -> None:
    """Give the pod one to four tolerations in any form that the API allows."""
    count = cluster.draw.randint(1, 4)
    pod["spec"]["tolerations"] = [_toleration(cluster.draw) for _ in range(count)]


def _toleration(draw: Draw) -> Raw:
    if draw.chance(0.08):
        return {"operator": "Exists", **_effect(draw)}  # every key
    if draw.chance(0.1):
        return {"key": _UNSCHEDULABLE, "operator": "Exists", **_effect(draw)}
    key = {"key": draw.choice(TAINT_KEYS)}
    if draw.chance(0.4):
        return {**key, "operator": "Exists", **_effect(draw)}
    equal = {"operator": "Equal"} if draw.chance(0.7) else {}
    return {**key, **equal, "value": draw.choice(TAINT_VALUES), **_effect(draw)}


def _effect(draw: Draw) -> Raw:
    effect = draw.choice(("", *EFFECTS))
    if not effect:
        return {}
    seconds = {"tolerationSeconds": 60} if effect == "NoExecute" and draw.chance(0.3) else {}
    return {"effect": effect, **seconds}


def node_affinity(cluster: Cluster, pod: Raw) -> None:
    """Give the pod some of: a node selector, required terms, preferred terms."""
    draw = cluster.draw
    if draw.chance(0.25):
        pod["spec"]["nodeSelector"] = {"disk": draw.choice(("ssd", "hdd"))}
    affinity: Raw = {}
    if draw.chance(0.65):
        terms = [node_term(draw, cluster.node_names) for _ in range(draw.randint(1, 2))]
        affinity[_REQUIRED] = {"nodeSelectorTerms": terms}
    if draw.chance(0.7):
        affinity[_PREFERRED] = [
            {"weight": draw.randint(1, 100), "preference": _preference(draw)}
            for _ in range(draw.randint(1, 3))
        ]
    pod["spec"].setdefault("affinity", {})["nodeAffinity"] = affinity


def _preference(draw: Draw) -> Raw:
    return {} if draw.chance(0.05) else {"matchExpressions": [node_expression(draw)]}


def pod_affinity(cluster: Cluster, pod: Raw) -> None:
    """Give the pod required and preferred terms of inter-pod affinity and anti-affinity."""
    _add_pod_affinity(cluster, pod, required=0.3, preferred=0.65)


def required_pod_affinity(cluster: Cluster, pod: Raw) -> None:
    """Give the pod inter-pod terms, most of them required."""
    _add_pod_affinity(cluster, pod, required=0.5, preferred=0.2)


def avoid_own_app(_: Cluster, pod: Raw) -> None:
    """Give the pod required anti-affinity to pods of app a."""
    term = {"labelSelector": {"matchLabels": {"app": "a"}}, "topologyKey": "kubernetes.io/hostname"}
    pod["spec"].setdefault("affinity", {})["podAntiAffinity"] = {_REQUIRED: [term]}


def _add_pod_affinity(cluster: Cluster, pod: Raw, *, required: float, preferred: float) -> None:
    draw, affinity = cluster.draw, pod["spec"].setdefault("affinity", {})
    for side in ("podAffinity", "podAntiAffinity"):
        terms: Raw = {}
        if draw.chance(required):
            terms[_REQUIRED] = [_pod_term(draw) for _ in range(draw.randint(1, 2))]
        if draw.chance(preferred):
            terms[_PREFERRED] = [
                {"weight": draw.randint(1, 100), "podAffinityTerm": _pod_term(draw)}
                for _ in range(draw.randint(1, 2))
            ]
        if terms:
            affinity[side] = terms


def _pod_term(draw: Draw) -> Raw:
    term: Raw = {"topologyKey": draw.choice(TOPOLOGY_KEYS)}
    folded = draw.choice(("matchLabelKeys", "mismatchLabelKeys")) if draw.chance(0.15) else None
    if folded:
        term[folded] = [HASH]
    if folded or draw.chance(0.95):
        term["labelSelector"] = label_selector(draw, with_hash=not folded)
    if draw.chance(0.18):
        term["namespaces"] = draw.some(tuple(TEAMS), 1, 2)
    if draw.chance(0.12):
        everywhere: Raw = {}
        labels = {"matchLabels": {"env": draw.choice(("prod", "dev"))}}
        term["namespaceSelector"] = draw.choice((everywhere, labels))
    return term


def affinity_across_namespaces(cluster: Cluster, pod: Raw) -> None:
    """Give the pod and some bound pods terms whose namespaces a selector of any shape selects."""
    draw = cluster.draw
    for each in (*draw.some(cluster.pods, 0, 5), pod):
        _add_pod_affinity(cluster, each, required=0.3, preferred=0.7)
        affinity = each["spec"]["affinity"]
        for side in affinity.values():
            preferred = (weighted["podAffinityTerm"] for weighted in side.get(_PREFERRED, ()))
            for term in (*side.get(_REQUIRED, ()), *preferred):
                term["namespaceSelector"] = namespace_selector(draw)


def spread(cluster: Cluster, pod: Raw) -> None:
    """Give the pod one to three topology spread constraints, hard or soft."""
    draw = cluster.draw
    whens = [(key, hard) for key in TOPOLOGY_KEYS for hard in (True, False)]
    pod["spec"]["topologySpreadConstraints"] = [
        _constraint(draw, key, hard=hard) for key, hard in draw.some(whens, 1, 3)
    ]


def spread_over_all(cluster: Cluster, pod: Raw) -> None:
    """Give the pod constraints that count all pods of its namespace: their selectors are empty."""
    spread(cluster, pod)
    for constraint in pod["spec"]["topologySpreadConstraints"]:
        constraint.pop("matchLabelKeys", None)
        constraint["labelSelector"] = {}


def _constraint(draw: Draw, key: str, *, hard: bool) -> Raw:
    constraint: Raw = {
        "topologyKey": key,
        "maxSkew": draw.choice((1, 1, 2, 3)),
        "whenUnsatisfiable": "DoNotSchedule" if hard else "ScheduleAnyway",
    }
    folded = draw.chance(0.17)
    if folded:
        constraint["matchLabelKeys"] = [HASH]
    if folded or draw.chance(0.97):
        constraint["labelSelector"] = label_selector(draw, with_hash=not folded)
    if hard and draw.chance(0.3):
        constraint["minDomains"] = draw.randint(1, 4)
    for policy in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
        if draw.chance(0.2):
            constraint[policy] = draw.choice(("Honor", "Ignore"))
    return constraint


def services(cluster: Cluster, pod: Raw) -> None:
    """Add one or two Services that select the pod's app, another app or a tier."""
    draw, metadata = cluster.draw, pod["metadata"]
    for number in range(draw.randint(1, 2)):
        app = metadata["labels"]["app"] if draw.chance(0.8) else draw.choice(APPS)
        selector = {"tier": "web"} if draw.chance(0.15) else {"app": app}
        spec = {"selector": selector, "ports": [{"port": 80}]}
        cluster.add("Service", f"svc{number}", metadata["namespace"], spec=spec)


def owner(cluster: Cluster, pod: Raw) -> None:
    """Give the pod an owning workload, which may be missing or select by other labels."""
    draw, metadata = cluster.draw, pod["metadata"]
    kind = draw.choice(("ReplicaSet", "ReplicationController", "StatefulSet", "Job"))
    version = {"ReplicationController": "v1", "Job": "batch/v1"}.get(kind, "apps/v1")
    name = f"owner-{kind.lower()}"
    reference = {"apiVersion": version, "kind": kind, "name": name, "uid": f"uid-of-{name}"}
    metadata["ownerReferences"] = [{**reference, "controller": True}]
    if kind == "Job" or draw.chance(0.15):
        return
    labels = {"app": metadata["labels"]["app"]}
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "c", "image": image("web")}]},
    }
    plain = kind == "ReplicationController"
    selector = labels if plain else {"matchLabels": labels}
    spec: Raw = {"replicas": 1, "selector": selector, "template": template}
    if kind == "StatefulSet":
        spec["serviceName"] = "svc0"
    cluster.add(kind, name, metadata["namespace"], spec=spec)
