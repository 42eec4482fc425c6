from mooring.model.names import Names
from mooring.model.pod import Uid

FIRST, SECOND = Uid("first"), Uid("second")


def test_the_latest_of_a_name_is_found_until_it_is_removed() -> None:
    names = Names()
    names.add("default/web", FIRST)
    names.add("default/web", SECOND)
    assert names.latest("default/web") == SECOND
    names.remove("default/web", SECOND)
    assert names.latest("default/web") == FIRST
    names.remove("default/web", FIRST)
    assert names.latest("default/web") is None


def test_the_end_of_the_first_of_a_name_leaves_the_latest() -> None:
    names = Names()
    names.add("default/web", FIRST)
    names.add("default/web", SECOND)
    names.remove("default/web", FIRST)
    assert names.latest("default/web") == SECOND
