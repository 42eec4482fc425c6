from mooring.model.events import Action, ClusterEvent, Kind


def test_kinds_and_actions_have_the_names_of_the_api() -> None:
    assert Kind("PersistentVolumeClaim") is Kind.PERSISTENT_VOLUME_CLAIM
    assert f"{Kind.NODE} {Action.UPDATE}" == "Node Update"


def test_events_are_compared_by_their_fields() -> None:
    assert ClusterEvent(Kind.NODE, Action.ADD, None, "n1") == ClusterEvent(
        Kind.NODE, Action.ADD, None, "n1"
    )
    assert ClusterEvent(Kind.NODE, Action.ADD, None, "n1") != ClusterEvent(
        Kind.NODE, Action.ADD, None, "n2"
    )
