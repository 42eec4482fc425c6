"""A cluster, a profile and the decision of the real cycle about a pod."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mooring.extenders.verdicts import Needed
from mooring.framework.decision import Decision
from mooring.framework.registry import Registry
from mooring.model.pod import Uid, parse_pod
from mooring.observe.records import DecisionLog
from mooring.plugins import SHIPPED
from mooring.runtime.pipeline import Pipeline
from mooring.scheduling.cycle import decide
from mooring.scheduling.filtering import NodeSearch, PreFiltered
from mooring.scheduling.outcome import Outcome, decision_of
from mooring.scheduling.result_cache import ResultCache
from scheduler_states import put_profile, scheduler_state

Raw = Mapping[str, Any]


class Deciding:
    """Decides about pods in one cluster under one profile; `spec` is the spec that a user writes.

    The profile may also name the plugins in `extra`. For `most_per_attempt` see `Evaluations`.
    """

    def __init__(
        self,
        *objects: Raw,
        extra: tuple[type[Any], ...] = (),
        most_per_attempt: int | None = None,
        **spec: Any,
    ) -> None:
        registry = Registry((*SHIPPED, *extra), {})
        self.scheduler = scheduler_state(
            *objects, registry=registry, most_per_attempt=most_per_attempt
        )
        self.state, self.cluster = self.scheduler.state, self.scheduler.cluster
        in_force = put_profile(self.scheduler, registry=registry, **spec)
        self.pipeline: Pipeline = in_force.pipeline
        self.shared = ResultCache(self.cluster)

    def outcome(self, raw: Raw, *, seed: int = 0, **arguments: Any) -> Outcome:
        """Return the outcome of an attempt; `arguments` are those of `decide`."""
        pod = parse_pod(raw)
        found = decide(pod, self.pipeline, self.shared, seed=seed, **arguments)
        assert not isinstance(found, Needed)
        return found

    def decision(self, raw: Raw, **arguments: Any) -> Decision:
        """Return the decision record of an attempt, with all nodes."""
        return decision_of(parse_pod(raw), self.pipeline, self.outcome(raw, **arguments))

    def search(self, raw: Raw) -> tuple[NodeSearch, PreFiltered]:
        """Return the search for a pod that no pre_filter rejects, and the results of pre_filter."""
        pod = parse_pod(raw)
        work = self.shared.of(pod, self.pipeline)
        search = NodeSearch(pod, self.pipeline, self.cluster, work)
        asked = search.pre_filter()
        assert isinstance(asked, PreFiltered)
        return search, asked

    def place(self, raw: Raw, node: str) -> None:
        self.state.assume(parse_pod(raw), self.state.nodes.row_of[node])

    def nominate(self, raw: Raw, node: str) -> None:
        self.state.nominate(parse_pod(raw), node)


def keep(log: DecisionLog, uid: Uid, decision: Decision, now: float, **about: Any) -> None:
    """Store the decision in the log as a decision about the pod with this uid."""
    log.decided(replace(decision, pod=decision.pod._replace(uid=uid)), now, **about)
