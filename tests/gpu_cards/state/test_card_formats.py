"""The counts of cards follow the changes of the cluster and of the scheduler."""

import gc

import numpy as np
import pytest

from devices.objects import GPUSHARE as PREFIX
from devices.objects import gpu_node, share_pod, whole_pod
from mooring.gpu_cards.card_args import PRESETS
from mooring.gpu_cards.state.card_counts import Cards
from mooring.model.events import Kind
from mooring.model.pod import parse_pod
from mooring.state.cluster import ClusterState
from mooring.testing.builders import cluster, uid_of

FORMAT = PRESETS["gpushare"]
CARDS = "scheduling.mooring.dev/gpu-cards"


def owners(cards: Cards) -> dict[str, tuple[tuple[int, ...], ...]]:
    return {owner.key: owner.cards for owner in cards.owners(0)}


def assumed(state: ClusterState, on: int | None = None) -> None:
    """Assume the pod p on the first row; assign it the card `on`, unless this is None."""
    waiting = parse_pod(share_pod("p"))
    state.assume(waiting, 0)
    if on is not None:
        state.assign_cards(waiting, FORMAT, ((on,),))


def test_the_card_chosen_for_an_assumed_pod_counts_until_it_is_forgotten() -> None:
    state = cluster(gpu_node("n"))
    cards = state.track_cards(FORMAT)
    assumed(state, on=2)
    assert owners(cards) == {"default/p": ((2,),)}
    state.forget(parse_pod(share_pod("p")))
    assert owners(cards) == {}


def test_results_that_are_kept_for_a_node_are_computed_anew_when_cards_are_assigned() -> None:
    state = cluster(gpu_node("n"))
    kept = state.track_cards(FORMAT)
    assumed(state)
    position = state.nodes.changes.position
    state.assign_cards(parse_pod(share_pod("p")), FORMAT, ((2,),))
    assert owners(kept) == {"default/p": ((2,),)}
    assert state.nodes.changes.position > position


def test_what_the_annotation_of_a_pod_that_is_not_bound_says_does_not_count() -> None:
    state = cluster(gpu_node("n"))
    cards = state.track_cards(FORMAT)
    state.assume(parse_pod(share_pod("p", card=3)), 0)
    assert [owner.known for owner in cards.owners(0)] == [False]


def test_a_pod_that_is_seen_bound_before_its_annotations_keeps_the_chosen_card() -> None:
    state = cluster(gpu_node("n"))
    cards = state.track_cards(FORMAT)
    assumed(state, on=2)
    state.put(Kind.POD, uid_of("p"), parse_pod(share_pod("p", node="n")))
    assert owners(cards) == {"default/p": ((2,),)}
    assert state.devices.mismatches == 0


def test_a_device_plugin_that_hands_out_another_card_is_right_and_noticed_once() -> None:
    state = cluster(gpu_node("n"))
    cards = state.track_cards(FORMAT)
    assumed(state, on=2)
    assert owners(cards) == {"default/p": ((2,),)}
    position = state.nodes.changes.position
    for _ in range(2):
        state.put(Kind.POD, uid_of("p"), parse_pod(share_pod("p", node="n", card=1)))
    assert owners(cards) == {"default/p": ((1,),)}
    assert state.devices.mismatches == 1
    assert state.nodes.changes.since(position) is not None
    assert state.nodes.changes.position > position


@pytest.mark.parametrize("forgotten_first", [True, False])
def test_a_pod_that_an_earlier_binding_gave_another_card_counts_as_the_watch_shows_it(
    *, forgotten_first: bool
) -> None:
    """The later Binding fails with a conflict, and then the assumed pod is forgotten."""
    state = cluster(gpu_node("n"))
    cards = state.track_cards(FORMAT)
    assumed(state, on=2)
    seen = parse_pod(share_pod("p", node="n", card=1))
    if forgotten_first:
        state.forget(parse_pod(share_pod("p")))
        state.put(Kind.POD, uid_of("p"), seen)
    else:
        state.put(Kind.POD, uid_of("p"), seen)
        state.forget(parse_pod(share_pod("p")))
    assert owners(cards) == {"default/p": ((1,),)}
    assert cards.free(np.array([0]))[0, :4].tolist() == [16, 12, 16, 16]


def test_an_assumed_pod_keeps_its_card_when_the_watch_shows_it_with_other_labels() -> None:
    state = cluster(gpu_node("n"))
    cards = state.track_cards(FORMAT)
    assumed(state, on=2)
    seen = share_pod("p", node="n", labels={"new": "label"})
    state.put(Kind.POD, uid_of("p"), parse_pod(seen))
    assert owners(cards) == {"default/p": ((2,),)}


def test_it_is_noticed_of_a_pod_that_changes_in_other_ways_too() -> None:
    state = cluster(gpu_node("n"))
    cards = state.track_cards(FORMAT)
    assumed(state, on=2)
    seen = share_pod("p", node="n", card=1, labels={"new": "label"})
    state.put(Kind.POD, uid_of("p"), parse_pod(seen))
    assert owners(cards) == {"default/p": ((1,),)}
    assert state.devices.mismatches == 1


def test_a_pod_keeps_its_card_through_a_trial() -> None:
    state = cluster(gpu_node("n"))
    cards = state.track_cards(FORMAT)
    assumed(state, on=2)
    with state.trial() as trial:
        trial.remove(uid_of("p"))
        assert owners(cards) == {}
    assert owners(cards) == {"default/p": ((2,),)}


def test_books_that_no_plugin_reads_are_not_kept() -> None:
    state = cluster(gpu_node("n"))
    cards = state.track_cards(FORMAT)
    assert state.track_cards(FORMAT) is cards
    del cards
    gc.collect()
    state.put(Kind.POD, uid_of("p"), parse_pod(share_pod("p", node="n")))
    assert owners(state.track_cards(FORMAT)).keys() == {"default/p"}


def test_a_node_that_goes_takes_its_cards_along() -> None:
    state = cluster(gpu_node("n"), share_pod("p", node="n", card=0))
    cards = state.track_cards(FORMAT)
    state.delete(Kind.NODE, "n")
    assert (cards.free(np.array([0])) == -1).all()
    assert not len(cards.known(0))


@pytest.mark.parametrize(
    ("annotations", "cards"),
    [
        ({f"{PREFIX}_IDX": "3"}, {0, 1}),
        ({f"{PREFIX}_IDX": "3", CARDS: "2,3"}, {2, 3}),
        ({CARDS: "3"}, {0, 1}),
        ({CARDS: "1,2,3"}, {0, 1}),
        ({CARDS: "1;2"}, {0, 1}),
    ],
)
def test_a_pod_cannot_make_its_whole_cards_look_free_by_naming_others(
    annotations: dict[str, str], cards: set[int]
) -> None:
    """An annotation that contradicts the request is ignored."""
    state = cluster(gpu_node("n"), whole_pod("p", 2, annotations=annotations, node="n"))
    books = state.track_cards(FORMAT)
    free = int(books.free_cards(np.array([0]))[0])
    assert {card for card in range(4) if not free >> card & 1} == cards
