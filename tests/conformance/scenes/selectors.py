"""Random label selectors and node selector terms."""

from collections.abc import Sequence

from conformance.scenes.cluster import Raw
from conformance.scenes.draw import Draw
from conformance.scenes.vocabulary import APPS, HASH, HASHES, RACK, TIERS, ZONE, ZONES

_NODE_VALUES = {
    ZONE: ZONES,
    "disk": ("ssd", "hdd"),
    "cores": ("2", "4", "16", "many"),
    "gpu": ("true", "false"),
    RACK: ("k0", "k1", "k2"),
}


def label_selector(draw: Draw, *, with_hash: bool = True) -> Raw:
    """Return a random selector of pods, perhaps empty; `with_hash` allows pod-template-hash."""
    selector: Raw = {}
    if draw.chance(0.7):
        selector["matchLabels"] = {"app": draw.choice(APPS)}
    if draw.chance(0.45):
        keys = ("app", "tier", HASH) if with_hash else ("app", "tier")
        selector["matchExpressions"] = [_pod_expression(draw, key) for key in draw.some(keys, 1, 2)]
    return selector


def namespace_selector(draw: Draw) -> Raw:
    """Return a selector of namespaces, perhaps an empty one."""
    operator = draw.choice(("", "In", "NotIn", "Exists", "DoesNotExist"))
    if not operator:
        return {}
    key = draw.choice(("env", "env", "absent"))
    return {"matchExpressions": [_expression(key, operator, draw.some(("prod", "dev"), 1, 2))]}


def _pod_expression(draw: Draw, key: str) -> Raw:
    operator = draw.choice(("In", "NotIn", "Exists", "DoesNotExist"))
    values = {"app": APPS, "tier": TIERS, HASH: HASHES}[key]
    return _expression(key, operator, draw.some(values, 1, 2))


def node_term(draw: Draw, node_names: Sequence[str], *, least: int = 0) -> Raw:
    """Return a term of required node affinity with at least `least` expressions."""
    term: Raw = {}
    expressions = [node_expression(draw) for _ in range(draw.randint(least, 2))]
    if expressions:
        term["matchExpressions"] = expressions
    if draw.chance(0.15):
        term["matchFields"] = [
            _expression("metadata.name", draw.choice(("In", "NotIn")), [name])
            for name in draw.some(node_names, 1, 2)
        ]
    return term


def node_expression(draw: Draw) -> Raw:
    """Return a requirement on a node's labels."""
    key = draw.choice(tuple(_NODE_VALUES))
    if key == "cores" and draw.chance(0.6):
        bound = draw.choice(("0", "3", "4", "8"))
        return _expression(key, draw.choice(("Gt", "Lt")), [bound])
    operator = draw.choice(("In", "In", "NotIn", "NotIn", "Exists", "DoesNotExist"))
    return _expression(key, operator, draw.some(_NODE_VALUES[key], 1, 2))


def _expression(key: str, operator: str, values: list[str]) -> Raw:
    bare = {"key": key, "operator": operator}
    return bare if operator in {"Exists", "DoesNotExist"} else {**bare, "values": values}
