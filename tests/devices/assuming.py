"""A plugin that assigns cards, asked to reserve and to annotate as the engine does."""

import asyncio
from collections.abc import Mapping
from typing import Any

from mooring.framework.verdicts import Unschedulable
from mooring.model.pod import parse_pod
from mooring.policy.reading import read
from mooring.testing.builders import cluster
from mooring.testing.fakes import FakeApi, handle

Raw = Mapping[str, Any]


class Assuming:
    """Assumes pods on nodes of a cluster and has one plugin reserve their cards."""

    def __init__(self, plugin: type[Any], *objects: Raw, **args: Any) -> None:
        self.state = cluster(*objects)
        self.api = FakeApi()
        model = plugin.Args
        self.plugin = plugin(read(model, args, ""), handle(self.state, self.api))

    def reserve(self, raw: Raw, node: str) -> Unschedulable | None:
        """Assume the pod on the node and let the plugin reserve; return why if it refuses."""
        pod = parse_pod(raw)
        self.state.assume(pod, self.state.nodes.row_of[node])
        answer: Unschedulable | None = self.plugin.reserve(pod, node)
        return answer

    def annotations(self, raw: Raw, node: str) -> dict[str, str]:
        """Return what the binding of the reserved pod carries."""
        asyncio.run(self.plugin.pre_bind(parse_pod(raw), node))
        return self.api.annotations.get(parse_pod(raw).key, {})

    def cards(self, raw: Raw) -> tuple[tuple[int, ...], ...]:
        """Return the cards that were chosen for the assumed pod."""
        placed = self.state.pods.get(parse_pod(raw).uid)
        assert placed is not None
        assert placed.cards is not None
        return placed.cards[1]
