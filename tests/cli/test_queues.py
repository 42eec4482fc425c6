"""The command `mooring queues` shows quotas as trees."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from cli.running import ask, kubeconfig_of
from kube.api_server import ApiServer, Objects
from mooring.cli.queues import queues
from mooring.testing.builders import queue_object
from queue_files import elastic_quota, koordinator_quota

READY = {"type": "Ready", "status": "True", "reason": "InForce", "message": "in force"}
AMOUNTS = ("nominal", "used", "borrowed", "lent")


def shown(
    name: str,
    parent: str = "",
    *,
    waiting: int = 0,
    share: str = "0",
    condition: dict[str, str] = READY,
    **resources: str,
) -> dict[str, Any]:
    """Return a queue; `resources` has the four amounts of each resource in one text."""
    amounts = [
        {"name": resource, **dict(zip(AMOUNTS, each.split(), strict=True))}
        for resource, each in resources.items()
    ]
    status = {"conditions": [condition], "pods": 3, "waiting": waiting, "share": share}
    return queue_object(name, parent=parent, status={**status, "resources": amounts})


TREE = (
    shown("team-b", "research", share="0.5", cpu="8 12 4 0", memory="8Gi 1Gi 0 0"),
    shown("research", waiting=8, cpu="16 16 0 0", memory="8Gi 1Gi 0 0"),
    shown("team-a", "research", waiting=8, cpu="8 4 0 4", memory="0 0 0 0"),
    shown("alone", cpu="1 0 0 0"),
)


ELASTIC = "/apis/scheduling.x-k8s.io/v1alpha1"


def elastic(name: str, used: dict[str, str] | None, **spec: Any) -> dict[str, Any]:
    """Return the ElasticQuota `name` of the namespace team-`name`; its status may be missing."""
    status = {} if used is None else {"status": {"used": used}}
    return {**elastic_quota(f"team-{name}", name, **spec), **status}


async def asked(
    folder: Path,
    *words: str,
    of: Sequence[dict[str, Any]] = TREE,
    elastic_quotas: Sequence[dict[str, Any]] | None = None,
    refused: Mapping[str, tuple[int, str]] | None = None,
) -> Result:
    """Return the finished command; without `elastic_quotas` the cluster does not serve the kind."""
    objects: dict[str, object] = {"/queues": [*of]}
    if elastic_quotas is not None:
        objects |= {ELASTIC: {"resources": [{"name": "elasticquotas"}]}}
        objects |= {"/elasticquotas": [*elastic_quotas]}
    async with ApiServer(Objects(objects, refused=refused)) as server:
        return await ask(queues, *words, f"--kubeconfig={kubeconfig_of(folder, server.url)}")


async def test_there_is_a_tree_for_each_resource(tmp_path: Path) -> None:
    result = await asked(tmp_path)
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == [
        "cpu",
        "QUEUE      NOMINAL   USED   BORROWED   LENT   WAITING   SHARE",
        "alone            1      0          0      0         0       0",
        "research        16     16          0      0         8       0",
        "  team-a         8      4          0      4         8       0",
        "  team-b         8     12          4      0         0     0.5",
        "",
        "memory",
        "QUEUE      NOMINAL   USED   BORROWED   LENT   WAITING   SHARE",
        "research       8Gi    1Gi          0      0         8       0",
        "  team-a         0      0          0      0         8       0",
        "  team-b       8Gi    1Gi          0      0         0     0.5",
    ]


async def test_one_queue_is_shown_with_those_below_it(tmp_path: Path) -> None:
    for top, names in (
        ("research", ["research", "team-a", "team-b"]),
        ("team-a", ["team-a"]),
    ):
        document = json.loads((await asked(tmp_path, top, "-o", "json")).stdout)
        assert [(each["name"], each["depth"]) for each in document["queues"]] == [
            (name, int(name != top)) for name in names
        ]
    result = await asked(tmp_path, "team-c")
    assert (result.exit_code, result.stderr) == (2, "error: there is no Queue team-c\n")


async def test_the_document_has_what_the_status_says(tmp_path: Path) -> None:
    document = json.loads((await asked(tmp_path, "team-b", "-o", "json")).stdout)
    (found,) = document["queues"]
    assert found == {
        "name": "team-b",
        "kind": "Queue",
        "parent": "research",
        "depth": 0,
        "ready": True,
        "reason": "InForce",
        "message": "in force",
        "pods": 3,
        "waiting": 0,
        "share": "0.5",
        "resources": TREE[0]["status"]["resources"],
    }


async def test_queues_that_are_not_in_force_are_named_with_the_reason(tmp_path: Path) -> None:
    why = {"type": "Ready", "status": "False", "reason": "Invalid", "message": "spec.parent: no"}
    circle = [shown(name, parent, condition=why) for name, parent in ("ab", "ba")]
    new = queue_object("new", parent="ab")
    result = await asked(tmp_path, of=[*circle, shown("c", cpu="1 0 0 0"), new])
    assert result.exit_code == 1
    assert result.stdout.splitlines()[-3:] == [
        "NOT READY  new: no replica of Mooring has read it yet",
        "NOT READY  a: spec.parent: no",
        "NOT READY  b: spec.parent: no",
    ]


async def test_without_quotas_it_says_where_they_are_explained(tmp_path: Path) -> None:
    result = await asked(tmp_path, of=[])
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "note: no queue limits a resource; docs/queues.md says how one does\n"


async def test_a_cluster_without_the_kind_is_told_in_one_line(tmp_path: Path) -> None:
    refused = Objects({}, refused={"/queues": (404, "no")})
    async with ApiServer(refused) as server:
        result = await ask(queues, f"--kubeconfig={kubeconfig_of(tmp_path, server.url)}")
    assert result.exit_code == 2
    assert result.stderr == (
        "error: the cluster has no queues.scheduling.mooring.dev: its CustomResourceDefinition is "
        "missing; create it with: kubectl apply -f crds/\n"
    )


FORBIDDEN = 403, 'elasticquotas.scheduling.x-k8s.io is forbidden: User "ann" cannot list resource'


async def test_elastic_quotas_are_a_tree_of_their_own_and_marked(tmp_path: Path) -> None:
    quotas = [
        elastic("b", {"cpu": "12", "memory": "1Gi"}, min={"cpu": "8"}, max={"cpu": "16"}),
        elastic("a", {"cpu": "2500m"}, min={"cpu": "8"}),
    ]
    result = await asked(tmp_path, of=[shown("alone", cpu="1 0 0 0")], elastic_quotas=quotas)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines() == [
        "cpu",
        "QUEUE                               NOMINAL     USED   BORROWED   LENT   WAITING   SHARE",
        "alone                                     1        0          0      0         0       0",
        "elastic-quota.root (ElasticQuota)        16   14500m          0      0         -       0",
        "  team-a (ElasticQuota)                   8    2500m          0      4         -       0",
        "  team-b (ElasticQuota)                   8       12          4      0         -    0.25",
    ]


async def test_quotas_of_koordinator_are_a_tree_with_their_own_names(tmp_path: Path) -> None:
    used = {"status": {"used": {"cpu": "3"}}}
    quotas = [
        koordinator_quota("koordinator-root-quota", labels={"is-parent": "true"}) | used,
        koordinator_quota("dept", labels={"is-parent": "true"}, min={"cpu": 4}) | used,
        koordinator_quota("a", "dept", min={"cpu": 2}) | used,
        koordinator_quota("b", "dept", min={"cpu": 2}),
        koordinator_quota("c", "gone", min={"cpu": 2}) | used,
    ]
    result = await asked(tmp_path, of=[], elastic_quotas=quotas)
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        "cpu",
        "QUEUE                   NOMINAL   USED   BORROWED   LENT   WAITING   SHARE",
        "  dept (ElasticQuota)         4      3          0      0         -       -",
        "    a (ElasticQuota)          2      3          1      0         -    0.25",
        "NOT READY  c: spec.parent: queue gone does not exist (c -> gone)",
        "NOT READY  b: no replica of Mooring has read it yet",
    ]
    top = await asked(tmp_path, "dept", "-o", "json", of=[], elastic_quotas=quotas)
    assert [each["name"] for each in json.loads(top.stdout)["queues"]] == ["dept", "a", "b"]


async def test_quotas_are_read_of_the_group_that_is_served(tmp_path: Path) -> None:
    of_koordinator = "/apis/scheduling.sigs.k8s.io/v1alpha1"
    objects = {
        "/queues": [],
        of_koordinator: {"resources": [{"name": "elasticquotas"}]},
        "/elasticquotas": [koordinator_quota("a", min={"cpu": 2})],
    }
    async with ApiServer(Objects(objects)) as server:
        words = ("-o", "json", f"--kubeconfig={kubeconfig_of(tmp_path, server.url)}")
        result = await ask(queues, *words)
    found = json.loads(result.stdout)["queues"]
    assert [each["name"] for each in found] == ["koordinator-root-quota", "a"]


async def test_an_elastic_quota_that_does_not_count_says_why(tmp_path: Path) -> None:
    quotas = [elastic("a", None, min={"cpu": 1, "a": []}), elastic("b", None, min={"cpu": "1"})]
    result = await asked(tmp_path, of=[], elastic_quotas=quotas)
    assert result.exit_code == 1
    assert result.stdout.splitlines()[-2:] == [
        "NOT READY  team-a: ElasticQuota team-a/a: spec.min.a: must be a quantity",
        "NOT READY  team-b: no replica of Mooring has read it yet",
    ]
    only = await asked(tmp_path, of=[queue_object("new")])
    assert only.stdout == "NOT READY  new: no replica of Mooring has read it yet\n"
    assert only.stderr == "", "not that there is no quota"


async def test_a_queue_counts_before_the_elastic_quota_of_its_name(tmp_path: Path) -> None:
    queue, quota = shown("team-a", cpu="1 0 0 0"), elastic("a", {"cpu": "2"}, min={"cpu": "4"})
    result = await asked(tmp_path, "-o", "json", of=[queue], elastic_quotas=[quota])
    found = json.loads(result.stdout)["queues"]
    assert [(each["name"], each["kind"]) for each in found] == [("team-a", "Queue")]


async def test_names_of_any_length_leave_the_numbers_in_80_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mooring.cli.console.terminal_width", lambda: 80)
    long = {**elastic("a", {"cpu": "2"}, min={"cpu": "4"})}
    long["metadata"] = {**long["metadata"], "namespace": "n" * 63}
    result = await asked(tmp_path, of=[], elastic_quotas=[long])
    name, numbers = result.stdout.splitlines()[-2:]
    assert name == f"  {'n' * 63} (ElasticQuota)"
    assert numbers.split() == ["4", "2", "0", "0", "-", "0"]
    assert len(numbers) <= 80


async def test_without_the_right_to_list_elastic_quotas_the_others_are_shown(
    tmp_path: Path,
) -> None:
    result = await asked(tmp_path, elastic_quotas=[], refused={"/elasticquotas": FORBIDDEN})
    assert result.exit_code == 0
    assert "team-b" in result.stdout
    (line,) = result.stderr.splitlines()
    assert line.startswith("note: ElasticQuotas are not shown: ")
    assert line.endswith("; the ClusterRole mooring-explain grants it")
    unserved = await asked(tmp_path, refused={"/elasticquotas": FORBIDDEN})
    assert unserved.stderr == ""


async def test_without_the_right_to_list_queues_the_role_is_named(tmp_path: Path) -> None:
    refused = {"/queues": (403, 'queues is forbidden: User "ann" cannot list resource "queues"')}
    result = await asked(tmp_path, refused=refused)
    assert result.exit_code == 2
    assert result.stderr.endswith("; the ClusterRole mooring-explain grants it\n")
