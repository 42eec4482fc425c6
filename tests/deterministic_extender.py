"""A scheduler extender whose answers depend only on the pod and the node.

    python -m deterministic_extender --port 8888 [--delay 0.02]

The pod's annotation `extender-seed` (or else its name) and a node's name give a number. Its digits
decide whether the node passes, its score, and whether preemption may use the node. The extender
speaks kube-scheduler's protocol like an extender written in Python.

Under the prefix /unique no two nodes have the same score, and of all candidates for preemption only
one is left, on which the pod passes the filter: so a scheduler has no random choice. Under the
prefix /every every node passes.
"""

import argparse
import asyncio
from collections.abc import Callable, Mapping
from typing import Any
from zlib import crc32

import orjson
from aiohttp import web

SEED = "extender-seed"
UNIQUE = "unique/"
EVERY_NODE = "every/"

Json = Mapping[str, Any]


def numbers(pod: Json, prefix: str) -> Callable[[str], int]:
    """Return a function from a node's name to the number that decides about the pod there.

    The number is the CRC-32 of prefix, seed and node. The common beginning is computed only once,
    because benchmarks ask about many nodes.
    """
    metadata = pod["metadata"]
    seed = (metadata.get("annotations") or {}).get(SEED, metadata["name"])
    begun = crc32(f"{prefix}/{seed}/".encode())
    return lambda node: crc32(node.encode(), begun)


def filtered(args: Json, prefix: str = "") -> dict[str, Any]:
    """Return the ExtenderFilterResult: one node in four fails, one in ten is unresolvable."""
    pod, names = args["Pod"], args["NodeNames"]
    by_name = names is not None
    items = [] if by_name else args["Nodes"]["items"]
    nodes = names if by_name else [item["metadata"]["name"] for item in items]
    failed: dict[str, str] = {}
    for_good: dict[str, str] = {}
    number = numbers(pod, prefix)
    for node in nodes if prefix != EVERY_NODE else ():
        digits = number(node) % 100
        if digits < 15:
            failed[node] = f"extender: group {digits % 2} is busy"
        elif digits < 25:
            for_good[node] = "extender: never"
    passed = [node for node in nodes if node not in failed and node not in for_good]
    left = [item for item in items if item["metadata"]["name"] in passed]
    return {
        "Nodes": None if by_name else {"metadata": {}, "items": left},
        "NodeNames": passed if by_name else None,
        "FailedNodes": failed,
        "FailedAndUnresolvableNodes": for_good,
        "Error": "",
    }


def prioritized(args: Json, prefix: str = "") -> list[dict[str, Any]]:
    """Return the HostPriorityList: scores from 0 to 10."""
    names = args["NodeNames"]
    nodes = names if names is not None else [i["metadata"]["name"] for i in args["Nodes"]["items"]]
    number, highest = numbers(args["Pod"], prefix), 100_003 if prefix == UNIQUE else 11
    return [{"Host": node, "Score": number(node) // 100 % highest} for node in nodes]


def preempted(args: Json, prefix: str = "") -> dict[str, Any]:
    """Return the ExtenderPreemptionResult, without about one node in three."""
    victims = args["NodeNameToMetaVictims"]
    if victims is None:
        victims = {
            node: {
                "Pods": [{"UID": pod["metadata"]["uid"]} for pod in found["Pods"]],
                "NumPDBViolations": found["NumPDBViolations"],
            }
            for node, found in args["NodeNameToVictims"].items()
        }
    pod = args["Pod"]
    number = numbers(pod, prefix)
    left = {node: of for node, of in victims.items() if number(node) // 1100 % 3}
    if prefix == UNIQUE:
        passing = filtered({"Pod": pod, "NodeNames": [*victims]}, prefix)["NodeNames"]
        best = sorted(passing, key=number)[:1]
        left = {node: victims[node] for node in best}
    return {"NodeNameToMetaVictims": left}


def application(*, delay: float = 0.0) -> web.Application:
    """Return the extender as an application; it waits `delay` seconds before each answer."""

    def verb(answer: Any) -> Any:
        async def handle(request: web.Request) -> web.Response:
            args = orjson.loads(await request.read())
            if delay:
                await asyncio.sleep(delay)
            body = orjson.dumps(answer(args, request.match_info["prefix"]))
            return web.Response(body=body, content_type="application/json")

        return handle

    served = web.Application(client_max_size=256 * 1024**2)
    served.router.add_get("/healthz", _healthy)
    served.router.add_post("/{prefix:.*}filter", verb(filtered))
    served.router.add_post("/{prefix:.*}prioritize", verb(prioritized))
    served.router.add_post("/{prefix:.*}preempt", verb(preempted))
    return served


async def _healthy(_request: web.Request) -> web.Response:
    return web.Response(text="ok")


def main() -> None:
    """Serve the extender until the process is killed."""
    parser = argparse.ArgumentParser(prog="python -m deterministic_extender")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--delay", type=float, default=0.0, metavar="SECONDS")
    chosen = parser.parse_args()
    served = application(delay=chosen.delay)
    web.run_app(served, host="127.0.0.1", port=chosen.port, access_log=None, print=None)


if __name__ == "__main__":
    main()
