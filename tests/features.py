"""Strategies of hypothesis for features of nodes, pods and storage, with few names and labels.

`strategies` draws whole clusters; these are for objects that change one feature at a time.
"""

from collections.abc import Iterable
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from mooring.model.node import HOSTNAME, ZONE
from mooring.testing.builders import toleration
from storage_builders import pv, pvc

Features = dict[str, Any]
"""Arguments of a builder."""

NODES = ("n0", "n1", "n2")
NAMESPACES = ("default", "other")
CLAIMS = ("c0", "c1")
VOLUMES = ("v0", "v1")
CLASSES = ("late", "made", "at-once")
DRIVER = "ebs.csi.aws.com"
HARD = "requiredDuringSchedulingIgnoredDuringExecution"

_KEYS = st.sampled_from((HOSTNAME, ZONE, "rack"))
_SELECTORS: tuple[dict[str, Any] | None, ...] = (
    {"matchLabels": {"app": "a"}},
    {"matchLabels": {"app": "b"}},
    {},
    None,
)


def _named(mounts: Iterable[Any]) -> list[dict[str, Any]]:
    """Return the volumes, each with a name."""
    return [{"name": f"v{i}", **mount} for i, mount in enumerate(mounts)]


def _either(**values: Iterable[Any]) -> list[SearchStrategy[Features]]:
    return [st.sampled_from([{name: value} for value in among]) for name, among in values.items()]


def _few_of(
    features: SearchStrategy[Features], most: int, always: SearchStrategy[Features]
) -> SearchStrategy[Features]:
    chosen = st.tuples(always, st.lists(features, min_size=1, max_size=most))
    return chosen.map(
        lambda few: {n: value for one in (few[0], *few[1]) for n, value in one.items()}
    )


node_feature = st.one_of(
    *_either(
        cpu=("1", "2", "4"),
        pods=(1, 2, 110),
        resources=({"attachable-volumes-aws-ebs": 1}, None),
        zone=("a", "b", None),
        labels=({"rack": "r1"}, {"rack": "r2", "disk": "ssd"}, {"disk": "ssd"}, {}),
        taints=(["gpu:NoSchedule"], ["gpu:PreferNoSchedule"], ["broken:NoExecute"], []),
        unschedulable=(True, False),
        conditions=({"Ready": "False"}, {"MemoryPressure": "True"}, {"PIDPressure": "True"}, {}),
    )
)
"""One argument of `mooring.testing.builders.node`."""
node_features = _few_of(node_feature, 3, st.sampled_from(({"zone": "a"}, {"zone": "b"}, {})))

_TERM = st.fixed_dictionaries(
    {"topologyKey": _KEYS, "labelSelector": st.sampled_from(_SELECTORS)},
    optional={
        "namespaces": st.just(["other"]),
        "namespaceSelector": st.sampled_from(({}, {"matchLabels": {"env": "prod"}})),
    },
)
_TERMS = st.lists(_TERM, min_size=1, max_size=2).map(lambda terms: {HARD: terms})
_CONSTRAINT = st.fixed_dictionaries(
    {
        "topologyKey": _KEYS,
        "maxSkew": st.just(1),
        "whenUnsatisfiable": st.just("DoNotSchedule"),
        "labelSelector": st.sampled_from(_SELECTORS),
    },
    optional={
        "minDomains": st.just(2),
        "nodeAffinityPolicy": st.just("Ignore"),
        "nodeTaintsPolicy": st.just("Honor"),
    },
)
_BY_NAME = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
_MOUNTS = st.lists(
    st.sampled_from(
        (
            *({"persistentVolumeClaim": {"claimName": claim}} for claim in CLAIMS),
            {"awsElasticBlockStore": {"volumeID": "vol-1"}},
            {"awsElasticBlockStore": {"volumeID": "vol-2"}},
            {"gcePersistentDisk": {"pdName": "d", "readOnly": True}},
            {"gcePersistentDisk": {"pdName": "d"}},
        )
    ),
    min_size=1,
    max_size=2,
)

pod_features = _few_of(
    st.one_of(
        *_either(
            cpu=("500m", "1", "2"),
            priority=(0, 10),
            ports=([80], [81], [{"containerPort": 1, "hostPort": 80, "hostIP": "10.0.0.1"}]),
            node_selector=({"disk": "ssd"},),
            tolerations=([toleration("gpu")], [toleration()]),
            owner=({"kind": "ReplicaSet", "name": "rs", "uid": "rs"},),
            affinity=({"nodeAffinity": {HARD: {"nodeSelectorTerms": [_BY_NAME]}}},),
        ),
        _TERMS.map(lambda terms: {"affinity": {"podAffinity": terms}}),
        _TERMS.map(lambda terms: {"affinity": {"podAntiAffinity": terms}}),
        st.lists(
            _CONSTRAINT, min_size=1, max_size=2, unique_by=lambda c: str(c["topologyKey"])
        ).map(lambda constraints: {"spread": constraints}),
        _MOUNTS.map(lambda mounts: {"spec": {"volumes": _named(mounts)}}),
    ),
    most=3,
    always=st.sampled_from(({"labels": {"app": "a"}}, {"labels": {"app": "b"}}, {})),
)
"""Arguments of `mooring.testing.builders.pod`."""

drawn_volumes = st.builds(
    pv,
    st.sampled_from(VOLUMES),
    size=st.sampled_from(("1Gi", "2Gi")),
    storage_class=st.sampled_from(CLASSES),
    nodes=st.sampled_from(((), ("n0",), ("n1", "n2"))),
    claim=st.sampled_from((None, None, "default/c0")),
    labels=st.sampled_from(({}, {ZONE: "a"}, {ZONE: "b"})),
    spec=st.sampled_from(
        (
            {"csi": {"driver": DRIVER, "volumeHandle": "vol-1"}},
            {"awsElasticBlockStore": {"volumeID": "vol-1"}},
            {},
        )
    ),
)
drawn_claims = st.builds(
    pvc,
    st.sampled_from(CLAIMS),
    size=st.sampled_from(("1Gi", "2Gi")),
    storage_class=st.sampled_from(CLASSES),
    modes=st.sampled_from((["ReadWriteOnce"], ["ReadWriteOncePod"])),
    volume=st.sampled_from((None, None, *VOLUMES)),
)
