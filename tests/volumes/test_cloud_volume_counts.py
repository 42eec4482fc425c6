from typing import Any, ClassVar

import pytest

from mooring.testing.builders import api_object, node, pod
from mooring.testing.contract import PluginContract, Scenario
from mooring.volumes.cloud_volume_counts import (
    AzureDiskVolumeCount,
    EBSVolumeCount,
    GCEPDVolumeCount,
)
from plugin_answers import PluginAnswers, Rejected
from storage_builders import csi_node, pv, pvc, storage_class

FULL = Rejected(("node(s) exceed max volume count",), resolvable=True)


def ebs(number: int) -> dict[str, Any]:
    return {"awsElasticBlockStore": {"volumeID": f"vol-{number}"}}


def gce(number: int) -> dict[str, Any]:
    return {"gcePersistentDisk": {"pdName": f"pd-{number}"}}


def azure(number: int) -> dict[str, Any]:
    return {"azureDisk": {"diskName": f"d-{number}", "diskURI": f"/disks/d-{number}"}}


def with_volumes(*sources: dict[str, Any], name: str = "web", **fields: Any) -> dict[str, Any]:
    volumes = [{"name": f"v{i}", **source} for i, source in enumerate(sources)]
    return pod(name, spec={"volumes": volumes}, **fields)


def holder(*sources: dict[str, Any], node: str = "n1") -> dict[str, Any]:
    return with_volumes(*sources, name=f"on-{node}", node=node)


@pytest.mark.parametrize(
    ("plugin", "disk", "limit"),
    [(EBSVolumeCount, ebs, 39), (GCEPDVolumeCount, gce, 16), (AzureDiskVolumeCount, azure, 16)],
)
def test_each_cloud_has_its_limit(plugin: type[Any], disk: Any, limit: int) -> None:
    objects = (
        node("n1"),
        node("n2"),
        holder(*map(disk, range(limit)), node="n1"),
        holder(*map(disk, range(limit - 1)), node="n2"),
    )
    assert PluginAnswers(plugin, *objects).rejections(with_volumes(disk(99))) == {"n1": FULL}
    assert (
        PluginAnswers(plugin, *objects, maxVolumes=limit + 1).rejections(with_volumes(disk(99)))
        == {}
    )


@pytest.mark.parametrize(
    "key", ["beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type"]
)
def test_nitro_instances_attach_fewer_ebs_volumes(key: str) -> None:
    types = {"nitro": "m5.large", "burst": "t3.small", "dense": "z1d.large", "older": "m4.large"}
    nodes = [node(name, labels={key: value}) for name, value in types.items()]
    holders = [holder(*map(ebs, range(25)), node=name) for name in types]
    rejections = PluginAnswers(EBSVolumeCount, *nodes, *holders).rejections(with_volumes(ebs(99)))
    assert rejections is not None
    assert rejections.keys() == {"nitro", "burst", "dense"}


def test_a_limit_that_the_node_publishes_wins() -> None:
    nodes = [
        node(name, resources={"attachable-volumes-aws-ebs": limit})
        for name, limit in (("n1", 1), ("n2", 2))
    ]
    holders = [holder(ebs(0), node=name) for name in ("n1", "n2")]
    for other in (1, 5):
        asking = PluginAnswers(EBSVolumeCount, *nodes, *holders, maxVolumes=other)
        assert asking.rejections(with_volumes(ebs(1))) == {"n1": FULL}


def test_a_disk_counts_once_per_node() -> None:
    objects = (node("n1"), holder(ebs(0), ebs(1)))
    asking = PluginAnswers(EBSVolumeCount, *objects, maxVolumes=2)
    assert asking.rejections(with_volumes(ebs(0), ebs(1))) == {}
    assert asking.rejections(with_volumes(ebs(1), ebs(2))) == {"n1": FULL}


def test_disks_behind_claims_count_and_those_that_are_to_be_made_do_too() -> None:
    objects = (
        node("n1"),
        storage_class("gp2", provisioner="kubernetes.io/aws-ebs"),
        storage_class("nfs", provisioner="example.com/nfs"),
        pv("disk", claim="default/bound", spec=ebs(7)),
        pvc("bound", volume="disk"),
        pvc("new", storage_class="gp2"),
        pvc("elsewhere", storage_class="nfs"),
    )
    asking = PluginAnswers(EBSVolumeCount, *objects, maxVolumes=1)
    assert asking.rejections(pod(claims=["bound"])) == {}
    assert asking.rejections(pod(claims=["bound", "new"])) == {"n1": FULL}
    assert asking.rejections(pod(claims=["elsewhere"])) is None
    assert asking.rejections(pod(claims=["unheard-of"])) is None


def test_disks_of_other_clouds_do_not_count() -> None:
    objects = (node("n1"), holder(gce(0), ebs(0)))
    asking = PluginAnswers(GCEPDVolumeCount, *objects, maxVolumes=2)
    assert asking.rejections(with_volumes(gce(1))) == {}
    assert asking.rejections(with_volumes(ebs(1))) is None
    assert asking.rejections(pod()) is None


def test_nodes_whose_csi_driver_has_taken_over_are_left_to_its_limit() -> None:
    migrated = api_object(
        "CSINode",
        "n1",
        annotations={"storage.alpha.kubernetes.io/migrated-plugins": "kubernetes.io/aws-ebs"},
        spec={"drivers": []},
    )
    objects = (node("n1"), migrated, holder(ebs(0)))
    assert (
        PluginAnswers(EBSVolumeCount, *objects, maxVolumes=1).rejections(with_volumes(ebs(1))) == {}
    )


def test_a_deleted_pod_queues_only_if_it_had_volumes() -> None:
    asking = PluginAnswers(EBSVolumeCount)
    assert asking.queueing_hint(with_volumes(ebs(0)), before=holder(ebs(1)))
    assert not asking.queueing_hint(with_volumes(ebs(0)), before=pod(node="n1"))


def test_a_node_queues_when_it_is_added_or_its_limit_changes() -> None:
    asking, incoming = PluginAnswers(EBSVolumeCount), with_volumes(ebs(0))
    plain, published = node("n1"), node("n1", resources={"attachable-volumes-aws-ebs": 9})
    typed = node("n1", labels={"node.kubernetes.io/instance-type": "m4.large"})
    assert asking.queueing_hint(incoming, after=plain)
    assert asking.queueing_hint(incoming, before=plain, after=published)
    assert asking.queueing_hint(incoming, before=plain, after=typed)
    assert not asking.queueing_hint(incoming, before=plain, after=node("n1", cpu="9"))


def test_a_csi_migration_queues() -> None:
    asking, incoming = PluginAnswers(EBSVolumeCount), with_volumes(ebs(0))
    before, after = csi_node("n1", {}), csi_node("n1", {}, migrated=["kubernetes.io/aws-ebs"])
    assert asking.queueing_hint(incoming, before=before, after=after)
    assert not asking.queueing_hint(incoming, before=before, after=csi_node("n1", {"x": 1}))


def test_only_events_of_its_own_claims_queue_a_pod() -> None:
    asking, bound = PluginAnswers(EBSVolumeCount), pvc("data", volume="v")
    assert asking.queueing_hint(pod(claims=["data"]), before=pvc("data"), after=bound)
    assert asking.queueing_hint(pod(claims=["data"]), before=bound)
    assert not asking.queueing_hint(pod(claims=["other"]), before=pvc("data"), after=bound)


class TestContract(PluginContract):
    plugin = EBSVolumeCount
    args: ClassVar[dict[str, int]] = {"maxVolumes": 1}
    scenarios: ClassVar[list[Scenario]] = [
        Scenario((node("n1"), node("n2")), with_volumes(ebs(1)), (holder(ebs(0)),)),
        Scenario((node("n1"),), with_volumes(gce(1))),
    ]
