"""Calls extenders in a simulation; they get the objects of the input."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from mooring.extenders.extenders import Extenders
from mooring.extenders.protocol import Json
from mooring.extenders.verdicts import ExtenderResults, Needed
from mooring.model.events import Kind
from mooring.model.pod import Pod
from mooring.runtime.pipeline import Pipeline
from mooring.simulate.inputs import Inputs
from mooring.state.cluster_view import ClusterView

Call = Callable[[Sequence[Needed], Pipeline, ExtenderResults, ClusterView], None]
"""A function that asks extenders for missing answers and adds them to the results.

It raises ExtenderError if an extender fails.
"""


@contextmanager
def calling_extenders(inputs: Inputs) -> Iterator[Call]:
    """Yield a function that calls extenders; close all connections afterwards."""
    with asyncio.Runner() as runner:
        extenders = Extenders(_GivenObjects(inputs.raw))
        try:
            yield lambda *about: runner.run(extenders.answer(*about))
        finally:
            runner.run(extenders.close())


class _GivenObjects:
    def __init__(self, raw: Mapping[tuple[Kind, str], Json]) -> None:
        self._raw = raw

    async def pod(self, pod: Pod) -> Json:
        return self._raw[Kind.POD, pod.key]

    async def nodes(self, names: Sequence[str]) -> Mapping[str, Json]:
        return {name: self._raw[Kind.NODE, name] for name in names}
