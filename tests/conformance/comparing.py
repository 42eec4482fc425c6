"""What Mooring decides about a recorded case, and where that differs from kube-scheduler."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import yaml
from click.testing import CliRunner

from conformance.scenes.extenders import at_port
from deterministic_extender import application, served_by_thread
from mooring.cli.convert import convert
from mooring.framework.decision import Decision
from mooring.framework.registry import Registry
from mooring.model.kubernetes_rules import rules_of_server
from mooring.model.pod import Uid
from mooring.model.resource_claims import allocation_fields
from mooring.plugins import SHIPPED
from mooring.simulate.inputs import inputs_of
from mooring.simulate.manifests import Manifest
from mooring.simulate.profiles import load_profiles
from mooring.simulate.simulation import simulate
from mooring.state.cluster import ClusterState

__all__ = ["claims_with_other_devices", "decided", "differences"]

REGISTRY: Final = Registry(SHIPPED, {})

ZERO_FOR_NOTHING: Final = frozenset(("DynamicResources", "VolumeBinding"))
"""Plugins that kube-scheduler lists with 0 for pods of which they have nothing to score."""

Scores = dict[str, tuple[dict[str, int], int]]
"""Each plugin's share and the total, by node."""


def decided(case: Mapping[str, Any], *, converted: bool = False) -> Decision:
    """Return what `mooring simulate` decides about the case's pod; it calls the case's extenders.

    It decides by the rules of the version of Kubernetes that the case was recorded from. With
    `converted`, the profile is what `mooring convert` prints of the configuration.
    """
    if "extenders" not in case:
        return _simulated(case, [], converted=converted)[0]
    with served_by_thread(application()) as port:
        return _simulated(case, at_port(case["extenders"], port), converted=converted)[0]


def _simulated(
    case: Mapping[str, Any], extenders: list[dict[str, Any]], *, converted: bool
) -> tuple[Decision, ClusterState]:
    """Return the decision, and the cluster as it is then."""
    objects = [Manifest("the case", raw) for raw in (*case["objects"], case["pod"])]
    configuration = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [case["profile"]],
        "extenders": extenders,
    }
    kubernetes = rules_of_server(case["kubernetes"]).version
    documents = _converted(configuration, kubernetes) if converted else [configuration]
    manifests = [Manifest("the profile", document) for document in documents]
    profiles = load_profiles(manifests, REGISTRY)
    called = bool(extenders)
    inputs = inputs_of(objects, REGISTRY, profiles, keep_raw=called, kubernetes=kubernetes)
    (attempt,) = simulate(inputs, REGISTRY, seed=1, extenders=called)
    return attempt.decision, inputs.state


def claims_with_other_devices(case: Mapping[str, Any]) -> dict[str, bool]:
    """Return by claim of the bound pod whether its allocation is not that of kube-scheduler.

    There are none if the pod has another node: one of several with the highest total.
    """
    decision, state = _simulated(case, [], converted=False)
    if decision.node is None or decision.node != case["oracle"]["node"]:
        return {}
    metadata, known = case["pod"]["metadata"], state.dynamic_resources.claims
    held = known.held(Uid(metadata["uid"]))
    found = {}
    for name, written in case["oracle"].get("claims", {}).items():
        claim = known.get(f"{metadata['namespace']}/{name}")
        assert claim is not None
        ours = held.get(claim.uid) or claim.allocation
        theirs = _without_chance(written["status"]["allocation"])
        found[name] = ours is None or _without_chance(allocation_fields(ours)) != theirs
    return found


def _without_chance(allocation: Mapping[str, Any]) -> dict[str, Any]:
    """Return an allocation without its time, and with the same id for each share of a device."""
    devices = dict(allocation["devices"])
    devices["results"] = [
        {key: "share" if key == "shareID" else value for key, value in each.items()}
        for each in devices["results"]
    ]
    fields = {key: value for key, value in allocation.items() if key != "allocationTimestamp"}
    return {**fields, "devices": devices}


def _converted(configuration: Mapping[str, Any], kubernetes: str) -> list[Any]:
    """Return the documents that `mooring convert` prints of the configuration."""
    arguments = ["-", "--active", "--kubernetes", kubernetes]
    run = CliRunner().invoke(convert, arguments, input=json.dumps(configuration))
    assert run.exit_code == 0, run.output
    return list(yaml.safe_load_all(run.stdout))


def differences(case: Mapping[str, Any], decision: Decision) -> list[str]:
    """Return a line for each thing in which the decision is not kube-scheduler's.

    Any node with the highest total is the right one: kube-scheduler breaks ties at random.
    """
    oracle = case["oracle"]
    if oracle["node"] is None and oracle["condition"] is not None:
        return list(_refusal_differences(oracle, decision))
    nodes = {raw["metadata"]["name"] for raw in case["objects"] if raw["kind"] == "Node"}
    return list(_choice_differences(oracle, decision, nodes))


def _refusal_differences(oracle: Mapping[str, Any], decision: Decision) -> Iterator[str]:
    yield from _difference("node", None, decision.node)
    messages = oracle["condition"]["message"], decision.message
    theirs, ours = (_without_first_device(_sorted(text)) for text in messages)
    yield from _difference("message", theirs, ours)
    yield from _difference("nominated node", oracle["nominatedNode"], decision.nominated_node)
    yield from _difference(
        "victims", sorted(oracle["victims"]), sorted(v.key for v in decision.victims)
    )


def _sorted(message: str | None) -> str | None:
    """Return the message with the list of nodes without victims sorted: its order is random."""
    head, bracket, errors = (message or "").rpartition("preemption: [")
    if not bracket:
        return message
    return f"{head}{bracket}{', '.join(sorted(errors.rstrip(']').split(', ')))}]"


def _without_first_device(message: str | None) -> str | None:
    """Return an error without the device: on which node it is met first is a matter of chance."""
    return re.sub(r" on device \S+/\S+/\S+: ", " on a device: ", message) if message else message


def _choice_differences(
    oracle: Mapping[str, Any], decision: Decision, nodes: set[str]
) -> Iterator[str]:
    # Without a node, the pod waits at PreBind on the one nominated.
    chosen = oracle["node"] or oracle["nominatedNode"]
    theirs, ours = _scores_of_oracle(oracle), _scores_of_decision(decision)
    feasible = set(theirs) or {chosen}
    yield from _difference("feasible nodes", feasible, nodes - decision.rejections.keys())
    for node in sorted(theirs.keys() | ours.keys()):
        yield from _difference(f"scores of {node}", theirs.get(node), ours.get(node))
    best = max((total for _, total in theirs.values()), default=0)
    right = {node for node, (_, total) in theirs.items() if total == best} or {chosen}
    if decision.node not in right:
        yield f"node: kube-scheduler {' or '.join(sorted(right))}, Mooring {decision.node}"


def _difference(what: str, theirs: object, ours: object) -> Iterator[str]:
    if theirs != ours:
        yield f"{what}: kube-scheduler {_shown(theirs)}, Mooring {_shown(ours)}"


def _shown(value: object) -> str:
    return str(sorted(value)) if isinstance(value, set) else repr(value)


def _scores_of_oracle(oracle: Mapping[str, Any]) -> Scores:
    return {
        node: (_of_plugins(score["plugins"]), score["total"])
        for node, score in (oracle["scores"] or {}).items()
    }


def _scores_of_decision(decision: Decision) -> Scores:
    return {
        node: (_of_plugins(score.plugins), score.total)
        for node, score in (decision.scores or {}).items()
    }


def _of_plugins(shares: Mapping[str, int]) -> dict[str, int]:
    """Return the shares of plugins; kube-scheduler logs those of extenders (URLs) unweighted."""
    return {
        name: share
        for name, share in shares.items()
        if "://" not in name and (share or name not in ZERO_FOR_NOTHING)
    }
