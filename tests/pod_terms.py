"""Inter-pod affinity terms and topology spread constraints."""

from collections.abc import Mapping
from typing import Any

from mooring.model.node import HOSTNAME

Raw = dict[str, Any]

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def to_pods(labels: Mapping[str, str], key: str = HOSTNAME, **fields: Any) -> Raw:
    """Return an inter-pod term for pods with these labels in the same domain (by default: node)."""
    return {"labelSelector": {"matchLabels": labels}, "topologyKey": key, **fields}


def near(*terms: Raw) -> Raw:
    return {"podAffinity": {_REQUIRED: [*terms]}}


def apart(*terms: Raw) -> Raw:
    return {"podAntiAffinity": {_REQUIRED: [*terms]}}


def spread_evenly(labels: Mapping[str, str], key: str = HOSTNAME, **fields: Any) -> Raw:
    """Return a hard topology spread constraint with maxSkew 1 for pods with these labels."""
    rule = {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    return {**rule, **to_pods(labels, key), **fields}
