"""The demand of random pods, compared with a second implementation, resource by resource."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mooring.model.demand import Demand, demands_by_version, pod_demand
from mooring.model.kubernetes_rules import KUBERNETES_RULES, NEWEST, KubernetesRules

Amounts = dict[str, int]
NAMES = ("cpu", "memory", "hugepages-2Mi", "nvidia.com/gpu")
POD_LEVEL = NAMES[:3]
SCORED_DEFAULTS = {"cpu": 100, "memory": 200 * 2**20}


def as_text(amounts: Amounts) -> dict[str, str]:
    return {name: f"{n}m" if name == "cpu" else str(n) for name, n in amounts.items()}


@dataclass
class Piece:
    """A container, or the pod as a whole, with amounts as numbers."""

    requests: Amounts
    sidecar: bool = False
    used: Amounts | None = None
    allocated: Amounts | None = None

    def spec(self, name: str) -> dict[str, Any]:
        raw = {"name": name, "resources": {"requests": as_text(self.requests)}}
        return raw | ({"restartPolicy": "Always"} if self.sidecar else {})

    def status(self, name: str) -> dict[str, Any]:
        raw: dict[str, Any] = {"name": name}
        if self.allocated is not None:
            raw["allocatedResources"] = as_text(self.allocated)
        if self.used is not None:
            raw["resources"] = {"requests": as_text(self.used)}
        return raw

    def held(self, name: str, *, infeasible: bool) -> int | None:
        """Return the largest amount during a resize; None if the resource is not named."""
        if self.used is None:
            return self.requests.get(name)
        places = [self.used, self.allocated or {}] + ([] if infeasible else [self.requests])
        return max((place[name] for place in places if name in place), default=None)


@dataclass
class Case:
    apps: list[Piece]
    init: list[Piece]
    pod: Piece
    overhead: Amounts
    assigned: bool
    infeasible: bool
    rules: KubernetesRules = NEWEST

    def spec(self) -> dict[str, Any]:
        return {
            "containers": [p.spec(f"a{i}") for i, p in enumerate(self.apps)],
            "initContainers": [p.spec(f"i{i}") for i, p in enumerate(self.init)],
            "resources": self.pod.spec("pod")["resources"],
            "overhead": as_text(self.overhead),
        }

    def status(self) -> dict[str, Any]:
        reason = "Infeasible" if self.infeasible else "Deferred"
        return self.pod.status("pod") | {
            "containerStatuses": [p.status(f"a{i}") for i, p in enumerate(self.apps)],
            "initContainerStatuses": [p.status(f"i{i}") for i, p in enumerate(self.init)],
            "conditions": [{"type": "PodResizePending", "status": "True", "reason": reason}],
        }

    def stages(self) -> list[Callable[[Piece], Amounts]]:
        """Return, for each stage of a resize, a function that returns a container's amounts."""

        def of_stage(piece: Piece, *places: Amounts | None) -> Amounts:
            last: Amounts = {} if self.infeasible else piece.requests
            return next((place for place in places if place is not None), last)

        stages: list[Callable[[Piece], Amounts]] = [
            lambda piece: of_stage(piece, piece.allocated),
            lambda piece: of_stage(piece, piece.used, piece.allocated),
        ]
        return stages if self.infeasible else [lambda piece: piece.requests, *stages]

    def in_containers(self, name: str, missing: int = 0) -> int | None:
        """Return the largest need at one time; None if no container names the resource.

        `missing` is the amount of a container that does not name the resource.
        """
        if not (self.assigned and self.rules.resize_by_stage):
            return self.peak(self.need, name, missing)
        if self.pod.used is not None and self.pod.allocated is not None:
            stages = [] if self.infeasible else [self.peak(_asked, name, missing)]
            amounts = [*stages, self.pod.used.get(name), self.pod.allocated.get(name)]
        else:
            amounts = [self.peak(_need_at(stage), name, missing) for stage in self.stages()]
        return max((amount for amount in amounts if amount is not None), default=None)

    def need(self, piece: Piece, name: str) -> int | None:
        resizes = piece.sidecar or any(piece is app for app in self.apps)
        if self.assigned and resizes:
            return piece.held(name, infeasible=self.infeasible)
        return piece.requests.get(name)

    def peak(self, need: Callable[[Piece, str], int | None], name: str, missing: int) -> int | None:
        """Return the largest need at one time, if `need` gives the amount of each container."""
        apps = [need(p, name) for p in self.apps]
        init = [need(p, name) for p in self.init]
        if not missing and all(amount is None for amount in (*apps, *init)):
            return None
        beside, peaks = 0, [0]
        for piece, amount in zip(self.init, init, strict=True):
            own = missing if amount is None else amount
            peaks.append(beside + own)
            beside += own if piece.sidecar else 0
        return max(*peaks, beside + sum(missing if a is None else a for a in apps))

    def at_pod_level(self, name: str) -> int | None:
        """Return the pod-level request; None if the containers' requests count instead."""
        is_set = any(r in POD_LEVEL for r in self.pod.requests)
        if name not in POD_LEVEL or not is_set:
            return None
        if not (self.assigned and self.rules.pod_level_resize):
            return self.pod.requests.get(name)
        if self.pod.used is not None and self.rules.resize_by_stage:
            return self.pod.held(name, infeasible=self.infeasible)
        if name not in self.pod.requests:
            return None
        return self.pod.held(name, infeasible=self.infeasible) or 0

    def requested(self, name: str) -> int | None:
        """Return the pod's request with overhead; None if the pod does not name the resource."""
        amount = self.in_containers(name)
        if (of_pod := self.at_pod_level(name)) is not None:
            amount = of_pod
        if name in self.overhead:
            return (amount or 0) + self.overhead[name]
        return amount

    def scored(self, name: str) -> int:
        """Return the amount for scores: containers and overhead, without pod-level requests."""
        missing = SCORED_DEFAULTS.get(name, 0)
        return (self.in_containers(name, missing) or 0) + self.overhead.get(name, 0)

    def node_scored(self, name: str) -> int:
        """Return the amount that the pod adds to its node's scored requests."""
        requested = self.requested(name)
        if requested is not None and any(r in POD_LEVEL for r in self.pod.requests):
            return requested
        return self.scored(name)


def _need_at(stage: Callable[[Piece], Amounts]) -> Callable[[Piece, str], int | None]:
    return lambda piece, name: stage(piece).get(name)


def _asked(piece: Piece, name: str) -> int | None:
    return piece.requests.get(name)


amounts = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 300))
pieces = st.builds(
    Piece, amounts, sidecar=st.booleans(), used=st.none() | amounts, allocated=st.none() | amounts
)
cases = st.builds(
    Case,
    apps=st.lists(pieces, min_size=1, max_size=3),
    init=st.lists(pieces, max_size=3),
    pod=pieces,
    overhead=amounts,
    assigned=st.booleans(),
    infeasible=st.booleans(),
    rules=st.sampled_from([*KUBERNETES_RULES.values()]),
)


@given(cases)
def test_the_demand_equals_that_of_a_slow_model(case: Case) -> None:
    raw, status = case.spec(), case.status()
    assert pod_demand(raw, status, assigned=case.assigned, kubernetes=case.rules) == Demand(
        resources={name: n for name in NAMES if (n := case.requested(name))},
        scored_cpu=case.scored("cpu"),
        scored_memory=case.scored("memory"),
        scored_others={name: n for name in NAMES[2:] if (n := case.scored(name))},
        node_scored_cpu=case.node_scored("cpu"),
        node_scored_memory=case.node_scored("memory"),
        pod_level=frozenset(name for name in NAMES if case.at_pod_level(name) is not None),
    )


@given(cases)
def test_from_1_38_on_pod_level_requests_are_scored_in_place_of_those_of_containers(
    case: Case,
) -> None:
    demand = pod_demand(case.spec(), case.status(), assigned=case.assigned, kubernetes=case.rules)
    by_containers = {name: n for name in NAMES if (n := case.scored(name))}
    of_pod = {
        name: amount + case.overhead.get(name, 0)
        for name in NAMES
        if (amount := case.at_pod_level(name)) is not None
    }
    always = {"cpu": 0, "memory": 0}
    assert demand.scored(pod_level=False) == always | by_containers
    assert demand.scored(pod_level=True) == always | by_containers | of_pod


@given(cases)
def test_demands_are_known_by_version_where_they_differ(case: Case) -> None:
    raw, status = case.spec(), case.status()
    demands = {
        version: pod_demand(raw, status, assigned=True, kubernetes=rules)
        for version, rules in KUBERNETES_RULES.items()
    }
    differ = any(demand != demands[NEWEST.version] for demand in demands.values())
    expected = demands if differ else None
    assert demands_by_version(raw, status, demands[NEWEST.version]) == expected


@given(cases)
def test_without_a_status_it_does_not_matter_whether_the_pod_is_assigned(case: Case) -> None:
    raw = case.spec()
    assert pod_demand(raw, None, assigned=True) == pod_demand(raw, None, assigned=False)


@given(cases, amounts, amounts)
def test_a_stored_pod_has_the_demand_of_its_manifest(
    case: Case, limits: Amounts, pod_limits: Amounts
) -> None:
    manifest, stored = case.spec(), case.spec()
    app = manifest["containers"][0]["resources"]
    app["limits"] = as_text(limits)
    manifest["resources"]["limits"] = as_text(pod_limits)
    stored["containers"][0]["resources"]["requests"] = app["limits"] | app["requests"]
    if pod_limits:
        case.apps[0].requests = limits | case.apps[0].requests
        case.assigned = False
        named = {r: n for r in ("cpu", "memory") if (n := case.in_containers(r)) is not None}
        stored["resources"]["requests"] = as_text(pod_limits | named | case.pod.requests)
    assert pod_demand(manifest, None, assigned=False) == pod_demand(stored, None, assigned=False)
