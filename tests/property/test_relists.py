"""What happens between the beginning and the end of a list counts as if it came after it."""

from collections import Counter
from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from mooring.model.events import Kind
from mooring.model.node import parse_node
from mooring.model.pod import Pod, parse_pod
from mooring.state.cluster import ClusterState
from mooring.testing.builders import node, pod
from relists import replace_all

NODES = ("n0", "n1", "n2")
UIDS = tuple(f"uid-{number}" for number in range(6))
LATER = tuple(f"later-{number}" for number in range(4))
"""The uids of pods that come in while the list is applied."""

Amounts = Counter[tuple[str, str]]
"""What is requested, by node and resource."""


@dataclass(frozen=True)
class Place:
    """Where a pod is, and what it takes there: cores and GiB."""

    node: str
    cpu: int
    memory: int

    def pod(self, uid: str, *, bound: bool = True) -> Pod:
        """Return the pod as the API server shows it."""
        raw = pod(
            f"pod-{int(uid[-1]) % 3}",  # of several uids, as names return
            cpu=str(self.cpu),
            memory=f"{self.memory}Gi",
            node=self.node if bound else None,
        )
        raw["metadata"]["uid"] = uid
        return parse_pod(raw)


places = st.builds(Place, st.sampled_from(NODES), st.integers(1, 3), st.integers(1, 3))
worlds = st.dictionaries(st.sampled_from(UIDS), places)
listed = st.dictionaries(st.sampled_from((*UIDS, *LATER)), places)
assumptions = st.dictionaries(st.sampled_from(UIDS), places, max_size=3)
events = st.lists(
    st.tuples(
        st.sampled_from(("assume", "forget", "confirm")),
        st.sampled_from((*UIDS, *LATER)),
        places,
    ),
    max_size=12,
)


class Cluster:
    """A state, and what the scheduler does with it."""

    def __init__(self, old: Mapping[str, Place], assumed: Mapping[str, Place]) -> None:
        self.state = ClusterState()
        for name in NODES:
            self.state.put(Kind.NODE, name, parse_node(node(name, cpu="64", memory="64Gi")))
        for uid, place in old.items():
            self.put(uid, place)
        for uid, place in assumed.items():
            self.assume(uid, place)

    def put(self, uid: str, place: Place) -> None:
        shown = place.pod(uid)
        self.state.put(Kind.POD, shown.uid, shown)

    def assume(self, uid: str, place: Place) -> None:
        """Place the pod, unless it is on a node."""
        waiting = place.pod(uid, bound=False)
        if uid not in self.placed():
            self.state.assume(waiting, self.state.nodes.row_of[place.node])

    def happens(self, what: str, uid: str, place: Place, shown: Container[str]) -> None:
        """Let something happen to a pod: what the list shows of it is its newest state."""
        found, assumed = self.placed().get(uid, (None, False))
        if what == "assume" and uid in LATER:
            self.assume(uid, place)
        elif found is not None and assumed and uid not in shown:
            if what == "confirm":  # a GET that is later than the list shows it bound
                self.state.put(Kind.POD, found.uid, found)
            elif what == "forget" and uid in LATER:
                self.state.forget(found)

    def placed(self) -> dict[str, tuple[Pod, bool]]:
        """Return the pods that are on a node, and whether each is assumed."""
        return {found.pod.uid: (found.pod, found.assumed) for found in self.state.pods}

    def requested(self) -> Amounts:
        table = self.state.nodes
        return Amounts(
            {
                (name, resource): int(table.requested.at(resource, table.row_of[name]))
                for name in NODES
                for resource in ("cpu", "memory")
            }
        )

    def books(self) -> tuple[Any, ...]:
        """Return everything that must be equal in the end."""
        columns, names = self.state.pod_columns, self.state.nodes.names
        rows = {
            (found.uid, names[row])
            for found, row in zip(columns.pods, columns.rows.tolist(), strict=True)
            if found is not None
        }
        where = {uid: (found.node_name, assumed) for uid, (found, assumed) in self.placed().items()}
        return self.requested(), where, rows


@settings(max_examples=150, deadline=None)
@given(old=worlds, new=listed, assumed=assumptions, meanwhile=events)
def test_what_happens_while_a_list_is_read_counts_as_if_it_came_after_the_list(
    old: dict[str, Place],
    new: dict[str, Place],
    assumed: dict[str, Place],
    meanwhile: list[tuple[str, str, Place]],
) -> None:
    listed_at_once, read_slowly = Cluster(old, assumed), Cluster(old, assumed)
    shown: dict[str, Pod] = {p.uid: p for p in (place.pod(uid) for uid, place in new.items())}
    replace_all(listed_at_once.state, Kind.POD, shown)
    known = list(read_slowly.state.keys(Kind.POD))
    for what, uid, place in meanwhile:
        listed_at_once.happens(what, uid, place, new)
        read_slowly.happens(what, uid, place, new)
    read_slowly.state.replacing(Kind.POD, shown, known)
    assert read_slowly.books() == listed_at_once.books()
