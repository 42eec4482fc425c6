"""Mooring needs every rule of manifests/rbac.yaml and no other rule.

kube-apiserver's audit log shows the used rights. WatchList is off, so the mirror lists before it
watches, as with servers that have no WatchList.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

import replica
from controlplane import Access, ControlPlane
from controlplane.client import Client
from controlplane.namespaces import create_namespace
from controlplane.nodes import create_nodes
from controlplane.releases import chosen_release
from device_builders import device_claim, device_class, request, resource_slice
from e2e.replicas import (
    CRDS,
    PROFILES,
    Replica,
    Replicas,
    bound,
    crd,
    create_pods,
    delete_now,
    eventually,
    pod,
    pods,
)
from mooring.claims.model.resource_claims import EXTENDED_RESOURCE_CLAIM
from mooring.groups.model.pod_group import COSCHEDULING_LABEL
from mooring.kube.api_resources import (
    COSCHEDULING_POD_GROUP,
    DEVICE_CLASS,
    DEVICE_TAINT_RULE,
    ELASTIC_QUOTA,
    HYPER_NODE,
    KAI_POD_GROUP,
    POD_GANG,
    POD_GROUP,
    QUEUE,
    RESOURCE_CLAIM,
    RESOURCE_SLICE,
    SIGS_POD_GROUP,
    VOLCANO_POD_GROUP,
    ApiCall,
    Resource,
)
from mooring.kube.client import ApiClient
from mooring.kube.config import load_connection
from mooring.kube.errors import ApiError, UnansweredError
from mooring.kube.writes import PodWriter
from mooring.testing.builders import coscheduling_pod_group, pod_group, queue_object
from policies import profile
from queue_files import elastic_quota
from storage_builders import pv, pvc, storage_class

ROOT = Path(__file__).parents[2]
RELEASE: Final = chosen_release()
CREATES: Final = ("create", "delete")
"""The rights to claims that only extended resources need."""
USER: Final = "system:serviceaccount:mooring-system:mooring"
RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"
DOCUMENTS: Final = tuple(yaml.safe_load_all((ROOT / "manifests" / "rbac.yaml").read_text()))

AUDIT: Final = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "users": [USER]}, {"level": "None"}],
}

STORAGE_CLASSES: Final = "/apis/storage.k8s.io/v1/storageclasses"

Right = tuple[str, str, str]
"""Verb, API group, resource with its subresource."""


def granted() -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield each pair of a role that is bound to Mooring and a rule of this role."""
    bound_roles = {
        (item["roleRef"]["kind"], item["roleRef"]["name"])
        for item in DOCUMENTS
        if item["kind"].endswith("Binding")
    }
    for role in DOCUMENTS:
        if (role["kind"], role["metadata"]["name"]) in bound_roles:
            for rule in role["rules"]:
                yield role, rule


def rights(rule: Mapping[str, Any]) -> set[Right]:
    return {
        (verb, group, resource)
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


def is_of_pod_groups(right: Right) -> bool:
    """Return whether the right concerns Kubernetes' own PodGroups, which some releases lack."""
    _, group, resource = right
    return group == POD_GROUP.group and resource.startswith(POD_GROUP.plural)


def is_for_more_than_requests(right: Right) -> bool:
    """Return whether the server checks the right in addition to the right for the request."""
    return right == ("patch", RESOURCE_CLAIM.group, f"{RESOURCE_CLAIM.plural}/binding")


@dataclass
class Cluster:
    """A server with an audit log, one small node, and the running Mooring."""

    access: Access
    client: Client
    audit: Path
    folder: Path
    namespace: str
    runs: int = 0
    scheduler: Replica = field(init=False)

    @contextmanager
    def mooring(self) -> Iterator[Replica]:
        """Start Mooring, and remove it with its pods at the end."""
        self.runs += 1
        folder = self.folder / str(self.runs)
        folder.mkdir()
        with Replicas.of(self.access, folder) as replicas:
            self.scheduler = replicas.start()
            yield self.scheduler
        self.client.request(
            "DELETE", f"/api/v1/namespaces/{self.namespace}/pods", {"gracePeriodSeconds": 0}
        )

    def used(self) -> set[Right]:
        """Return the rights that Mooring has used so far, from the audit log."""
        events = [json.loads(line) for line in self.audit.read_text().splitlines()]
        return {
            (event["verb"], ref.get("apiGroup", ""), _with_subresource(ref))
            for event in events
            if (ref := event.get("objectRef")) and event["responseStatus"]["code"] != 403
        }

    def add_pod(self, name: str, **fields: Any) -> str:
        """Add a pod; return its name, which is unique in each run."""
        name = f"{name}-{self.runs}"
        create_pods(self.client, self.namespace, pod(name, **fields))
        return name

    def add_claim(self, name: str, class_name: str, pod_name: str) -> str:
        path = f"/api/v1/namespaces/{self.namespace}/persistentvolumeclaims"
        self.client.post(path, pvc(name, namespace=self.namespace, storage_class=class_name))
        volume = {"name": "data", "persistentVolumeClaim": {"claimName": name}}
        self.add_pod(pod_name, cpu="1m", volumes=[volume])
        return f"{path}/{name}"

    def serves(self, resource: Resource) -> bool:
        """Return whether the server serves the resource in this version."""
        listed = self.client.get(f"/apis/{resource.api_version}")["resources"]
        return any(each["name"] == resource.plural for each in listed)

    def node(self) -> str:
        return str(self.client.get("/api/v1/nodes")["items"][0]["metadata"]["name"])

    def bound(self, name: str) -> bool:
        return name in bound(self.client, self.namespace)

    def wait_until_bound(self, name: str) -> None:
        eventually(lambda: self.bound(name), bool, f"{name} bound")


def _with_subresource(ref: Mapping[str, str]) -> str:
    return "/".join(part for part in (ref["resource"], ref.get("subresource")) if part)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("rbac")
    policy, audit = folder / "policy.json", folder / "audit.log"
    policy.write_text(json.dumps(AUDIT))
    flags = [
        f"--audit-policy-file={policy}",
        f"--audit-log-path={audit}",
        "--feature-gates=WatchList=false",
        *RELEASE.pod_group_flags()["kube-apiserver"],
    ]
    with ControlPlane(flags={"kube-apiserver": flags}) as plane:
        replica.apply_manifests(plane.access)
        create_nodes(plane.access, 1, capacity={"cpu": "4", "memory": "8Gi", "pods": "500"})
        with plane.access.client() as client:
            classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
            client.post(classes, {"metadata": {"name": "high"}, "value": 1000})
            client.post(STORAGE_CLASSES, storage_class("disks"))
            client.post(STORAGE_CLASSES, storage_class("made", provisioner="csi.example"))
            for resource in (POD_GANG, HYPER_NODE, ELASTIC_QUOTA):
                client.post(CRDS, crd(resource))
            client.post(PROFILES, profile("strict", preemption={"disruptionBudgets": "Strict"}))
            namespace = create_namespace(plane.access)
            yield Cluster(plane.access, client, audit, folder, namespace)


Sign = Callable[[], object]
Work = Callable[[Cluster], Sign]

# What a scheduler does, one thing after another. Each begins something, and gives the sign by which
# its success is known.


def starts(cluster: Cluster) -> Sign:
    return lambda: cluster.scheduler.says("leading:") and cluster.scheduler.get("/readyz")[0] == 200


def binds(cluster: Cluster) -> Sign:
    name = cluster.add_pod("web", cpu="1m")
    return lambda: cluster.bound(name)


def tells_of_a_pod_without_a_node(cluster: Cluster) -> Sign:
    """Create a pod that fits nowhere; return a sign that its condition and Event are written."""
    name = cluster.add_pod("large", cpu="100")
    events = f"/apis/events.k8s.io/v1/namespaces/{cluster.namespace}/events"
    path = f"/api/v1/namespaces/{cluster.namespace}/pods/{name}"
    tries = count()

    def counted_up() -> bool:
        # Another toleration has the pod tried again: its spec is another one.
        tolerations = cluster.client.get(path)["spec"].get("tolerations", [])
        more = {"key": f"try-{next(tries)}", "operator": "Exists"}
        raw = cluster.client.patch(path, {"spec": {"tolerations": [*tolerations, more]}})
        series = [
            event
            for event in cluster.client.get(events)["items"]
            if event["regarding"]["name"] == name and event.get("series")
        ]
        return bool(series) and bool(raw["status"].get("conditions"))

    return counted_up


def tells_of_pod_groups(cluster: Cluster) -> Sign:
    """Create an incomplete group of each served kind; return a sign that statuses are written."""
    name = f"group-{cluster.runs}"
    raw = coscheduling_pod_group(name, 5, namespace=cluster.namespace)
    collections = [COSCHEDULING_POD_GROUP.path(cluster.namespace)]
    cluster.client.post(collections[0], raw)
    cluster.add_pod("labelled", cpu="1m", labels={COSCHEDULING_LABEL: name})
    if RELEASE.has_pod_groups:
        collections.append(RELEASE.pod_groups(cluster.namespace))
        raw = RELEASE.versioned(pod_group(name, 5, namespace=cluster.namespace))
        cluster.client.post(collections[1], raw)
        cluster.add_pod("member", cpu="1m", schedulingGroup={"podGroupName": name})

    def told_of_all() -> bool:
        groups = [cluster.client.get(f"{collection}/{name}") for collection in collections]
        return all((group.get("status") or {}).get("conditions") for group in groups)

    return told_of_all


def deletes_a_victim(cluster: Cluster) -> Sign:
    return _preempts(cluster, "mooring")


def evicts_a_victim(cluster: Cluster) -> Sign:
    return _preempts(cluster, "strict")


def _preempts(cluster: Cluster, scheduler: str) -> Sign:
    """Create a victim without a grace period, and a preemptor; return a sign of its binding."""
    common: dict[str, Any] = {"cpu": "3", "terminationGracePeriodSeconds": 0}
    cluster.wait_until_bound(cluster.add_pod(f"victim-of-{scheduler}", **common))
    high = {"scheduler": scheduler, "priorityClassName": "high"}
    preemptor = cluster.add_pod(f"preemptor-{scheduler}", **common, **high)

    def bound_and_deleted() -> bool:
        if not cluster.bound(preemptor):
            return False
        delete_now(cluster.client, cluster.namespace, preemptor)
        return True

    return bound_and_deleted


def takes_a_volume(cluster: Cluster) -> Sign:
    name = f"disk-{cluster.runs}"
    path = f"/api/v1/persistentvolumes/{name}"
    disk = pv(
        name,
        nodes=[cluster.node()],
        storage_class="disks",
        spec={"local": {"path": f"/mnt/{name}"}},
    )
    cluster.client.post("/api/v1/persistentvolumes", disk)
    # The volume controller's part, which does not run here.
    cluster.client.patch(f"{path}/status", {"status": {"phase": "Available"}})
    cluster.add_claim(f"claim-{cluster.runs}", "disks", "with-disk")
    return lambda: cluster.client.get(path)["spec"].get("claimRef")


def asks_for_a_volume(cluster: Cluster) -> Sign:
    claim = cluster.add_claim(f"made-{cluster.runs}", "made", "with-new-disk")
    return lambda: cluster.client.get(claim)["metadata"].get("annotations")


def takes_a_device(cluster: Cluster) -> Sign:
    """Create a device with its class, and a pod with a claim for the device."""
    name = f"gpu-{cluster.runs}"
    node = cluster.node()
    claims = RESOURCE_CLAIM.path(cluster.namespace)
    cluster.client.post(DEVICE_CLASS.path(), device_class(name))
    cluster.client.post(RESOURCE_SLICE.path(), resource_slice(name, ["d0"], node=node, pool=name))
    claim = device_claim(name, request(device_class=name), namespace=cluster.namespace)
    del claim["metadata"]["resourceVersion"]
    cluster.client.post(claims, claim)
    entry = {"name": "gpu", "resourceClaimName": name}
    with_device = cluster.add_pod("with-device", cpu="1m", resourceClaims=[entry])

    def bound_with_its_device() -> bool:
        status = cluster.client.get(f"{claims}/{name}").get("status") or {}
        return bool(status.get("reservedFor")) and cluster.bound(with_device)

    return bound_with_its_device


def backs_a_resource_by_a_device(cluster: Cluster) -> Sign:
    """Create a pod whose extended resource is a device, and a claim left by a former attempt."""
    name = f"backing-{cluster.runs}"
    resource, node = f"example.com/{name}", cluster.node()
    claims = RESOURCE_CLAIM.path(cluster.namespace)
    cluster.client.post(DEVICE_CLASS.path(), device_class(name, extendedResourceName=resource))
    cluster.client.post(RESOURCE_SLICE.path(), resource_slice(name, ["d0"], node=node, pool=name))
    gates = [{"name": "example.com/wait"}]
    asked = {resource: "1"}
    pod_name = cluster.add_pod(
        "backed", cpu="1m", requests=asked, limits=asked, schedulingGates=gates
    )
    path = f"/api/v1/namespaces/{cluster.namespace}/pods/{pod_name}"
    uid = cluster.client.get(path)["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod_name, "uid": uid, "controller": True}
    left = device_claim(name, request(device_class=name), namespace=cluster.namespace)
    del left["metadata"]["resourceVersion"]
    left["metadata"]["ownerReferences"] = [owner]
    left["metadata"]["annotations"] = {EXTENDED_RESOURCE_CLAIM: "true"}
    if not RELEASE.backs_resources_by_devices:
        return lambda: True
    cluster.client.post(claims, left)
    cluster.client.patch(path, {"spec": {"schedulingGates": None}})

    def bound_with_a_claim_of_its_own() -> bool:
        known = cluster.client.get(path)["status"].get("extendedResourceClaimStatus", {})
        return known.get("resourceClaimName", name) != name and cluster.bound(pod_name)

    return bound_with_a_claim_of_its_own


def reads_a_claim_again(cluster: Cluster) -> Sign:
    """Read a claim, as Mooring does when another client has changed it."""
    kubeconfig = cluster.access.kubeconfig_for_service_account(*replica.SERVICE_ACCOUNT)

    async def read() -> None:
        async with ApiClient(await load_connection(str(kubeconfig))) as client:
            await client.get(RESOURCE_CLAIM, f"gpu-{cluster.runs}", cluster.namespace)

    asyncio.run(read())
    return lambda: True


def takes_a_profile(cluster: Cluster) -> Sign:
    name = f"team-{cluster.runs}"
    cluster.client.post(PROFILES, profile(name))
    return lambda: cluster.client.get(f"{PROFILES}/{name}").get("status")


def tells_of_queues(cluster: Cluster) -> Sign:
    name = f"queue-{cluster.runs}"
    cluster.client.post(QUEUE.path(), queue_object(name, {"cpu": 1}))
    return lambda: cluster.client.get(QUEUE.path(None, name)).get("status")


def tells_of_elastic_quotas(cluster: Cluster) -> Sign:
    namespace = create_namespace(cluster.access)
    path = ELASTIC_QUOTA.path(namespace)
    cluster.client.post(path, elastic_quota(namespace, max={"cpu": 1}))
    return lambda: cluster.client.get(f"{path}/quota").get("status")


def shows_metrics(cluster: Cluster) -> Sign:
    status, page = cluster.scheduler.get("/metrics")
    assert status == 200, page
    return lambda: True


def shows_events(cluster: Cluster) -> Sign:
    """Read the events about a pod, as the page does."""
    name = cluster.add_pod("with-events", cpu="1m")
    cluster.wait_until_bound(name)
    path = f"/ui/api/events?pod={cluster.namespace}/{name}"

    def shown() -> bool:
        status, text = cluster.scheduler.get(path)
        assert status == 200, text
        return bool(json.loads(text)["events"])

    eventually(shown, bool, "an event about the pod")
    return lambda: True


class _LosesAnswers(ApiClient):
    """A client that loses only the answers to Bindings."""

    async def request(self, method: str, path: str, **options: Any) -> bytes:
        answer = await super().request(method, path, **options)
        if method == "POST":
            raise UnansweredError(ApiCall.parse(method, path), "lost")
        return answer


def looks_whether_a_pod_is_bound(cluster: Cluster) -> Sign:
    name = cluster.add_pod("unanswered", scheduler="nobody")
    raw = cluster.client.get(f"/api/v1/namespaces/{cluster.namespace}/pods/{name}")
    kubeconfig = cluster.access.kubeconfig_for_service_account(*replica.SERVICE_ACCOUNT)

    async def bind() -> None:
        async with _LosesAnswers(await load_connection(str(kubeconfig))) as client:
            writer = PodWriter(client)
            await writer.bind(cluster.namespace, name, raw["metadata"]["uid"], cluster.node())

    asyncio.run(bind())
    return lambda: True


def nothing(_: Cluster) -> Sign:
    return lambda: True


EVERYTHING: Final = (
    starts,
    binds,
    tells_of_a_pod_without_a_node,
    tells_of_pod_groups,
    deletes_a_victim,
    evicts_a_victim,
    takes_a_volume,
    asks_for_a_volume,
    takes_a_device,
    backs_a_resource_by_a_device,
    reads_a_claim_again,
    takes_a_profile,
    tells_of_queues,
    tells_of_elastic_quotas,
    shows_metrics,
    shows_events,
    looks_whether_a_pod_is_bound,
)


_NOT_SERVED: Final = (SIGS_POD_GROUP, VOLCANO_POD_GROUP, KAI_POD_GROUP)


def test_every_right_is_used_and_no_other_is_needed(cluster: Cluster) -> None:
    with cluster.mooring() as scheduler:
        for work in EVERYTHING:
            eventually(work(cluster), bool, work.__name__)
        assert scheduler.terminate() == 0
    assert [line for line in scheduler.log() if "may not" in line["message"]] == []
    needed = set().union(*(rights(rule) for _, rule in granted()))
    if not RELEASE.has_pod_groups:
        needed -= {right for right in needed if is_of_pod_groups(right)}
    if not cluster.serves(DEVICE_TAINT_RULE):
        needed -= {right for right in needed if right[2] == DEVICE_TAINT_RULE.plural}
    needed -= {right for right in needed if is_for_more_than_requests(right)}
    not_served = {each.group for each in _NOT_SERVED}
    needed -= {right for right in needed if right[1] in not_served}
    if not RELEASE.backs_resources_by_devices:
        needed -= {(verb, RESOURCE_CLAIM.group, RESOURCE_CLAIM.plural) for verb in CREATES}
    assert cluster.used() == needed


FAILS: Final[Sequence[Mapping[str, tuple[Work, str]]]] = (
    {
        "list namespaces": (nothing, "may not watch namespaces"),
        "list replicasets": (nothing, "may not watch replicasets.apps"),
        "list poddisruptionbudgets": (nothing, "may not watch poddisruptionbudgets.policy"),
        "list podgroups": (nothing, "may not watch podgroups.scheduling"),
        "list podgangs": (nothing, "may not watch podgangs.scheduler.grove.io"),
        "list hypernodes": (nothing, "may not watch hypernodes.topology.volcano.sh"),
        "list queues": (nothing, "may not watch queues.scheduling.mooring.dev"),
        "list elasticquotas": (nothing, "may not watch elasticquotas.scheduling.x-k8s.io"),
        "list csidrivers": (nothing, "may not watch csidrivers.storage.k8s.io"),
    },
    {"list priorityclasses": (nothing, "may not list priorityclasses.scheduling.k8s.io")},
    {"list schedulingprofiles": (nothing, "may not list schedulingprofiles")},
    {
        "get configmaps": (
            starts,
            "may not get configmaps kube-system/extension-apiserver-auth",
        ),
        "patch podgroups/status": (tells_of_pod_groups, "may not patch podgroups/status"),
        "patch queues/status": (tells_of_queues, "may not patch queues/status"),
        "patch schedulingprofiles/status": (
            takes_a_profile,
            "may not patch schedulingprofiles/status",
        ),
        "patch pods/status": (tells_of_a_pod_without_a_node, "may not patch pods/status"),
        "create events": (binds, "may not create events.events.k8s.io"),
        "list events": (shows_events, "may not list events"),
        "get pods": (looks_whether_a_pod_is_bound, "create pods/binding"),
    },
    {
        "patch elasticquotas/status": (
            tells_of_elastic_quotas,
            "may not patch elasticquotas/status",
        ),
        "list deviceclasses": (takes_a_device, "may not watch deviceclasses.resource.k8s.io"),
        "patch persistentvolumeclaims": (asks_for_a_volume, "may not patch persistentvolumeclaims"),
        "create pods/eviction": (evicts_a_victim, "may not create pods/eviction"),
        "create tokenreviews": (shows_metrics, "may not create tokenreviews"),
    },
    {
        "get resourceclaims": (takes_a_device, "may not patch resourceclaims.resource.k8s.io"),
        "delete pods": (deletes_a_victim, "may not delete pods"),
        "create subjectaccessreviews": (shows_metrics, "may not create subjectaccessreviews"),
    },
    {
        "patch resourceclaims/binding": (takes_a_device, "may not patch resourceclaims/status"),
        "create pods/binding": (binds, "may not create pods/binding"),
    },
    {"create leases": (nothing, "may not create leases")},
    {"get leases": (nothing, "may not get leases")},
)
"""By a rule's first verb and resource: what is done without it, and what Mooring then says.

Rules that stand together are taken away together: what fails without one hides no other's words.
"""


def first(rule: Mapping[str, Any]) -> str:
    return f"{rule['verbs'][0]} {rule['resources'][0]}"


@contextmanager
def without(cluster: Cluster, missing: Collection[str]) -> Iterator[None]:
    """Remove these rules from their roles inside; wait until the server applies this."""
    taken = [(role, rule) for role, rule in granted() if first(rule) in missing]
    for role, _ in taken:
        _put_rules(cluster, role, [rule for rule in role["rules"] if first(rule) not in missing])
    try:
        for _, rule in taken:
            _wait_until(cluster, rule, allowed=False)
        yield
    finally:
        for role, _ in taken:
            _put_rules(cluster, role, role["rules"])
        for _, rule in taken:
            _wait_until(cluster, rule, allowed=True)


def _put_rules(cluster: Cluster, role: Mapping[str, Any], rules: Sequence[object]) -> None:
    metadata = role["metadata"]
    folder = f"namespaces/{metadata['namespace']}/" if "namespace" in metadata else ""
    path = f"{RBAC}/{folder}{role['kind'].lower()}s/{metadata['name']}"
    cluster.client.patch(path, {"rules": rules})


def _wait_until(cluster: Cluster, rule: Mapping[str, Any], *, allowed: bool) -> None:
    """Wait until the server's cache of roles allows (or denies) this rule."""
    resource, _, subresource = rule["resources"][0].partition("/")
    attributes = {
        "verb": rule["verbs"][0],
        "group": rule["apiGroups"][0],
        "resource": resource,
        "subresource": subresource,
        "name": rule.get("resourceNames", [""])[0],
        "namespace": "kube-system" if resource == "configmaps" else "mooring-system",
    }
    review = {"spec": {"user": USER, "resourceAttributes": attributes}}
    reviews = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    eventually(
        lambda: cluster.client.post(reviews, review)["status"]["allowed"],
        lambda answer: answer is allowed,
        f"{'a' if allowed else 'no'} right to {first(rule)}",
    )


def test_what_fails_is_said_of_each_rule() -> None:
    named = [name for together in FAILS for name in together]
    not_served = {each.group for each in _NOT_SERVED}
    rules = (rule for _, rule in granted() if not not_served.issuperset(rule["apiGroups"]))
    assert sorted(named) == sorted(map(first, rules))


@pytest.mark.parametrize("fails", FAILS, ids=lambda fails: next(iter(fails)))
def test_without_a_rule_something_fails_and_says_so(
    cluster: Cluster, fails: Mapping[str, tuple[Work, str]]
) -> None:
    if any(name.endswith(" leases") for name in fails):
        _without_lease(cluster.client)
    with without(cluster, fails.keys()), cluster.mooring() as scheduler:
        if any(work is not nothing for work, _ in fails.values()):
            eventually(starts(cluster), bool, "the start")
        for work, words in fails.values():
            said = ""
            try:
                work(cluster)
            except (AssertionError, ApiError) as error:
                said = str(error)
            eventually(lambda: told(cluster, scheduler) + said, partial(contains, words), words)  # noqa: B023 - waited for here


def contains(words: str, text: str) -> bool:
    return words in text


def test_with_an_older_role_only_pods_with_claims_wait_until_the_role_is_applied(
    cluster: Cluster,
) -> None:
    with cluster.mooring() as scheduler:
        with without(cluster, ["list deviceclasses"]):
            eventually(starts(cluster), bool, "the start")
            bound_with_its_device = takes_a_device(cluster)
            cluster.wait_until_bound(cluster.add_pod("web", cpu="1m"))
            words = "devices cannot be allocated: Mooring may not list and watch deviceclasses"
            path = f"/api/v1/namespaces/{cluster.namespace}/pods/with-device-{cluster.runs}"
            conditions = eventually(
                lambda: cluster.client.get(path)["status"].get("conditions", []),
                lambda found: any(words in c.get("message", "") for c in found),
                "a condition that says why",
            )
            assert [c["message"].count("kubectl apply -k manifests/") for c in conditions] == [1]
        eventually(bound_with_its_device, bool, "the pod bound with its device")
        waiting = [r["message"] for r in scheduler.log() if words in r["message"]]
        assert len([text for text in waiting if text.startswith("pods with claims")]) == 1


def told(cluster: Cluster, scheduler: Replica) -> str:
    """Return the messages of the log, and of the pods' conditions."""
    messages = [record["message"] for record in scheduler.log()]
    for raw in pods(cluster.client, cluster.namespace).values():
        messages += [c.get("message", "") for c in raw["status"].get("conditions", ())]
    return "\n".join(messages)


def _without_lease(client: Client) -> None:
    path = "/apis/coordination.k8s.io/v1/namespaces/mooring-system/leases"
    client.delete(path)
