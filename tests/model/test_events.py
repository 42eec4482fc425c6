from mooring.model.events import Action, ClusterEvent, Kind


def test_kinds_and_actions_are_written_as_the_api_writes_them() -> None:
    assert Kind("PersistentVolumeClaim") is Kind.PERSISTENT_VOLUME_CLAIM
    assert f"{Kind.NODE} {Action.UPDATE}" == "Node Update"


def test_equal_changes_are_equal() -> None:
    assert ClusterEvent(Kind.NODE, Action.ADD, None, "n1") == ClusterEvent(
        Kind.NODE, Action.ADD, None, "n1"
    )
    assert ClusterEvent(Kind.NODE, Action.ADD, None, "n1") != ClusterEvent(
        Kind.NODE, Action.ADD, None, "n2"
    )
