from mooring.model.csi import (
    CSIDriver,
    CSINode,
    VolumeAttachment,
    parse_csi_driver,
    parse_csi_node,
    parse_csi_storage_capacity,
    parse_volume_attachment,
)
from mooring.model.storage import (
    parse_persistent_volume,
    parse_persistent_volume_claim,
    parse_storage_class,
)
from storage_builders import (
    csi_driver,
    csi_node,
    pv,
    pvc,
    storage_capacity,
    storage_class,
    volume_attachment,
)


def test_a_volume_can_be_had_on_its_nodes_and_is_kept_for_its_claim() -> None:
    volume = parse_persistent_volume(pv("v", size="2Gi", nodes=["n1"], claim="team-a/data"))
    assert volume.capacity == 2 * 2**30
    assert volume.node_affinity is not None
    assert volume.node_affinity.terms[0].matches("n1", {"kubernetes.io/hostname": "n1"})
    assert volume.claim is not None
    assert (volume.claim.namespace, volume.claim.name) == ("team-a", "data")


def test_a_volume_of_a_few_words_is_free_and_fits_every_node() -> None:
    volume = parse_persistent_volume(pv("v"))
    assert (volume.claim, volume.node_affinity, volume.phase) == (None, None, "Available")


def test_a_claim_is_bound_exactly_if_it_names_a_volume() -> None:
    assert parse_persistent_volume_claim(pvc("data", volume="v")).bound
    assert not parse_persistent_volume_claim(pvc("data")).bound


def test_a_storage_class_waits_for_the_first_consumer_unless_told_otherwise() -> None:
    assert parse_storage_class(storage_class("late")).waits_for_consumer
    assert not parse_storage_class(storage_class("early", waits=False)).waits_for_consumer


def test_a_claim_may_have_been_sent_to_a_node() -> None:
    assert parse_persistent_volume_claim(pvc("data", selected_node="n1")).selected_node == "n1"
    assert parse_persistent_volume_claim(pvc("data")).selected_node is None


def test_a_csi_node_says_which_drivers_there_are_and_what_they_may_attach() -> None:
    raw = csi_node("n1", {"a": 3, "b": None}, migrated=["kubernetes.io/aws-ebs"])
    expected = CSINode("n1", {"a": 3, "b": None}, frozenset({"kubernetes.io/aws-ebs"}))
    assert parse_csi_node(raw) == expected


def test_a_driver_may_want_its_capacity_looked_at() -> None:
    raw = csi_driver("a", storage_capacity=True)
    assert parse_csi_driver(raw) == CSIDriver("a", storage_capacity=True, required_on_node=False)


def test_a_capacity_without_topology_is_for_no_node() -> None:
    here = parse_csi_storage_capacity(storage_capacity("c", "fast", "1Gi", {"zone": "a"}))
    assert (here.storage_class, here.capacity) == ("fast", 2**30)
    assert here.node_topology is not None
    assert here.node_topology.matches({"zone": "a"})
    nowhere = parse_csi_storage_capacity(storage_capacity("c", "fast", "1Gi"))
    assert nowhere.node_topology is None


def test_an_attachment_ties_a_volume_to_a_node() -> None:
    raw = volume_attachment("va", "a", "n1", "v")
    assert parse_volume_attachment(raw) == VolumeAttachment("va", "a", "n1", "v")
