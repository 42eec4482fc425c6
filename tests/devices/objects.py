"""Nodes with GPU cards and pods that request them, as gpushare's clusters write them."""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from mooring.testing.builders import node, pod

Raw = dict[str, Any]

MEMORY = "aliyun.com/gpu-mem"
COUNT = "aliyun.com/gpu-count"
CORES = "aliyun.com/gpu-core.percentage"
WHOLE = "nvidia.com/gpu"
GPUSHARE = "ALIYUN_COM_GPU_MEM"


def gpu_node(
    name: str,
    cards: int = 4,
    memory: int = 16,
    *,
    lost: int = 0,
    unhealthy: str = "",
    links: Sequence[Sequence[str]] = (),
    described: Sequence[Mapping[str, Any]] = (),
    labels: Mapping[str, str] | None = None,
    **fields: Any,
) -> Raw:
    """Return a node with so many cards of so many GiB each; `lost` of them are not allocatable."""
    topology = {
        **({"links": [list(row) for row in links]} if links else {}),
        **({"cards": list(described)} if described else {}),
    }
    annotations = {
        **(
            {"scheduling.mooring.dev/gpu-topology": orjson.dumps(topology).decode()}
            if topology
            else {}
        ),
        **({"scheduling.mooring.dev/gpu-unhealthy": unhealthy} if unhealthy else {}),
    }
    capacity = {MEMORY: cards * memory, COUNT: cards, WHOLE: cards}
    left = {MEMORY: (cards - lost) * memory, COUNT: cards, WHOLE: cards - lost}
    amounts = {key: str(value) for key, value in capacity.items()}
    return node(
        name,
        resources=left if cards else None,
        annotations=annotations,
        labels=labels,
        status={"capacity": amounts} if cards else None,
        **{"cpu": "64", "memory": "512Gi", **fields},
    )


def share_pod(
    name: str,
    memory: int = 4,
    *,
    cores: int = 0,
    card: int | str | None = None,
    annotations: Mapping[str, str] | None = None,
    **fields: Any,
) -> Raw:
    """Return a pod with so many GiB of one card; `card` is the one its annotation names."""
    named = {} if card is None else {f"{GPUSHARE}_IDX": str(card)}
    amounts = {MEMORY: memory, **({CORES: cores} if cores else {})}
    return pod(name, requests=amounts, annotations={**named, **(annotations or {})}, **fields)


def whole_pod(
    name: str,
    cards: int = 1,
    *,
    on: str | None = None,
    annotations: Mapping[str, str] | None = None,
    **fields: Any,
) -> Raw:
    """Return a pod with so many whole cards; `on` are those its annotation names, such as `0,1`."""
    named = {} if on is None else {"scheduling.mooring.dev/gpu-cards": on}
    return pod(
        name, requests={WHOLE: cards}, annotations={**named, **(annotations or {})}, **fields
    )
