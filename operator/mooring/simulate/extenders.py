"""Call extenders in a simulation, one pod after the other, with the objects of the input."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from mooring.engine.extenders.answers import (
    MOST_CALLS,
    ExtenderAnswers,
    FilterCall,
    PreemptCall,
    interested,
)
from mooring.engine.extenders.client import ExtenderError
from mooring.engine.extenders.extenders import Extenders
from mooring.engine.extenders.protocol import Json
from mooring.engine.groups.answers import GroupAnswers
from mooring.engine.groups.calls import GroupCalls
from mooring.engine.outcome import Outcome
from mooring.engine.result_cache import ResultCache
from mooring.framework.pipeline import Pipeline
from mooring.model.events import Kind
from mooring.model.pod import Pod
from mooring.policy.extender import Extender
from mooring.simulate.inputs import Inputs
from mooring.state.cluster_view import ClusterView

__all__ = ["ExtenderCalls", "calling_extenders"]

_GROUP_SECONDS: Final = 300.0
"""How long extenders may be called for all members of a group."""


class ExtenderCalls:
    """Extenders, and the event loop on which they are called."""

    def __init__(self, runner: asyncio.Runner, extenders: Extenders) -> None:
        self._runner = runner
        self._extenders = extenders

    def answers_about(
        self, members: Sequence[Pod], pipeline: Pipeline, cluster: ClusterView, cache: ResultCache
    ) -> GroupAnswers | None:
        """Return what extenders answer about the members of a group; None if they care for none.

        Raises:
            ExtenderError: if an extender that may not be ignored fails.
        """
        if not any(interested(pipeline, pod) for pod in members):
            return None
        calls = GroupCalls(self._extenders, pipeline, cluster, cache)
        self._runner.run(calls.run(members, _GROUP_SECONDS))
        return calls.answers

    def decided(
        self,
        decide: Callable[..., Outcome | FilterCall | PreemptCall],
        extenders: Sequence[Extender],
        pod: Pod,
        cluster: ClusterView,
    ) -> Outcome:
        """Return the outcome of `decide`, which takes what extenders have answered as `answers`.

        Raises:
            ExtenderError: if an extender that may not be ignored fails.
        """
        answers = ExtenderAnswers(preempts=any(extender.preempt_verb for extender in extenders))
        for _ in range(MOST_CALLS):
            outcome = decide(answers=answers)
            if not isinstance(outcome, FilterCall | PreemptCall):
                return outcome
            call = self._extenders.answer(outcome, extenders, pod, answers, cluster)
            answers = self._runner.run(call)
        raise ExtenderError("the extenders' answers come to no result")


@contextmanager
def calling_extenders(inputs: Inputs) -> Iterator[ExtenderCalls]:
    """Give what calls extenders, and close all connections afterwards."""
    with asyncio.Runner() as runner:
        extenders = Extenders(_GivenObjects(inputs.raw))
        try:
            yield ExtenderCalls(runner, extenders)
        finally:
            runner.run(extenders.close())


class _GivenObjects:
    """Implements `ExtenderObjects` with the objects of the input."""

    def __init__(self, raw: Mapping[tuple[Kind, str], Json]) -> None:
        self._raw = raw

    async def pod(self, pod: Pod) -> Json:
        return self._raw[Kind.POD, pod.key]

    async def nodes(self, names: Sequence[str]) -> Mapping[str, Json]:
        return {name: self._raw[Kind.NODE, name] for name in names}
