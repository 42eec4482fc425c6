"""Checks whether a placement is right, slowly and without code of either scheduler.

The checker knows the features that the workloads use: requests, shares of GPU cards by gpushare's
annotations, required pod anti-affinity and hard topology spread with matchLabels, gangs that need
all their members, and claims of devices. In steady mode it sees only the last allocation of the
devices. Any fault makes the figures of the run void.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any

from bench.devices import DRIVER, ROOTS
from bench.workloads import Devices

Raw = Mapping[str, Any]

SUFFIXES = {
    "": Fraction(1),
    "m": Fraction(1, 1000),
    "k": Fraction(1000),
    "Mi": Fraction(1024**2),
    "Gi": Fraction(1024**3),
}
"""The suffixes of quantities in the workloads; any other suffix is an error."""


def faults(nodes: Iterable[Raw], pods: Sequence[Raw], expected: Collection[str]) -> list[str]:
    """Return all ways in which the placement is wrong; `expected` names the pods to be bound."""
    by_name = {node["metadata"]["name"]: node for node in nodes}
    placed = [pod for pod in pods if pod["spec"].get("nodeName")]
    bound = {pod["metadata"]["name"] for pod in placed}
    unknown = {pod["spec"]["nodeName"] for pod in placed} - by_name.keys()
    if unknown:
        return [f"pods are bound to {len(unknown)} nodes that do not exist"]
    found = [
        *_overfull(by_name, placed),
        *_overfull_cards(placed),
        *_too_close(by_name, placed),
        *_uneven(by_name, placed),
        *_partly_bound(pods),
    ]
    if missing := set(expected) - bound:
        found.append(f"{len(missing)} pods are not bound, {min(missing)} among them")
    return found


def device_faults(pods: Iterable[Raw], claims: Sequence[Raw], wanted: Devices) -> list[str]:
    """Return all faults in the allocations of claims, for bound pods and for other pods."""
    results = {claim["metadata"]["uid"]: _results(claim) for claim in claims}
    uses = Counter((r["pool"], r["device"]) for each in results.values() for r in each)
    found = [
        f"{device} of node {node} is allocated {number} times"
        for (node, device), number in uses.items()
        if number > 1
    ]
    by_consumer = {
        consumer["uid"]: claim
        for claim in claims
        for consumer in claim.get("status", {}).get("reservedFor", ())
    }
    for pod in pods:
        node = pod["spec"].get("nodeName")
        if node:
            claim = by_consumer.get(pod["metadata"]["uid"])
            got = results[claim["metadata"]["uid"]] if claim else []
            found += _wrong_devices(pod["metadata"]["name"], node, got, wanted)
    return found


def _wrong_devices(pod: str, node: str, results: Sequence[Raw], wanted: Devices) -> Iterator[str]:
    """Yield the faults in the devices of a bound pod's claim."""
    if len(results) != wanted.per_claim:
        yield f"pod {pod} has {len(results)} devices instead of {wanted.per_claim}"
    if any(result["pool"] != node for result in results):
        yield f"pod {pod} is on {node}, and its devices are on another node"
    roots = {int(result["device"].rpartition("-")[2]) % ROOTS for result in results}
    if wanted.one_root and len(roots) > 1:
        yield f"the devices of pod {pod} are on {len(roots)} PCI roots"


def _results(claim: Raw) -> Sequence[Raw]:
    allocation: Raw = claim.get("status", {}).get("allocation", {})
    results: Sequence[Raw] = allocation.get("devices", {}).get("results", ())
    return results


@lru_cache(4096)
def quantity(text: str) -> Fraction:
    """Return the value of a quantity such as 250m or 2Gi."""
    digits = text.rstrip("".join(SUFFIXES))
    return Fraction(digits) * SUFFIXES[text[len(digits) :]]


def _overfull(nodes: Mapping[str, Raw], placed: Iterable[Raw]) -> Iterator[str]:
    used: dict[str, Counter[str]] = defaultdict(Counter)
    for pod in placed:
        of_node = used[pod["spec"]["nodeName"]]
        of_node["pods"] += 1
        for container in pod["spec"]["containers"]:
            for resource, amount in container["resources"]["requests"].items():
                if resource.startswith(DRIVER):  # no node has it; `device_faults` checks it
                    continue
                of_node[resource] += quantity(amount)  # type: ignore[assignment] # counts fractions
    for name, of_node in used.items():
        allocatable = nodes[name]["status"]["allocatable"]
        for resource, amount in of_node.items():
            if amount > quantity(allocatable[resource]):
                yield f"node {name} is over its allocatable {resource}"


def _overfull_cards(placed: Iterable[Raw]) -> Iterator[str]:
    """Yield the cards whose pods hold more than the card has; only pods that name a card count."""
    used: Counter[tuple[str, str]] = Counter()
    totals: dict[tuple[str, str], int] = {}
    for pod in placed:
        annotations = pod["metadata"].get("annotations", {})
        if "ALIYUN_COM_GPU_MEM_IDX" in annotations:
            card = (pod["spec"]["nodeName"], annotations["ALIYUN_COM_GPU_MEM_IDX"])
            used[card] += int(annotations["ALIYUN_COM_GPU_MEM_POD"])
            totals[card] = int(annotations["ALIYUN_COM_GPU_MEM_DEV"])
    for (node, number), amount in used.items():
        if amount > totals[node, number]:
            yield f"card {number} of node {node} is over its memory"


def _too_close(nodes: Mapping[str, Raw], placed: Sequence[Raw]) -> Iterator[str]:
    """Yield pods whose required anti-affinity another pod breaks."""
    counts: dict[tuple[Any, ...], Counter[str]] = {}
    for pod in placed:
        terms = _field(pod, "affinity", "podAntiAffinity")
        for term in terms.get("requiredDuringSchedulingIgnoredDuringExecution", []):
            key = _key(term)
            if key not in counts:
                counts[key] = _matching_per_domain(term, nodes, placed)
            others = counts[key][_domain(term, nodes, pod)] - _matches(term, pod)
            if others:
                yield f"pod {pod['metadata']['name']} is beside {others} that it refuses"


def _uneven(nodes: Mapping[str, Raw], placed: Sequence[Raw]) -> Iterator[str]:
    """Yield the hard spread constraints whose skew is larger than their maxSkew."""
    checked = set()
    for pod in placed:
        for constraint in _field(pod, "topologySpreadConstraints"):
            key = _key(constraint)
            if constraint["whenUnsatisfiable"] != "DoNotSchedule" or key in checked:
                continue
            checked.add(key)
            counts = _matching_per_domain(constraint, nodes, placed)
            domains = {node["metadata"]["labels"][key[0]] for node in nodes.values()}
            per_domain = [counts[domain] for domain in domains]
            skew = max(per_domain) - min(per_domain)
            if skew > constraint["maxSkew"]:
                yield f"pods {dict(key[1])} have a skew of {skew} over {key[0]}"


def _partly_bound(pods: Iterable[Raw]) -> Iterator[str]:
    """Yield a line for each group with both bound and unbound members."""
    bound: dict[str, list[bool]] = defaultdict(list)
    for pod in pods:
        if group := pod["spec"].get("schedulingGroup"):
            bound[group["podGroupName"]].append("nodeName" in pod["spec"])
    for name, members in bound.items():
        if 0 < sum(members) < len(members):
            yield f"group {name} is partly bound: {sum(members)} of {len(members)} pods"


def _matching_per_domain(
    term: Raw, nodes: Mapping[str, Raw], placed: Iterable[Raw]
) -> Counter[str]:
    return Counter(_domain(term, nodes, pod) for pod in placed if _matches(term, pod))


def _domain(term: Raw, nodes: Mapping[str, Raw], pod: Raw) -> str:
    labels: Mapping[str, str] = nodes[pod["spec"]["nodeName"]]["metadata"]["labels"]
    return labels[term["topologyKey"]]


def _matches(term: Raw, pod: Raw) -> bool:
    labels: Mapping[str, str] = pod["metadata"]["labels"]
    wanted: Mapping[str, str] = term["labelSelector"]["matchLabels"]
    return wanted.items() <= labels.items()


def _key(term: Raw) -> tuple[str, tuple[tuple[str, str], ...]]:
    return term["topologyKey"], tuple(sorted(term["labelSelector"]["matchLabels"].items()))


def _field(pod: Raw, *path: str) -> Any:
    found: Any = pod["spec"]
    for name in path:
        found = found.get(name) or {}
    return found
