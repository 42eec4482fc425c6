"""What has gone while it was read."""

from mooring.engine.departures import Departures


def test_every_reader_is_told_what_has_gone_since_it_began_and_nothing_else() -> None:
    departures = Departures()
    departures.note("before")
    with departures.meanwhile() as first:
        departures.note("early")
        with departures.meanwhile() as second:
            departures.note("late")
        departures.note("after the second")
        told = {uid: (uid in first, uid in second) for uid in ("before", "early", "late")}
        assert "after the second" in first
        assert "after the second" not in second
    departures.note("after both")
    assert told == {"before": (False, False), "early": (True, False), "late": (True, True)}
    assert "after both" not in first
