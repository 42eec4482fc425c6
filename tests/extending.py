"""Extenders for tests: they are served on loopback and answer as the test says."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

import numpy as np
import orjson
from aiohttp import web

from http_servers import serving
from mooring.extenders import verdicts as answering
from mooring.extenders.verdicts import Needed, NodeFailure, PodExtenderResults
from mooring.model.pod import Pod, parse_pod

BUSY = NodeFailure("busy", resolvable=True, extender="http://e")

Answer = Callable[[dict[str, Any]], object | Awaitable[object]]


class GivenObjects:
    """Implements `ExtenderObjects` with raw objects; an unknown pod becomes a stub with its uid."""

    def __init__(self, *objects: Mapping[str, Any]) -> None:
        self.by_name = {raw["metadata"]["name"]: raw for raw in objects}
        self.gone: set[str] = set()

    async def pod(self, pod: Pod) -> bytes | None:
        """Return the pod as JSON; None if its name is in `gone`."""
        if pod.name in self.gone:
            return None
        stub = {"metadata": {"namespace": pod.namespace, "name": pod.name, "uid": pod.uid}}
        return orjson.dumps(self.by_name.get(pod.name, stub))

    async def nodes(self, names: Sequence[str]) -> Mapping[str, bytes]:
        return {name: orjson.dumps(self.by_name[name]) for name in names if name in self.by_name}


class Answers:
    """An extender; each verb has a value as answer, or a function from the arguments to the answer.

    `asked` has the verb and the arguments of each call. An answer of type bytes is sent unchanged.
    """

    def __init__(self, **by_verb: object) -> None:
        self.by_verb = by_verb
        self.asked: list[tuple[str, dict[str, Any]]] = []

    def serving(self) -> AbstractAsyncContextManager[int]:
        """Return a context that serves the extender on 127.0.0.1; its value is the port."""
        return serving(self.application())

    def application(self) -> web.Application:
        """Return the application that serves the extender."""
        served = web.Application(client_max_size=2**30)
        served.router.add_post("/{verb}", self._handle)
        return served

    async def _handle(self, request: web.Request) -> web.Response:
        verb, arguments = request.match_info["verb"], await request.json()
        self.asked.append((verb, arguments))
        answer = self.by_verb[verb]
        if callable(answer):
            answer = answer(arguments)
        if isinstance(answer, Awaitable):
            answer = await answer
        if isinstance(answer, int):
            return web.Response(status=answer)
        body = answer if isinstance(answer, bytes) else orjson.dumps(answer)
        return web.Response(body=body)


def extender(port: int, *verbs: str, **fields: Any) -> dict[str, Any]:
    """Return the configuration of an extender on this port with these verbs, for nodes by name."""
    weight = {"weight": 1} if "prioritize" in verbs else {}
    return {
        "urlPrefix": f"http://127.0.0.1:{port}",
        "nodeCacheCapable": True,
        **{f"{verb}Verb": verb for verb in verbs},
        **weight,
        **fields,
    }


def put(
    answers: answering.ExtenderResults,
    raw: Mapping[str, Any],
    passed: Sequence[str] = (),
    failed: Collection[str] | Mapping[str, NodeFailure] = (),
    /,
    **scores: Sequence[int],
) -> PodExtenderResults:
    """Store the extenders' answer about the pod: passed and failed nodes (default: busy), scores.

    `scores` has for each extender the scores of the passed nodes, in their order.
    """
    failures = failed if isinstance(failed, Mapping) else dict.fromkeys(failed, BUSY)
    asked = Needed(parse_pod(raw), (*passed, *failures))
    columns = {name: np.array(column, np.int64) for name, column in scores.items()}
    answers.put(asked, tuple(passed), failures, columns)
    return answers.about(asked.pod)


def said(
    raw: Mapping[str, Any],
    passed: Sequence[str] = (),
    failed: Collection[str] | Mapping[str, NodeFailure] = (),
    /,
    **scores: Sequence[int],
) -> PodExtenderResults:
    """Return the answers about a pod, with the arguments of `put`."""
    return put(answering.ExtenderResults(), raw, passed, failed, **scores)
