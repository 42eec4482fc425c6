from mooring.model.storage import parse_persistent_volume, parse_persistent_volume_claim
from mooring.model.storage_patches import binding_patch, node_patch
from mooring.testing.storage_builders import pv, pvc


def versioned(raw: dict[str, object], version: str) -> dict[str, object]:
    metadata = raw["metadata"]
    assert isinstance(metadata, dict)
    return raw | {"metadata": metadata | {"resourceVersion": version}}


VOLUME = parse_persistent_volume(versioned(pv("v"), "7"))
CLAIM = parse_persistent_volume_claim(versioned(pvc("data", namespace="team-a"), "8"))


def test_a_volume_is_bound_as_the_volume_controller_would_and_only_if_it_has_not_changed() -> None:
    assert binding_patch(VOLUME, CLAIM, prebound=False) == {
        "metadata": {
            "resourceVersion": "7",
            "annotations": {"pv.kubernetes.io/bound-by-controller": "yes"},
        },
        "spec": {
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": "team-a",
                "name": "data",
                "uid": CLAIM.uid,
                "resourceVersion": "8",
            }
        },
    }


def test_a_volume_that_its_user_kept_for_the_claim_is_not_said_to_be_bound_by_a_controller() -> (
    None
):
    assert binding_patch(VOLUME, CLAIM, prebound=True)["metadata"] == {"resourceVersion": "7"}


def test_a_claim_is_sent_to_its_node_only_if_it_has_not_changed() -> None:
    assert node_patch(CLAIM, "n1") == {
        "metadata": {
            "resourceVersion": "8",
            "annotations": {"volume.kubernetes.io/selected-node": "n1"},
        }
    }
