"""Random mixes of shares and whole cards, placed by the engine and checked by adding up."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, count
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from deciding import Deciding
from devices.objects import gpu_node, share_pod, whole_pod
from mooring.framework.plugin_failures import PluginFailed
from mooring.gpu_cards.model.cards import link_rank
from mooring.model.events import Kind
from mooring.model.pod import parse_pod
from mooring.scheduling.assumed import assume_and_reserve
from mooring.scheduling.outcome import FitError, Outcome, ScheduleResult
from mooring.testing.builders import node, pod, uid_of

PLUGINS = {"multiPoint": {"enabled": [{"name": "GPUShare"}, {"name": "GPUTopology"}]}}
MEMORY = 16

Wanted = tuple[str, int]
"""A share of so much memory, or so many whole cards."""


@st.composite
def drawn_nodes(draw: st.DrawFn) -> list[tuple[int, dict[tuple[int, int], str]]]:
    """Return nodes as their number of cards and the codes of the links between them."""
    nodes = []
    for _ in range(draw(st.integers(1, 3))):
        count = draw(st.integers(1, 6))
        codes = st.sampled_from(("SYS", "NODE", "PIX", "NV2", "NV4"))
        nodes.append((count, {pair: draw(codes) for pair in combinations(range(count), 2)}))
    return nodes


def raw_node(index: int, count: int, links: dict[tuple[int, int], str]) -> dict[str, Any]:
    matrix = [
        ["X" if i == j else links[min(i, j), max(i, j)] for j in range(count)] for i in range(count)
    ]
    return gpu_node(f"n{index}", count, MEMORY, links=matrix)


def raw_pod(index: int, wanted: Wanted) -> dict[str, Any]:
    kind, amount = wanted
    make = share_pod if kind == "share" else whole_pod
    return make(f"p{index}", amount)


def quality(cards: tuple[int, ...], links: dict[tuple[int, int], str]) -> tuple[int, int]:
    ranks = [link_rank(links[pair]) for pair in combinations(sorted(cards), 2)]
    return (min(ranks, default=0), sum(ranks))


@settings(max_examples=120, deadline=None)
@given(
    nodes=drawn_nodes(),
    wanted=st.lists(
        st.one_of(
            st.tuples(st.just("share"), st.integers(1, MEMORY)),
            st.tuples(st.just("whole"), st.integers(1, 4)),
        ),
        max_size=20,
    ),
    gone=st.sets(st.integers(0, 19)),
)
def test_no_card_is_overcommitted_and_no_set_is_worse_connected_than_the_best_free_one(
    nodes: list[tuple[int, dict[tuple[int, int], str]]], wanted: list[Wanted], gone: set[int]
) -> None:
    deciding = Deciding(
        *(raw_node(i, count, links) for i, (count, links) in enumerate(nodes)), plugins=PLUGINS
    )
    used = {f"n{i}": [0] * count for i, (count, _) in enumerate(nodes)}
    links_of = {f"n{i}": links for i, (_, links) in enumerate(nodes)}
    taken: dict[int, tuple[str, tuple[int, ...], int]] = {}
    for index, (kind, amount) in enumerate(wanted):
        raw = raw_pod(index, (kind, amount))
        free = {name: [c for c, u in enumerate(cards) if not u] for name, cards in used.items()}
        outcome = deciding.outcome(raw)
        fits = any(
            len(free[name]) >= amount if kind == "whole" else min(cards) + amount <= MEMORY
            for name, cards in used.items()
        )
        assert isinstance(outcome, ScheduleResult) == fits
        if isinstance(outcome, ScheduleResult):
            pod = parse_pod(raw)
            assume_and_reserve(pod, outcome.row, deciding.pipeline, deciding.state).pop_all()
            placed = deciding.state.pods.get(pod.uid)
            assert placed is not None
            assert placed.cards is not None
            ((*cards,),) = placed.cards[1]
            if kind == "whole":
                assert set(cards) <= set(free[outcome.node])
                links = links_of[outcome.node]
                best = max(
                    quality(each, links) for each in combinations(free[outcome.node], amount)
                )
                assert quality(tuple(cards), links) == best
            for card in cards:
                used[outcome.node][card] += MEMORY if kind == "whole" else amount
                assert used[outcome.node][card] <= MEMORY
            taken[index] = (outcome.node, tuple(cards), MEMORY if kind == "whole" else amount)
        if index in gone and index in taken:
            node, given_back, each = taken[index]
            deciding.state.forget(parse_pod(raw))
            for card in given_back:
                used[node][card] -= each


def decided(
    deciding: Deciding, raw: dict[str, Any], between: Callable[[], None]
) -> tuple[Outcome, int]:
    """Return the decision about the pod, and after how many attempts that were refused."""
    for refused in count():
        try:
            return deciding.outcome(raw), refused
        except PluginFailed:
            between()
    raise AssertionError


def reserved(deciding: Deciding, raw: dict[str, Any], outcome: ScheduleResult) -> tuple[int, ...]:
    """Assume the pod where the decision puts it; return the cards that it gets."""
    parsed = parse_pod(raw)
    assume_and_reserve(parsed, outcome.row, deciding.pipeline, deciding.state).pop_all()
    placed = deciding.state.pods.get(parsed.uid)
    assert placed is not None
    assert placed.cards is not None
    return placed.cards[1][0]


@settings(max_examples=150, deadline=None)
@given(
    counts=st.lists(st.integers(1, 3), min_size=1, max_size=5),
    there=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2), st.integers(1, MEMORY))),
    wanted=st.lists(
        st.tuples(st.sampled_from(("share", "whole")), st.integers(1, 3)), min_size=1, max_size=8
    ),
    meanwhile=st.lists(
        st.tuples(
            st.sampled_from(("gone", "bound")),
            st.integers(0, 4),
            st.integers(0, 2),
            st.integers(1, MEMORY),
        ),
        max_size=8,
    ),
)
def test_no_card_is_given_twice_by_the_first_decisions_while_the_cards_of_nodes_are_counted(
    counts: list[int],
    there: list[tuple[int, int, int]],
    wanted: list[Wanted],
    meanwhile: list[tuple[str, int, int, int]],
) -> None:
    """Each attempt counts one node, and what the watch shows comes in between."""
    used = {(n, card): dict[str, int]() for n, count in enumerate(counts) for card in range(count)}

    def bound(name: str, node: int, card: int, memory: int) -> dict[str, Any] | None:
        """Return the pod that another scheduler bound to the card, if it fits there."""
        on = used.get((node, card))
        if on is None or sum(on.values()) + memory > MEMORY:
            return None
        on[name] = memory
        return share_pod(name, memory, node=f"n{node}", card=card)

    def something_happens() -> None:
        what, node, card, memory = meanwhile.pop() if meanwhile else ("", 0, 0, 0)
        if what == "gone" and (on := used.get((node, card))):
            deciding.state.delete(Kind.POD, uid_of(on.popitem()[0]))
        elif what == "bound" and (one := bound(f"m{len(meanwhile)}", node, card, memory)):
            parsed = parse_pod(one)
            deciding.state.put(Kind.POD, parsed.uid, parsed)

    before = [bound(f"b{i}", *each) for i, each in enumerate(there)]
    nodes = [gpu_node(f"n{i}", count, MEMORY) for i, count in enumerate(counts)]
    deciding = Deciding(*nodes, *filter(None, before), plugins=PLUGINS, most_per_attempt=1)
    refused = 0
    for index, (kind, amount) in enumerate(wanted):
        raw = raw_pod(index, (kind, amount))
        outcome, again = decided(deciding, raw, something_happens)
        refused += again
        assert refused == len(counts) - 1
        left = {place: MEMORY - sum(on.values()) for place, on in used.items()}
        whole = Counter(node for (node, _), memory in left.items() if memory == MEMORY)
        fits = max(left.values()) if kind == "share" else max(whole.values(), default=0)
        assert isinstance(outcome, ScheduleResult) == (fits >= amount)
        if isinstance(outcome, ScheduleResult):
            for card in reserved(deciding, raw, outcome):
                on = used[int(outcome.node[1:]), card]
                on[f"p{index}"] = amount if kind == "share" else MEMORY
                assert sum(on.values()) <= MEMORY


TOTAL = 20_000
"""MiB of a card; in gpushare's units 20."""


@dataclass(frozen=True)
class Piece:
    """What a container wants of each of so many cards: percent of its memory and of its compute."""

    cards: int
    percent: int
    cores: int = 0

    @property
    def memory(self) -> int:
        return TOTAL * self.percent // 100

    @property
    def is_whole(self) -> bool:
        return self.percent == 100


def pod_of(preset: str, name: str, pieces: tuple[Piece, ...]) -> dict[str, Any]:
    """Return the pod as users of the project write it."""
    first = pieces[0]
    amounts: list[dict[str, Any]] = []
    annotations: dict[str, str] = {}
    for piece in pieces:
        if piece.is_whole:
            amounts.append({"nvidia.com/gpu": piece.cards})
        elif preset == "gpushare":
            memory = {"aliyun.com/gpu-mem": piece.memory // 1000}
            amounts.append({**memory, "aliyun.com/gpu-core.percentage": piece.cores})
        elif preset == "hami":
            memory = (
                {"nvidia.com/gpumem": piece.memory}
                if piece.percent % 20
                else {"nvidia.com/gpumem-percentage": piece.percent}
            )
            cards = {"nvidia.com/gpu": piece.cards, "nvidia.com/gpucores": piece.cores}
            amounts.append({**memory, **cards})
    if preset == "kai" and not first.is_whole:
        annotations = {
            "gpu-fraction": f"0.{first.percent:02}",
            "gpu-fraction-num-devices": str(first.cards),
        }
    raw = pod(name, annotations=annotations, requests=amounts[0] if amounts else {})
    for index, other in enumerate(amounts[1:]):
        quantities = {resource: str(amount) for resource, amount in other.items()}
        raw["spec"]["containers"].append(
            {"name": f"c{index}", "image": "c", "resources": {"requests": quantities}}
        )
    return raw


def node_of(preset: str, name: str, cards: int, unhealthy: str) -> dict[str, Any]:
    labels = {"nvidia.com/gpu.count": str(cards), "nvidia.com/gpu.memory": str(TOTAL)}
    shared = {"aliyun.com/gpu-mem": 20 * cards, "aliyun.com/gpu-count": cards}
    return node(
        name,
        cpu="64",
        labels=labels if preset != "gpushare" else {},
        resources={"nvidia.com/gpu": 10 * cards, **(shared if preset == "gpushare" else {})},
        annotations={"scheduling.mooring.dev/gpu-unhealthy": unhealthy} if unhealthy else {},
    )


def pieces_of(preset: str) -> st.SearchStrategy[tuple[Piece, ...]]:
    percents = st.sampled_from((25, 40, 50, 60, 75))
    cores = st.sampled_from((0, 30, 60)) if preset != "kai" else st.just(0)
    cards = st.integers(1, 2) if preset != "gpushare" else st.just(1)
    containers = 2 if preset == "hami" else 1
    shares = st.lists(st.builds(Piece, cards, percents, cores), min_size=1, max_size=containers)
    whole = st.builds(Piece, st.integers(1, 3), st.just(100))
    return st.one_of(shares, st.lists(whole, min_size=1, max_size=1)).map(tuple)


PIECES = {
    preset: st.lists(pieces_of(preset), max_size=16) for preset in ("gpushare", "hami", "kai")
}
PRESETS = st.sampled_from(tuple(PIECES))
CARDS = st.integers(1, 4).flatmap(
    lambda count: st.tuples(st.just(count), st.sets(st.integers(0, count - 1), max_size=1))
)
NODES_OF_CARDS = st.lists(CARDS, min_size=1, max_size=3)


@st.composite
def mixes(draw: st.DrawFn) -> tuple[str, list[tuple[int, set[int]]], list[tuple[Piece, ...]]]:
    """Draw a preset, each node's number of cards and unhealthy ones, and what pods want."""
    preset = draw(PRESETS)
    return preset, draw(NODES_OF_CARDS), draw(PIECES[preset])


def fits(free: Mapping[tuple[str, int], tuple[int, int]], piece: Piece) -> bool:
    """Return whether a node has enough cards with space for the piece."""
    cores = 100 if piece.is_whole else piece.cores
    fitting = Counter(
        name for (name, _), left in free.items() if left >= (piece.percent, 0) and left[1] >= cores
    )
    return any(count >= piece.cards for count in fitting.values())


def take(
    free: dict[tuple[str, int], tuple[int, int]], on: str, piece: Piece, cards: Sequence[int]
) -> None:
    """Take the piece from what is free of these cards, which must be distinct and have it."""
    assert len(set(cards)) == len(cards) == piece.cards
    for card in cards:
        memory, cores = free[on, card]
        taken = 100 if piece.is_whole else piece.cores
        assert memory >= piece.percent
        assert cores >= taken
        free[on, card] = (memory - piece.percent, cores - taken)


@settings(max_examples=150, deadline=None)
@given(mix=mixes(), choice=st.sampled_from(("Binpack", "Spread", "FirstFit", "LeastFragmentation")))
def test_by_every_preset_each_piece_gets_distinct_healthy_cards_with_space_for_it(
    mix: tuple[str, list[tuple[int, set[int]]], list[tuple[Piece, ...]]], choice: str
) -> None:
    preset, sizes, wanted = mix
    shares = [f"nvidia.com/{name}" for name in ("gpumem", "gpumem-percentage", "gpucores")]
    ignored = {"ignoredResources": [*shares, "aliyun.com/gpu-core.percentage"]}
    deciding = Deciding(
        *(
            node_of(preset, f"n{i}", count, ",".join(map(str, unhealthy)))
            for i, (count, unhealthy) in enumerate(sizes)
        ),
        plugins=PLUGINS,
        pluginConfig=[
            {"name": "GPUShare", "args": {"preset": preset, "cards": choice}},
            {"name": "GPUTopology", "args": {"preset": preset}},
            {"name": "NodeResourcesFit", "args": ignored},
        ],
    )
    free = {
        (f"n{i}", card): (100, 100)
        for i, (count, unhealthy) in enumerate(sizes)
        for card in {*range(count)} - unhealthy
    }
    for index, pieces in enumerate(wanted):
        raw = pod_of(preset, f"p{index}", pieces)
        outcome = deciding.outcome(raw)
        if len(pieces) == 1:
            assert isinstance(outcome, ScheduleResult) == fits(free, pieces[0])
        if not isinstance(outcome, ScheduleResult):
            continue
        parsed = parse_pod(raw)
        assume_and_reserve(parsed, outcome.row, deciding.pipeline, deciding.state).pop_all()
        placed = deciding.state.pods.get(parsed.uid)
        assert placed is not None
        assert placed.cards is not None
        for piece, cards in zip(pieces, placed.cards[1], strict=True):
            take(free, outcome.node, piece, cards)


def test_a_share_preempts_the_pod_that_has_the_card_and_no_other() -> None:
    """Which card a victim frees counts, not only how much of the node."""
    deciding = Deciding(
        gpu_node("n", 2, MEMORY),
        share_pod("small", 2, node="n", card=0),
        share_pod("large", 12, node="n", card=1),
        share_pod("beside", 12, node="n", card=0, priority=10),
        plugins=PLUGINS,
    )
    outcome = deciding.outcome(share_pod("urgent", 8, priority=5))
    assert isinstance(outcome, FitError)
    assert outcome.nomination is not None
    assert [victim.name for victim in outcome.nomination.victims] == ["large"]


def test_a_pod_that_preemption_spares_stays_on_its_card() -> None:
    """Both pods would fit on one card, but they are on two."""
    deciding = Deciding(
        gpu_node("n", 2, MEMORY),
        share_pod("a", 4, node="n", card=0),
        share_pod("b", 4, node="n", card=1),
        plugins=PLUGINS,
    )
    outcome = deciding.outcome(share_pod("urgent", MEMORY, priority=5))
    assert isinstance(outcome, FitError)
    assert outcome.nomination is not None
    assert len(outcome.nomination.victims) == 1


def test_two_nominated_pods_are_not_promised_the_same_card() -> None:
    held = share_pod("held", 12, node="n", card=0)
    deciding = Deciding(gpu_node("n", 1, MEMORY), held, plugins=PLUGINS)
    deciding.nominate(share_pod("first", 4, priority=5), "n")
    assert isinstance(deciding.outcome(share_pod("second", 4)), FitError)
    assert isinstance(deciding.outcome(share_pod("first", 4, priority=5)), ScheduleResult)
