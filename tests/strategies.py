"""Random clusters and pods for hypothesis: small, and made to collide.

Names, labels, ports, images and amounts come from short lists, so that the requirements of one
object often concern another object. Strategies without arguments are made only once, because making
and checking a strategy takes longer than drawing from it.
"""

from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from mooring.model.node import HOSTNAME, ZONE
from mooring.testing.builders import namespace, node, pod, service, toleration
from mooring.testing.contract import Scenario
from storage_builders import (
    csi_driver,
    csi_node,
    pv,
    pvc,
    storage_capacity,
    storage_class,
)

Raw = dict[str, Any]

NAMESPACES = ("default", "team-a", "team-b")
NODE_NAMES = tuple(f"n{i}" for i in range(6))
IMAGES = {"registry.example/small:v1": 50 * 2**20, "registry.example/big:v1": 900 * 2**20}
TAINTS = ("dedicated=gpu:NoSchedule", "flaky:PreferNoSchedule", "broken:NoExecute")
CLAIMS = ("bound-to-n0", "waits", "made", "lost", "no-such-claim")
FEATURES = ("RestartAllContainersOnContainerExits", "UserNamespacesHostNetworkSupport")
GPU = "example.com/gpu"

_HARD = "requiredDuringSchedulingIgnoredDuringExecution"
_SOFT = "preferredDuringSchedulingIgnoredDuringExecution"
_KEYS = st.sampled_from((HOSTNAME, ZONE, "rack"))
_APPS = st.sampled_from(("a", "b", "c"))
_WEIGHTS = st.integers(1, 100)


def _rarely(strategy: SearchStrategy[Any], otherwise: Any) -> SearchStrategy[Any]:
    """Return a strategy that mostly draws `otherwise`, so that a pod has few features at a time."""
    return st.one_of(*[st.just(otherwise)] * 5, strategy)


_NODE: dict[str, SearchStrategy[Any]] = {
    "cpu": st.sampled_from(("4", "2", "8", "500m", "0")),
    "memory": st.sampled_from(("4Gi", "8Gi", "1Gi")),
    "pods": st.sampled_from((110, 4, 2, 0)),
    "resources": _rarely(st.fixed_dictionaries({GPU: st.integers(1, 4)}), None),
    "labels": st.fixed_dictionaries(
        {},
        optional={
            "disk": st.sampled_from(("ssd", "hdd")),
            "cores": st.sampled_from(("2", "8", "many")),
            "rack": st.sampled_from(("r1", "r2")),
        },
    ),
    "zone": st.sampled_from(("a", "b", None)),
    "taints": _rarely(st.lists(st.sampled_from(TAINTS), unique=True), ()),
    "unschedulable": _rarely(st.just(value=True), otherwise=False),
    "images": st.dictionaries(st.sampled_from(tuple(IMAGES)), st.none()).map(
        lambda chosen: {image: IMAGES[image] for image in chosen}
    ),
    "status": st.lists(st.sampled_from(FEATURES), unique=True).map(
        lambda declared: {"declaredFeatures": sorted(declared)}
    ),
}


def nodes(name: SearchStrategy[str]) -> SearchStrategy[Raw]:
    """Return a strategy for a node with some room, labels, taints and images."""
    return st.builds(node, name, **_NODE)


_NODES = {name: nodes(st.just(name)) for name in NODE_NAMES}


def clusters_of_nodes(at_least: int = 0) -> SearchStrategy[tuple[Raw, ...]]:
    """Return a strategy for up to six nodes with different names."""
    names = st.lists(st.sampled_from(NODE_NAMES), unique=True, min_size=at_least)
    return names.flatmap(lambda chosen: st.tuples(*(_NODES[name] for name in chosen)))


def _node_terms() -> SearchStrategy[Raw]:
    expressions = st.one_of(
        st.builds(
            lambda operator, values: {"key": "disk", "operator": operator, "values": values},
            st.sampled_from(("In", "NotIn")),
            st.lists(st.sampled_from(("ssd", "hdd", "tape")), min_size=1),
        ),
        st.builds(
            lambda operator: {"key": "rack", "operator": operator},
            st.sampled_from(("Exists", "DoesNotExist")),
        ),
        st.builds(
            lambda operator: {"key": "cores", "operator": operator, "values": ["4"]},
            st.sampled_from(("Gt", "Lt")),
        ),
    )
    fields = st.builds(
        lambda name: [{"key": "metadata.name", "operator": "In", "values": [name]}],
        st.sampled_from(NODE_NAMES),
    )
    return st.fixed_dictionaries(
        {"matchExpressions": st.lists(expressions, max_size=2)},
        optional={"matchFields": _rarely(fields, [])},
    )


def _node_affinity() -> SearchStrategy[Raw]:
    preferred = st.fixed_dictionaries({"weight": _WEIGHTS, "preference": _node_terms()})
    return st.fixed_dictionaries(
        {},
        optional={
            _HARD: st.fixed_dictionaries(
                {"nodeSelectorTerms": st.lists(_node_terms(), min_size=1, max_size=2)}
            ),
            _SOFT: st.lists(preferred, max_size=2),
        },
    )


def _selector() -> SearchStrategy[Raw]:
    return st.one_of(
        st.builds(lambda app: {"matchLabels": {"app": app}}, _APPS), st.just({}), st.none()
    )


def _pod_affinity() -> SearchStrategy[Raw]:
    term = st.fixed_dictionaries(
        {"topologyKey": _KEYS, "labelSelector": _selector()},
        optional={
            "namespaces": st.lists(st.sampled_from(NAMESPACES), max_size=2),
            "namespaceSelector": st.sampled_from(({}, {"matchLabels": {"env": "prod"}})),
        },
    )
    preferred = st.fixed_dictionaries({"weight": _WEIGHTS, "podAffinityTerm": term})
    return st.fixed_dictionaries(
        {}, optional={_HARD: st.lists(term, max_size=2), _SOFT: st.lists(preferred, max_size=2)}
    )


def _spread() -> SearchStrategy[list[Raw]]:
    constraint = st.fixed_dictionaries(
        {
            "topologyKey": _KEYS,
            "maxSkew": st.integers(1, 2),
            "whenUnsatisfiable": st.sampled_from(("DoNotSchedule", "ScheduleAnyway")),
            "labelSelector": _selector(),
        },
        optional={
            "nodeAffinityPolicy": st.sampled_from(("Honor", "Ignore")),
            "nodeTaintsPolicy": st.sampled_from(("Honor", "Ignore")),
        },
    )
    return st.lists(
        constraint, max_size=2, unique_by=lambda c: (c["topologyKey"], c["whenUnsatisfiable"])
    )


def _host_ports() -> SearchStrategy[Raw]:
    return st.fixed_dictionaries(
        {
            "containerPort": st.just(80),
            "hostPort": st.sampled_from((80, 81)),
            "protocol": st.sampled_from(("TCP", "UDP")),
            "hostIP": st.sampled_from(("", "10.0.0.1", "10.0.0.2")),
        }
    )


_POD: dict[str, SearchStrategy[Any]] = {
    "namespace": st.sampled_from(NAMESPACES),
    "cpu": st.sampled_from((None, "0", "300m", "1")),
    "memory": st.sampled_from((None, "100Mi", "1Gi")),
    "requests": _rarely(st.just({GPU: 1}), None),
    "labels": st.fixed_dictionaries({}, optional={"app": _APPS}),
    "priority": st.sampled_from((0, 0, 10)),
    "ports": _rarely(st.lists(_host_ports(), max_size=2), ()),
    "images": st.lists(st.sampled_from(tuple(IMAGES)), min_size=1, max_size=2),
    "node_selector": _rarely(st.just({"disk": "ssd"}), None),
    "affinity": _rarely(
        st.fixed_dictionaries(
            {},
            optional={
                "nodeAffinity": _node_affinity(),
                "podAffinity": _pod_affinity(),
                "podAntiAffinity": _pod_affinity(),
            },
        ),
        None,
    ),
    "spread": _rarely(_spread(), ()),
    "tolerations": _rarely(
        st.lists(st.sampled_from((toleration(), toleration("dedicated", "gpu")))), ()
    ),
    "claims": _rarely(st.lists(st.sampled_from(CLAIMS), max_size=2, unique=True), ()),
    "spec": _rarely(st.just({"hostNetwork": True, "hostUsers": False}), None),
}


def pods(
    name: SearchStrategy[str], on: SearchStrategy[str | None], **features: Any
) -> SearchStrategy[Raw]:
    """Return a strategy for a pod on a node or none; `features` replace the builder's arguments."""
    return st.builds(pod, name, **(_POD | {"node": on} | features))


def surroundings() -> tuple[Raw, ...]:
    """Return the namespaces, the Service and the storage that `pods` may refer to."""
    return (
        *(namespace(name, {"env": "prod" if name == "team-a" else "dev"}) for name in NAMESPACES),
        service("front", {"app": "a"}),
        storage_class("late"),
        storage_class("made", provisioner="csi.tracked"),
        csi_driver("csi.tracked", storage_capacity=True, required_on_node=True),
        *(
            storage_capacity(f"in-{z}", "made", f"{n}Gi", {ZONE: z})
            for z, n in (("a", 2), ("b", 9))
        ),
        pv("on-n0", nodes=("n0",), claim="default/bound-to-n0"),
        pv("free", nodes=("n1", "n2"), storage_class="late"),
        pvc("bound-to-n0", volume="on-n0"),
        pvc("waits", storage_class="late"),
        pvc("made", storage_class="made"),
        pvc("lost", volume="no-such-volume"),
        csi_node("n0", {"csi.example": 1, "csi.tracked": None}),
        csi_node("n1", {"csi.tracked": None}),
        csi_node("n2", {}),
    )


_NAMED_NODES = clusters_of_nodes()
_PLACED = tuple(st.just(f"placed-{i}") for i in range(5))
_INCOMING = pods(st.just("incoming"), st.none())
_UP_TO_FIVE = st.integers(0, 5)


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    """Draw a cluster with pods on its nodes, and a pod to schedule."""
    chosen = draw(_NAMED_NODES)
    on = st.sampled_from([raw["metadata"]["name"] for raw in chosen])
    placed = [draw(pods(name, on)) for name in _PLACED[: draw(_UP_TO_FIVE) if chosen else 0]]
    incoming = draw(_INCOMING)
    return Scenario(nodes=chosen, pod=incoming, others=(*surroundings(), *placed))
