from mooring.engine.outcome import Outcome, Placement, Unschedulable


def test_an_attempt_ends_in_a_placement_or_a_refusal_and_nothing_else() -> None:
    assert Outcome.__args__ == (Placement, Unschedulable)


def test_a_placement_is_the_event_it_describes_and_equals_no_other() -> None:
    """It works on live columns, so comparing two by value would compare different moments."""
    assert Placement.__eq__ is object.__eq__
    assert Unschedulable.__eq__ is object.__eq__
