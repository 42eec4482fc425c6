"""A scheduler extender whose answers follow from the pod and the node alone.

    python -m deterministic_extender --port 8888 [--delay 0.02]

The pod's annotation `extender-seed` (without it, its name) and a node's name give a number, and its
digits decide: whether the node passes, what its score is, and whether preemption may use it. It
speaks the protocol as a Python extender written for kube-scheduler does.
"""

import argparse
import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from zlib import crc32

from aiohttp import web

__all__ = ["SEED", "application", "filtered", "preempted", "prioritized", "serving"]

SEED = "extender-seed"

Json = Mapping[str, Any]


def number(pod: Json, node: str) -> int:
    """The number that decides about the pod on the node."""
    metadata = pod["metadata"]
    seed = (metadata.get("annotations") or {}).get(SEED, metadata["name"])
    return crc32(f"{seed}/{node}".encode())


def filtered(args: Json) -> dict[str, Any]:
    """The ExtenderFilterResult: about one node in four fails, one in ten for good."""
    pod, names = args["Pod"], args["NodeNames"]
    by_name = names is not None
    items = [] if by_name else args["Nodes"]["items"]
    nodes = names if by_name else [item["metadata"]["name"] for item in items]
    failed: dict[str, str] = {}
    for_good: dict[str, str] = {}
    for node in nodes:
        digits = number(pod, node) % 100
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


def prioritized(args: Json) -> list[dict[str, Any]]:
    """The HostPriorityList: scores from 0 to 10."""
    names = args["NodeNames"]
    nodes = names if names is not None else [i["metadata"]["name"] for i in args["Nodes"]["items"]]
    return [{"Host": node, "Score": number(args["Pod"], node) // 100 % 11} for node in nodes]


def preempted(args: Json) -> dict[str, Any]:
    """The ExtenderPreemptionResult: about one node in three is left out."""
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
    left = {node: of for node, of in victims.items() if number(pod, node) // 1100 % 3}
    return {"NodeNameToMetaVictims": left}


def application(*, delay: float = 0.0) -> web.Application:
    """The extender, which answers after `delay` seconds."""

    def verb(answer: Any) -> Any:
        async def handle(request: web.Request) -> web.Response:
            args = await request.json()
            if delay:
                await asyncio.sleep(delay)
            return web.json_response(answer(args))

        return handle

    served = web.Application(client_max_size=256 * 1024**2)
    served.router.add_post("/{any:.*}filter", verb(filtered))
    served.router.add_post("/{any:.*}prioritize", verb(prioritized))
    served.router.add_post("/{any:.*}preempt", verb(preempted))
    return served


@asynccontextmanager
async def serving(served: web.Application, ssl_context: Any = None) -> AsyncIterator[int]:
    """The port of 127.0.0.1 on which the application is served inside."""
    runner = web.AppRunner(served, access_log=None, shutdown_timeout=0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=ssl_context)
        await site.start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser(prog="python -m deterministic_extender")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--delay", type=float, default=0.0, metavar="SECONDS")
    chosen = parser.parse_args()
    served = application(delay=chosen.delay)
    web.run_app(served, host="127.0.0.1", port=chosen.port, access_log=None, print=None)


if __name__ == "__main__":
    main()
