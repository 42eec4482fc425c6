"""The questions preemption asks."""

from deciding import Deciding
from mooring.engine.whatif import LiveWhatIf
from mooring.testing.builders import node, pod


def test_requests_alone_can_be_counted() -> None:
    deciding = Deciding(node("a"))
    assert LiveWhatIf(*deciding.search(pod("new", cpu="1"))).needs == {"cpu": 1000}


def test_where_another_filter_depends_on_pods_counting_is_not_enough() -> None:
    deciding = Deciding(node("a"))
    assert LiveWhatIf(*deciding.search(pod("new", cpu="1", ports=[80]))).needs is None


def test_a_row_refuses_for_the_first_reason_as_things_stand() -> None:
    deciding = Deciding(node("a", cpu="1"), pod("there", cpu="1", node="a"))
    what_if = LiveWhatIf(*deciding.search(pod("new", cpu="1")))
    assert what_if.refusal(0) == ("Insufficient cpu",)
    with what_if.trial() as trial:
        trial.remove("default/there")
        assert what_if.refusal(0) == ()
    assert what_if.refusal(0) == ("Insufficient cpu",)


def test_pods_nominated_to_the_row_must_fit_beside() -> None:
    deciding = Deciding(node("a", cpu="1"))
    deciding.nominate(pod("hoping", cpu="1", priority=5), "a")
    assert LiveWhatIf(*deciding.search(pod("low", cpu="1"))).refusal(0) == ("Insufficient cpu",)
    assert LiveWhatIf(*deciding.search(pod("high", cpu="1", priority=6))).refusal(0) == ()
