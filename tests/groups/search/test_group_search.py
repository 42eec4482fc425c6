"""A search for a group's nodes that is cancelled in a pause."""

from deciding import Deciding
from group_searching import search_for
from mooring.pausing import Work
from mooring.testing.builders import node, pod


def test_a_search_that_is_cancelled_in_a_pause_leaves_nothing() -> None:
    deciding = Deciding(node("a"), node("b"))
    members = [pod(f"x{i}", cpu="1", ports=(80,)) for i in range(2)]
    with Work(search_for(deciding, members).place) as work:
        assert not work.advance()
        assert not work.advance()
    assert len(deciding.state.pods) == 0
