"""Decides about recorded cases with Mooring, and finds the differences from kube-scheduler."""

import asyncio
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

import orjson
import yaml
from click.testing import CliRunner

from conformance.scenes.extenders import at_port
from deterministic_extender import application
from http_servers import served_by_thread
from mooring.claims.model.resource_claims import parse_resource_claim
from mooring.claims.plugin.plugin import DynamicResources, DynamicResourcesArgs
from mooring.cli.convert import convert
from mooring.framework.decision import Decision
from mooring.framework.registry import Registry
from mooring.framework.verdicts import PluginError
from mooring.model.events import Kind
from mooring.model.kubernetes_rules import rules_of_server
from mooring.model.pod import parse_pod
from mooring.plugins import SHIPPED
from mooring.simulate.inputs import Inputs, inputs_of
from mooring.simulate.load_profiles import LoadedProfile, load_profiles
from mooring.simulate.manifests import Manifest
from mooring.simulate.simulation import simulate
from mooring.testing.fakes import FakeApi, handle
from policies import kube_configuration

REGISTRY: Final = Registry(SHIPPED, {})

ZERO_FOR_NOTHING: Final = frozenset(("DynamicResources", "VolumeBinding"))
"""Plugins that kube-scheduler lists with 0 for pods of which they have nothing to score."""

_EXTENDED: Final = "extended"

Scores = dict[str, tuple[dict[str, int], int]]
"""Each plugin's share and the total, by node."""


def decided(case: Mapping[str, Any], *, converted: bool = False) -> Decision:
    """Return the decision of `mooring simulate` about the case's pod, with the case's extenders.

    It follows the rules of the Kubernetes version of the recording. With `converted`, the profile
    is the output of `mooring convert` for the configuration.
    """
    if "extenders" not in case:
        return _simulated(case, [], converted=converted)
    with served_by_thread(application()) as port:
        return _simulated(case, at_port(case["extenders"], port), converted=converted)


def _simulated(
    case: Mapping[str, Any], extenders: list[dict[str, Any]], *, converted: bool
) -> Decision:
    inputs = _inputs(case, extenders, converted=converted)
    (attempt,) = simulate(inputs, REGISTRY, seed=1, extenders=bool(extenders))
    return attempt.decision


def _inputs(
    case: Mapping[str, Any], extenders: list[dict[str, Any]], *, converted: bool = False
) -> Inputs:
    """Return the case as inputs of `mooring simulate`."""
    objects = [Manifest("the case", raw) for raw in (*case["objects"], case["pod"])]
    configuration = kube_configuration(profiles=[case["profile"]], extenders=extenders)
    kubernetes = rules_of_server(case["kubernetes"]).version
    documents = _converted(configuration, kubernetes) if converted else [configuration]
    profiles = _loaded(orjson.dumps(documents))
    called = bool(extenders)
    return inputs_of(objects, REGISTRY, profiles, keep_raw=called, kubernetes=kubernetes)


@lru_cache(maxsize=16)
def _loaded(documents: bytes) -> list[LoadedProfile]:
    """Return the profiles in a JSON list of documents; a cache serves equal lists."""
    manifests = [Manifest("the profile", document) for document in orjson.loads(documents)]
    return load_profiles(manifests, REGISTRY)


def claims_written_otherwise(case: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return, by claim of the placed pod, the fields that Mooring writes differently.

    Reserve and PreBind run for the node that kube-scheduler has chosen. The claim that Mooring
    creates for extended resources has a random name; here it is "extended".
    """
    theirs = {_name(name, raw): raw for name, raw in case["oracle"].get("claims", {}).items()}
    if not theirs:
        return {}
    ours = asyncio.run(_written(case))
    assert ours.keys() >= theirs.keys()
    return {
        name: [
            f"{part}: kube-scheduler {raw.get(part)}, Mooring {ours[name].get(part)}"
            for part in raw
            if _without_chance(part, raw.get(part)) != _without_chance(part, ours[name].get(part))
        ]
        for name, raw in theirs.items()
    }


def _name(name: str, written: Mapping[str, Any]) -> str:
    return _EXTENDED if "requestMappings" in written else name


async def _written(case: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the claims of the case's pod as Mooring writes them, by name."""
    state, pod = _inputs(case, []).state, parse_pod(case["pod"])
    node = case["oracle"]["node"] or case["oracle"]["nominatedNode"]
    known = [raw for raw in case["objects"] if raw["kind"] == "ResourceClaim"]
    claims = {("resourceclaims", _key(raw)): raw for raw in known}

    def show() -> None:
        """Put the created claims into the state, as the watch does."""
        for (resource, key), raw in api.objects.items():
            if resource == "resourceclaims" and key not in state.objects.of(Kind.RESOURCE_CLAIM):
                state.put(Kind.RESOURCE_CLAIM, key, parse_resource_claim(raw))

    api = FakeApi(claims, [show])
    built_with = replace(handle(state, api), kubernetes=rules_of_server(case["kubernetes"]))
    plugin = DynamicResources(DynamicResourcesArgs(), built_with)
    state.assume(pod, state.nodes.row_of[node])
    assert plugin.reserve(pod, node) is None
    # It waits in vain for devices that kube-scheduler waited for, too.
    with suppress(PluginError) if case["oracle"]["node"] is None else nullcontext():
        await plugin.pre_bind(pod, node)
    return {
        name: found
        for key, raw in api.objects.items()
        for name, found in [_as_recorded(key[1], raw, api)]
    }


def _as_recorded(key: str, raw: Mapping[str, Any], api: FakeApi) -> tuple[str, dict[str, Any]]:
    """Return the claim's name, and those of its fields that the recorder keeps."""
    metadata = raw["metadata"]
    found = {"finalizers": metadata.get("finalizers", []), "status": raw.get("status", {})}
    if "generateName" not in metadata:
        return key.rpartition("/")[2], found
    found |= {name: metadata[name] for name in ("annotations", "generateName", "ownerReferences")}
    statuses = [patch.body for patch in api.patches if patch.resource == "pods/status"]
    mappings = statuses[-1]["extendedResourceClaimStatus"]["requestMappings"] if statuses else None
    return _EXTENDED, {**found, "spec": raw["spec"], "requestMappings": mappings}


def _key(raw: Mapping[str, Any]) -> str:
    return f"{raw['metadata']['namespace']}/{raw['metadata']['name']}"


def _without_chance(part: str, value: Any) -> Any:
    """Return a status without its time, and with one constant id for the shares of devices."""
    if part != "status":
        return value
    allocation = value["allocation"]
    devices = dict(allocation["devices"])
    devices["results"] = [
        {key: "share" if key == "shareID" else each[key] for key in each}
        for each in devices["results"]
    ]
    fields = {key: allocation[key] for key in allocation if key != "allocationTimestamp"}
    return {**value, "allocation": {**fields, "devices": devices}}


def _converted(configuration: Mapping[str, Any], kubernetes: str) -> list[Any]:
    """Return the documents that `mooring convert` prints for the configuration."""
    arguments = ["-", "--active", "--kubernetes", kubernetes]
    run = CliRunner().invoke(convert, arguments, input=json.dumps(configuration))
    assert run.exit_code == 0, run.output
    return list(yaml.safe_load_all(run.stdout))


def differences(case: Mapping[str, Any], decision: Decision) -> list[str]:
    """Return a line for each difference between the decision and kube-scheduler's.

    Every node with the highest total is right, because kube-scheduler breaks ties at random.
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
    """Return the message with a sorted list of the nodes without victims; their order is random."""
    head, bracket, errors = (message or "").rpartition("preemption: [")
    if not bracket:
        return message
    return f"{head}{bracket}{', '.join(sorted(errors.rstrip(']').split(', ')))}]"


def _without_first_device(message: str | None) -> str | None:
    """Return an error without the device's name: it depends on the first node that is examined."""
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
    """Return only the plugins' shares; kube-scheduler logs extenders' shares (URLs) unweighted."""
    return {
        name: share
        for name, share in shares.items()
        if "://" not in name and (share or name not in ZERO_FOR_NOTHING)
    }
