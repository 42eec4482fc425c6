"""Changes are told in one sentence."""

from mooring.engine.change import Change, conditions


def test_what_is_to_be_done_outside_of_the_pod_comes_last() -> None:
    changes = [
        Change("you create claim a", "a", 1.0, once=True),
        Change("had no port", "port", 1.0),
        Change("had no taint", "taint", 1.0),
    ]
    text = conditions(changes, [each.text for each in changes], "all members")
    assert text == "if all members had no port and had no taint, once you create claim a"
    assert conditions(changes[:1], ["you wait"]) == "once you wait"
