from mooring.model.changes import Action, Change, Kind


def test_kinds_and_actions_are_written_as_the_api_writes_them() -> None:
    assert Kind("PersistentVolumeClaim") is Kind.PERSISTENT_VOLUME_CLAIM
    assert f"{Kind.NODE} {Action.UPDATE}" == "Node Update"


def test_equal_changes_are_equal() -> None:
    assert Change(Kind.NODE, Action.ADD, None, "n1") == Change(Kind.NODE, Action.ADD, None, "n1")
    assert Change(Kind.NODE, Action.ADD, None, "n1") != Change(Kind.NODE, Action.ADD, None, "n2")
