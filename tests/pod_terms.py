"""What pods say about being near other pods, and away from them."""

from collections.abc import Mapping
from typing import Any

from mooring.model.node import HOSTNAME

Raw = dict[str, Any]

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def to_pods(labels: Mapping[str, str], key: str = HOSTNAME, **fields: Any) -> Raw:
    """Return the term about pods with these labels, on the node or in another such domain."""
    return {"labelSelector": {"matchLabels": labels}, "topologyKey": key, **fields}


def near(*terms: Raw) -> Raw:
    return {"podAffinity": {_REQUIRED: [*terms]}}


def apart(*terms: Raw) -> Raw:
    return {"podAntiAffinity": {_REQUIRED: [*terms]}}


def spread_evenly(labels: Mapping[str, str], key: str = HOSTNAME, **fields: Any) -> Raw:
    """Return the constraint that no domain has more than one such pod more than another."""
    rule = {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    return {**rule, **to_pods(labels, key), **fields}
