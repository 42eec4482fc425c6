"""Pod groups on a real API server: the served kinds, and the conditions of the groups.

The control plane also serves Kubernetes' own PodGroups if the release has them behind gates.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

import replica
from controlplane import ApiError, ControlPlane
from controlplane.client import Client
from controlplane.namespaces import create_namespace
from controlplane.nodes import create_nodes
from controlplane.releases import chosen_release
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
    messages_of,
    pod,
    pods,
    priority_class,
)
from mooring.groups.model.pod_group import COSCHEDULING_LABEL
from mooring.kube.api_resources import (
    HYPER_NODE,
    KAI_POD_GROUP,
    POD_GANG,
    POD_GROUP,
    SIGS_ELASTIC_QUOTA,
    VOLCANO_POD_GROUP,
    Resource,
)
from mooring.model.kubernetes_rules import KUBERNETES_RULES
from mooring.quota.model.elastic_quota import KOORDINATOR
from mooring.testing.builders import (
    coscheduling_pod_group,
    hyper_node,
    kai_pod_group,
    pod_gang,
    pod_group,
    volcano_pod_group,
)
from policies import profile
from queue_files import koordinator_quota

ROOT: Final = Path(__file__).parents[2]
CRD: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/podgroups.scheduling.x-k8s.io"
RELEASE: Final = chosen_release()
COSCHEDULING: Final = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/{}/podgroups"

Raw = dict[str, Any]


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    with ControlPlane(flags=RELEASE.pod_group_flags()) as plane:
        replica.apply_manifests(plane.access)
        yield plane


@pytest.fixture
def high(client: Client, namespace: str) -> Iterator[str]:
    """Yield the name of a PriorityClass with a higher priority than pods without a class."""
    with priority_class(client, namespace, 1000):
        yield namespace


@pytest.fixture
def namespace(plane: ControlPlane, client: Client) -> Iterator[str]:
    """Yield a new namespace; delete its pods afterwards, because all tests share the nodes."""
    name = create_namespace(plane.access)
    yield name
    for each in pods(client, name):
        delete_now(client, name, each)


def known_groups(scheduler: Replica) -> int:
    """Return the number of pod groups in the replica's cache, from its metrics."""
    _, page = scheduler.get("/metrics")
    line = 'scheduler_cache_size{type="pod_groups"}'
    counts = [float(text.split()[-1]) for text in page.splitlines() if text.startswith(line)]
    return int(counts[0]) if counts else 0


def has_groups(scheduler: Replica, number: int) -> None:
    eventually(lambda: known_groups(scheduler), lambda known: known == number, f"{number} groups")


@pytest.mark.pod_groups
def test_pod_groups_of_both_kinds_are_known_also_if_a_kind_is_installed_later(
    plane: ControlPlane, client: Client, replicas: Replicas, namespace: str
) -> None:
    raw = pod_group("train", 3, namespace=namespace)
    client.post(RELEASE.pod_groups(namespace), RELEASE.versioned(raw))
    client.delete(CRD)
    scheduler = replicas.start()
    scheduler.wait_until_leads()
    has_groups(scheduler, 1)
    version = RELEASE.pod_group_versions[0]
    scheduler.wait_until_says(f"podgroups.scheduling.k8s.io ({version}) is served")
    plane.access.kubectl("apply", "-f", str(ROOT / "crds" / "podgroups.yaml"))
    replica.wait_until_established(plane.access)
    raw = coscheduling_pod_group("train", 3, namespace=namespace, timeout=60)
    client.post(COSCHEDULING.format(namespace), raw)
    scheduler.wait_until_says("podgroups.scheduling.x-k8s.io (v1alpha1) is served")
    has_groups(scheduler, 2)
    client.delete(CRD)
    scheduler.wait_until_says("podgroups.scheduling.x-k8s.io (v1alpha1) is not served any more")
    has_groups(scheduler, 1)
    assert scheduler.get("/readyz")[0] == 200
    assert scheduler.terminate() == 0
    plane.access.kubectl("apply", "-f", str(ROOT / "crds" / "podgroups.yaml"))


@pytest.fixture(scope="module")
def scheduler(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replica]:
    """Yield a replica of Mooring as shipped, with two nodes of 4 CPUs."""
    create_nodes(plane.access, 2, capacity={"cpu": "4", "memory": "8Gi", "pods": "50"})
    with Replicas.of(plane.access, tmp_path_factory.mktemp("groups")) as replicas:
        started = replicas.start()
        started.wait_until_leads()
        started.wait_until_says("podgroups.scheduling.x-k8s.io (v1alpha1) is served")
        yield started


@dataclasses.dataclass(frozen=True)
class Way:
    """A kind of PodGroup, and the fields by which pods name their group."""

    name: str
    collection: Callable[[str], str]
    """Returns the path of a namespace's groups."""
    group: Callable[..., Raw]

    def fields(self, name: str) -> Raw:
        if self.name == "kubernetes":
            return {"schedulingGroup": {"podGroupName": name}}
        return {"labels": {COSCHEDULING_LABEL: name}}


def versioned_pod_group(name: str, minimum: int, *, namespace: str) -> Raw:
    return RELEASE.versioned(pod_group(name, minimum, namespace=namespace))


OF_KUBERNETES: Final = Way("kubernetes", RELEASE.pod_groups, versioned_pod_group)
OF_COSCHEDULING: Final = Way("coscheduling", COSCHEDULING.format, coscheduling_pod_group)
WAYS: Final = (
    pytest.param(OF_KUBERNETES, marks=pytest.mark.pod_groups, id=OF_KUBERNETES.name),
    pytest.param(OF_COSCHEDULING, id=OF_COSCHEDULING.name),
)


def contains(name: str, names: Collection[str]) -> bool:
    return name in names


def condition(client: Client, path: str) -> tuple[str, str]:
    """Return status and message of the group's condition; "" and "" without one."""
    of_kubernetes = path.startswith(f"/apis/{POD_GROUP.group}/")
    kind = RELEASE.pod_group_condition if of_kubernetes else "PodGroupScheduled"
    status = client.get(path).get("status") or {}
    for known in status.get("conditions") or ():
        if known["type"] == kind:
            return known["status"], known["message"]
    return "", ""


def says(client: Client, path: str, *wanted: str) -> None:
    eventually(lambda: condition(client, path), lambda found: found == wanted, f"{wanted}")


def notes(client: Client, namespace: str, name: str) -> list[str]:
    events = client.get(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")["items"]
    regarding = [e for e in events if e["regarding"]["kind"] == "PodGroup"]
    return [f"{e['reason']}: {e['note']}" for e in regarding if e["regarding"]["name"] == name]


@pytest.mark.usefixtures("scheduler")
@pytest.mark.parametrize("way", WAYS)
def test_a_group_says_how_many_members_are_missing_and_then_that_it_is_placed(
    client: Client, namespace: str, way: Way
) -> None:
    collection = way.collection(namespace)
    path, fields = f"{collection}/train", way.fields("train")
    create_pods(client, namespace, *(pod(f"p{i}", **fields) for i in range(2)))
    said = partial(messages_of, client, namespace)
    eventually(said, lambda m: any("does not exist" in text for text in m), "no group")
    client.post(collection, way.group("train", 3, namespace=namespace))
    says(client, path, "False", "2 of 3 members exist")
    eventually(said, lambda m: any("2 of 3 members exist" in text for text in m), "a member's word")
    create_pods(client, namespace, pod("p2", **fields))
    says(client, path, "True", "")
    assert len(bound(client, namespace)) == 3
    eventually(
        lambda: notes(client, namespace, "train"),
        lambda found: "Scheduled: 3 members are bound" in found,
        "the event",
    )
    client.delete(path)


@pytest.mark.parametrize("way", WAYS)
def test_a_group_that_does_not_fit_says_why_and_is_explained(
    scheduler: Replica, client: Client, namespace: str, way: Way
) -> None:
    collection = way.collection(namespace)
    client.post(collection, way.group("large", 3, namespace=namespace))
    create_pods(
        client, namespace, *(pod(f"p{i}", cpu="3", **way.fields("large")) for i in range(3))
    )
    status, message = eventually(
        lambda: condition(client, f"{collection}/large"),
        lambda c: "2 of 3 members fit" in c[1],
        "the cause",
    )
    assert status == "False"
    assert "CPU" in message
    assert bound(client, namespace) == {}
    _, page = scheduler.get(f"/debug/decisions?podgroup={namespace}/large")
    (group,) = json.loads(page)["podGroups"]
    assert (group["phase"], group["message"]) == ("Scheduling", message)
    assert [p["state"] for p in group["pods"]] == ["unscheduled"] * 3
    eventually(
        lambda: notes(client, namespace, "large"),
        lambda found: f"FailedScheduling: {message}" in found,
        "the event",
    )
    for name in ("p0", "p1", "p2"):
        delete_now(client, namespace, name)


@pytest.mark.usefixtures("scheduler")
def test_the_phase_of_a_coscheduling_group_follows_its_members_to_the_end(
    client: Client, namespace: str
) -> None:
    collection = COSCHEDULING.format(namespace)
    client.post(collection, coscheduling_pod_group("train", 2, namespace=namespace))
    fields: Raw = {"labels": {COSCHEDULING_LABEL: "train"}}
    create_pods(client, namespace, *(pod(f"p{i}", **fields) for i in range(2)))

    def phase_is(phase: str) -> None:
        eventually(
            lambda: (client.get(f"{collection}/train").get("status") or {}).get("phase"),
            lambda found: found == phase,
            phase,
        )

    phase_is("Scheduling")
    for phase, of_the_group in (("Running", "Running"), ("Succeeded", "Finished")):
        for name in ("p0", "p1"):
            is_bound = partial(contains, name)
            eventually(lambda: bound(client, namespace), is_bound, name)
            path = f"/api/v1/namespaces/{namespace}/pods/{name}/status"
            client.patch(path, {"status": {"phase": phase}})
        phase_is(of_the_group)
    assert client.get(f"{collection}/train")["status"]["succeeded"] == 2


@pytest.mark.usefixtures("scheduler")
def test_members_of_a_deleted_group_wait_and_a_group_of_its_name_takes_them_over(
    client: Client, namespace: str
) -> None:
    """The kind here is coscheduling's; a finalizer keeps Kubernetes' own groups until the end."""
    collection = COSCHEDULING.format(namespace)
    client.post(collection, coscheduling_pod_group("train", 2, namespace=namespace))
    create_pods(client, namespace, pod("p0", **OF_COSCHEDULING.fields("train")))
    says(client, f"{collection}/train", "False", "1 of 2 members exist")
    client.delete(f"{collection}/train")
    eventually(lambda: client.get(collection)["items"], lambda items: not items, "no group")
    create_pods(client, namespace, pod("p1", **OF_COSCHEDULING.fields("train")))
    messages = partial(messages_of, client, namespace)
    eventually(messages, lambda found: any("does not exist" in m for m in found), "the cause")
    assert bound(client, namespace) == {}
    client.post(collection, coscheduling_pod_group("train", 2, namespace=namespace))
    says(client, f"{collection}/train", "True", "")
    assert len(bound(client, namespace)) == 2


@pytest.mark.pod_groups
@pytest.mark.parametrize("version", RELEASE.pod_group_versions)
def test_groups_are_placed_where_only_one_of_their_versions_is_served(
    version: str, tmp_path: Path
) -> None:
    release = dataclasses.replace(RELEASE, pod_group_versions=(version,))
    with ControlPlane(flags=release.pod_group_flags()) as plane, plane.access.client() as client:
        replica.apply_manifests(plane.access)
        create_nodes(plane.access, 1)
        namespace = create_namespace(plane.access)
        with Replicas.of(plane.access, tmp_path) as replicas:
            scheduler = replicas.start()
            scheduler.wait_until_says(f"podgroups.scheduling.k8s.io ({version}) is served")
            group = release.versioned(pod_group("train", 2, namespace=namespace))
            client.post(release.pod_groups(namespace), group)
            fields = OF_KUBERNETES.fields("train")
            create_pods(client, namespace, *(pod(f"p{i}", **fields) for i in range(2)))
            says(client, f"{release.pod_groups(namespace)}/train", "True", "")
        assert len(bound(client, namespace)) == 2


@pytest.mark.pod_groups
@pytest.mark.usefixtures("scheduler")
def test_groups_of_one_name_in_two_kinds_and_namespaces_do_not_complete_each_other(
    plane: ControlPlane, client: Client, namespace: str
) -> None:
    elsewhere = create_namespace(plane.access)
    ways = (OF_KUBERNETES, OF_COSCHEDULING)
    for way in ways:
        for where in (namespace, elsewhere):
            client.post(way.collection(where), way.group("train", 2, namespace=where))
    for number, way in enumerate(ways):
        create_pods(client, namespace, pod(f"p{number}", **way.fields("train")))
    create_pods(client, elsewhere, pod("p", **OF_KUBERNETES.fields("train")))
    for way in ways:
        says(client, f"{way.collection(namespace)}/train", "False", "1 of 2 members exist")
    path = f"{RELEASE.pod_groups(elsewhere)}/train"
    says(client, path, "False", "1 of 2 members exist")
    create_pods(client, elsewhere, pod("q", **OF_KUBERNETES.fields("train")))
    says(client, path, "True", "")
    assert bound(client, namespace) == {}


@pytest.mark.usefixtures("scheduler")
def test_a_minimum_that_cannot_be_used_is_said_to_be_so(client: Client, namespace: str) -> None:
    """The API server rejects the minimum if its schema can; else the group's status says it."""
    collection = COSCHEDULING.format(namespace)
    for minimum in (-1, 2**31):
        with pytest.raises(ApiError, match="minMember"):
            client.post(collection, coscheduling_pod_group("g", minimum, namespace=namespace))
    keys = {"scheduling.mooring.dev/topology-mode": "Sometimes"}
    raw = coscheduling_pod_group("g", 1, namespace=namespace, annotations=keys)
    client.post(collection, raw)
    create_pods(client, namespace, pod("p", **OF_COSCHEDULING.fields("g")))
    status, message = eventually(
        lambda: condition(client, f"{collection}/g"), lambda c: c[1], "the cause"
    )
    assert status == "False"
    assert "'Sometimes' is not a mode; write Required or Preferred" in message
    zero = coscheduling_pod_group("zero", 0, namespace=namespace)
    client.post(collection, zero)
    create_pods(client, namespace, pod("z", **OF_COSCHEDULING.fields("zero")))
    eventually(lambda: bound(client, namespace), lambda names: set(names) == {"z"}, "z bound")


@pytest.mark.pod_groups
@pytest.mark.usefixtures("scheduler")
def test_an_urgent_pod_preempts_a_group_that_is_disrupted_as_a_whole_on_all_its_nodes(
    client: Client, namespace: str, high: str
) -> None:
    """Before 1.37 such a group is no victim of a pod. Its two members are on two nodes."""
    rules = KUBERNETES_RULES[RELEASE.minor]
    mode = {"all": {}} if rules.groups_in_pod_preemption else "PodGroup"
    raw = versioned_pod_group("train", 2, namespace=namespace)
    raw["spec"]["disruptionMode"] = mode
    client.post(RELEASE.pod_groups(namespace), raw)
    fields = {**OF_KUBERNETES.fields("train"), "terminationGracePeriodSeconds": 0}
    create_pods(client, namespace, *(pod(f"m{i}", cpu="3", **fields) for i in range(2)))
    eventually(lambda: bound(client, namespace), lambda found: len(found) == 2, "both bound")
    create_pods(client, namespace, pod("urgent", cpu="3", priorityClassName=high))
    if rules.groups_in_pod_preemption:
        eventually(lambda: bound(client, namespace), lambda found: {*found} == {"urgent"}, "urgent")
    else:
        said = partial(messages_of, client, namespace)
        eventually(said, lambda m: any("No preemption victims" in text for text in m), "the reason")
        assert {*bound(client, namespace)} == {"m0", "m1"}


VOLCANO: Final = "/apis/scheduling.volcano.sh/v1beta1/namespaces/{}/podgroups"


def serve(
    client: Client, scheduler: Replica, resource: Resource, definition: Raw | None = None
) -> None:
    """Let the API server serve the resource, and wait until the replica reads it."""
    with suppress(ApiError):  # another test has had it served
        client.post(CRDS, definition or crd(resource))
    scheduler.wait_until_says(f"{resource} ({resource.version}) is served")


def test_a_group_of_volcano_is_placed_whole_or_not_at_all_and_says_why(
    client: Client, namespace: str, scheduler: Replica
) -> None:
    serve(client, scheduler, VOLCANO_POD_GROUP)
    config = [{"name": "GangScheduling", "args": {"podGroupPresets": ["Volcano"]}}]
    client.post(
        PROFILES, profile("volcano", match={"schedulerNames": ["volcano"]}, pluginConfig=config)
    )
    path, named = f"{VOLCANO.format(namespace)}/ray", {"scheduling.k8s.io/group-name": "ray"}
    members = [pod(f"r{i}", cpu="3", scheduler="volcano") for i in range(3)]
    for member in members:
        member["metadata"]["annotations"] = named
    create_pods(client, namespace, *members)
    said = partial(messages_of, client, namespace)
    eventually(said, lambda found: any("does not exist" in text for text in found), "no group yet")
    raw = volcano_pod_group("ray", 3)
    raw["metadata"] = {"name": "ray"}
    client.post(VOLCANO.format(namespace), raw)
    eventually(
        lambda: client.get(path).get("status") or {},
        lambda status: (
            status.get("phase") == "Inqueue"
            and "2 of 3 members fit" in str(status.get("conditions"))
        ),
        "why the group waits",
    )
    assert bound(client, namespace) == {}
    client.patch(path, {"spec": {"minMember": 2}})
    eventually(lambda: bound(client, namespace), lambda found: len(found) == 2, "two members")
    eventually(
        lambda: client.get(path)["status"]["conditions"],
        lambda found: [each["status"] for each in found if each["type"] == "Scheduled"] == ["True"],
        "the group is placed",
    )


def test_a_group_of_kai_is_placed_with_a_member_of_each_subgroup_or_not_at_all(
    client: Client, namespace: str, scheduler: Replica
) -> None:
    """KAI's pod grouper names the group on existing pods; until then the pods wait."""
    serve(client, scheduler, KAI_POD_GROUP)
    config = [{"name": "GangScheduling", "args": {"podGroupPresets": ["KAI"]}}]
    client.post(PROFILES, profile("kai", match={"schedulerNames": ["kai"]}, pluginConfig=config))
    members = [pod(f"w{i}", cpu="3", scheduler="kai") for i in range(2)]
    members += [pod("l0", cpu="5", scheduler="kai")]
    for member in members:
        role = "leader" if member["metadata"]["name"] == "l0" else "workers"
        member["metadata"]["labels"] = {
            "kai.scheduler/queue": "team-a",
            "kai.scheduler/subgroup-name": role,
        }
    create_pods(client, namespace, *members)
    said = partial(messages_of, client, namespace)
    eventually(said, lambda found: any("pod grouper" in text for text in found), "no name yet")
    parts = [{"name": "leader", "minMember": 1}, {"name": "workers", "minMember": 1}]
    raw = kai_pod_group("pg-train", 2, queue="team-a", subGroups=parts)
    raw["metadata"] = {"name": "pg-train"}
    collection = KAI_POD_GROUP.path(namespace)
    client.post(collection, raw)
    for member in members:
        path = f"/api/v1/namespaces/{namespace}/pods/{member['metadata']['name']}"
        client.patch(path, {"metadata": {"annotations": {"pod-group-name": "pg-train"}}})
    eventually(said, lambda found: any("2 of 3 members fit" in text for text in found), "no room")
    assert bound(client, namespace) == {}
    client.patch(f"{collection}/pg-train", {"spec": {"subGroups": parts[1:], "minMember": 1}})
    eventually(lambda: bound(client, namespace), lambda names: {*names} == {"w0", "w1"}, "workers")
    assert "status" not in client.get(f"{collection}/pg-train")


def test_a_pod_is_in_the_koordinator_quota_of_its_label_and_the_quotas_show_what_is_used(
    client: Client, namespace: str, scheduler: Replica
) -> None:
    definition = crd(SIGS_ELASTIC_QUOTA)
    definition["metadata"]["annotations"] = {"api-approved.kubernetes.io": "unapproved, a test"}
    del definition["spec"]["versions"][0]["subresources"]  # as in Koordinator's CRD
    serve(client, scheduler, SIGS_ELASTIC_QUOTA, definition)
    config = [{"name": "GangScheduling", "args": {"podGroupPresets": ["Koordinator"]}}]
    match = {"schedulerNames": ["koord"]}
    client.post(PROFILES, profile("koord", match=match, pluginConfig=config))
    collection = SIGS_ELASTIC_QUOTA.path(namespace)
    for raw in (
        koordinator_quota("dept", labels={"is-parent": "true"}, max={"cpu": 1}),
        koordinator_quota("team", "dept", min={"cpu": 1}),
    ):
        del raw["metadata"]["uid"], raw["metadata"]["namespace"]
        client.post(collection, raw)

    def show(used: str) -> None:
        for name in ("dept", "team"):
            shown = partial(client.get, f"{collection}/{name}")
            eventually(shown, lambda raw: raw.get("status") == {"used": {"cpu": used}}, name)

    show("0")
    for name in ("p", "q"):
        raw = pod(name, cpu="1", scheduler="koord")
        raw["metadata"]["labels"] = {f"{KOORDINATOR}name": "team"}
        create_pods(client, namespace, raw)
    why = "queue team: 1 of 1 cpu used, 1 asked, and its parent dept may borrow only 0"
    said = partial(messages_of, client, namespace)
    eventually(said, lambda found: any(why in text for text in found), "why one waits")
    assert len(bound(client, namespace)) == 1
    show("1")


@pytest.mark.usefixtures("scheduler")
def test_an_application_of_yunikorn_is_placed_with_its_minimum_of_each_task_group(
    client: Client, namespace: str
) -> None:
    config = [{"name": "GangScheduling", "args": {"podGroupPresets": ["YuniKorn"]}}]
    match = {"schedulerNames": ["yunikorn"]}
    client.post(PROFILES, profile("yunikorn", match=match, pluginConfig=config))
    groups = [{"name": name, "minMember": 1} for name in ("launcher", "worker")]
    members = [pod(name, cpu="3", scheduler="yunikorn") for name in ("w0", "w1", "l0")]
    for member in members:
        role = "launcher" if member["metadata"]["name"] == "l0" else "worker"
        member["metadata"]["labels"] = {"applicationId": "job"}
        member["metadata"]["annotations"] = {"yunikorn.apache.org/task-group-name": role}
    declaring = members[0]["metadata"]["annotations"]
    declaring["yunikorn.apache.org/task-groups"] = "[{"
    create_pods(client, namespace, *members[:2])
    said = partial(messages_of, client, namespace)
    eventually(said, lambda found: any("is no JSON" in text for text in found), "the mistake")
    path = f"/api/v1/namespaces/{namespace}/pods/w0"
    declared = {"yunikorn.apache.org/task-groups": json.dumps(groups)}
    client.patch(path, {"metadata": {"annotations": declared}})
    missing = "0 of 1 members of role launcher exist"
    eventually(said, lambda found: any(missing in text for text in found), "no launcher")
    assert bound(client, namespace) == {}
    create_pods(client, namespace, members[2])
    eventually(lambda: bound(client, namespace), lambda names: len(names) == 2, "the minimum")
    assert "l0" in bound(client, namespace)


def test_a_pod_gang_is_placed_with_the_least_replicas_of_each_clique_or_not_at_all(
    client: Client, namespace: str, scheduler: Replica
) -> None:
    """The PodGang is deleted and created again with the same name, as Grove does on updates."""
    serve(client, scheduler, POD_GANG)
    config = [{"name": "GangScheduling", "args": {"podGroupPresets": ["Grove"]}}]
    client.post(
        PROFILES, profile("grove", match={"schedulerNames": ["grove"]}, pluginConfig=config)
    )
    members = [pod(name, cpu="3", scheduler="grove") for name in ("d0", "d1", "p0")]
    for member in members:
        clique = "decode" if member["metadata"]["name"] != "p0" else "prefill"
        member["metadata"]["labels"] = {"grove.io/podgang": "s-0", "grove.io/podclique": clique}
    collection = POD_GANG.path(namespace)

    def create(**groups: int) -> None:
        raw = pod_gang("s-0", groups)
        client.post(collection, raw | {"metadata": {"name": "s-0"}})

    create(decode=2, prefill=1)
    create_pods(client, namespace, *members)
    said = partial(messages_of, client, namespace)
    eventually(said, lambda found: any("2 of 3 members fit" in text for text in found), "no room")
    client.delete(f"{collection}/s-0")
    gone = f"PodGang {namespace}/s-0 does not exist"
    eventually(said, lambda found: gone in found, "the reason")
    assert bound(client, namespace) == {}
    create(decode=1, prefill=1)
    eventually(lambda: bound(client, namespace), lambda names: len(names) == 2, "the minimum")
    assert "p0" in bound(client, namespace)


def test_a_group_of_volcano_is_placed_in_a_hyper_node_of_an_allowed_tier(
    client: Client, namespace: str, scheduler: Replica
) -> None:
    """Each leaf HyperNode has one of the two nodes; the test adds their common spine later."""
    serve(client, scheduler, VOLCANO_POD_GROUP)
    serve(client, scheduler, HYPER_NODE)
    names = [each["metadata"]["name"] for each in client.get("/api/v1/nodes")["items"]]
    for number, name in enumerate(names):
        member = {"type": "Node", "selector": {"exactMatch": {"name": name}}}
        leaf = hyper_node(f"leaf-{number}", 1, member)
        client.post(HYPER_NODE.path(), leaf | {"metadata": {"name": f"leaf-{number}"}})
    config = [{"name": "GangScheduling", "args": {"podGroupPresets": ["Volcano"]}}]
    match = {"schedulerNames": ["networked"]}
    client.post(PROFILES, profile("networked", match=match, pluginConfig=config))
    path = f"{VOLCANO.format(namespace)}/mpi"
    raw = volcano_pod_group("mpi", 2, networkTopology={"mode": "hard", "highestTierAllowed": 2})
    client.post(VOLCANO.format(namespace), raw | {"metadata": {"name": "mpi"}})
    members = [pod(f"m{i}", cpu="3", scheduler="networked") for i in range(2)]
    for each in members:
        each["metadata"]["annotations"] = {"scheduling.k8s.io/group-name": "mpi"}
    create_pods(client, namespace, *members)
    said = partial(messages_of, client, namespace)
    text = "1 of 2 members fit in hypernode leaf-"
    eventually(said, lambda found: any(text in each for each in found), "no leaf is enough")
    assert bound(client, namespace) == {}
    leaves = {"type": "HyperNode", "selector": {"regexMatch": {"pattern": "^leaf-"}}}
    client.post(HYPER_NODE.path(), hyper_node("spine", 2, leaves) | {"metadata": {"name": "spine"}})
    eventually(lambda: bound(client, namespace), lambda found: len(found) == 2, "in the spine")
    assert client.get(path)["status"]["phase"] in ("Inqueue", "Running")
