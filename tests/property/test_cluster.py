"""ClusterState after random events is what a slow model in plain Python says it is."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from mooring.model.events import Action, ClusterEvent, Kind
from mooring.model.node import ZONE, Node, parse_node
from mooring.model.pod import Pod, Uid, parse_pod
from mooring.model.pod_spec import HostPort
from mooring.state.cluster import ClusterState
from mooring.state.columns import IntArray, ResourceColumns
from mooring.state.labels import ABSENT
from mooring.testing.builders import node, pod
from relists import replace_all

NODES = tuple(f"n{i}" for i in range(5))
PODS = tuple(f"p{i}" for i in range(6))
GPU = "example.com/gpu"
IMAGES = {"a:v1": 10, "b:v1": 20}

node_names = st.sampled_from(NODES)
pod_names = st.sampled_from(PODS)
features = st.fixed_dictionaries(
    {
        "cpu": st.sampled_from((None, 0, 250, 1000)),
        "memory": st.sampled_from((None, 64)),
        "gpus": st.sampled_from((0, 0, 1)),
        "ports": st.sets(
            st.tuples(
                st.sampled_from(("TCP", "UDP")),
                st.sampled_from((80, 81)),
                st.sampled_from(("0.0.0.0", "10.0.0.1")),
            ),
            max_size=2,
        ),
        "app": st.sampled_from(("a", "b")),
    }
)


@dataclass(frozen=True)
class Held:
    """A pod on a node: cpu in millicores, memory in MiB; None is no request."""

    uid: Uid
    name: str
    node: str
    cpu: int | None
    memory: int | None
    gpus: int
    ports: frozenset[tuple[str, int, str]]
    app: str
    assumed: bool = False
    announced: bool = True

    def parsed(self, *, placed: bool = True, **fields: Any) -> Pod:
        """Return the pod as the API server shows it."""
        raw = pod(
            self.name,
            cpu=None if self.cpu is None else f"{self.cpu}m",
            memory=None if self.memory is None else f"{self.memory}Mi",
            requests={GPU: self.gpus} if self.gpus else None,
            labels={"app": self.app},
            node=self.node if placed else None,
            ports=[
                {"containerPort": 1, "hostPort": port, "protocol": protocol, "hostIP": address}
                for protocol, port, address in sorted(self.ports)
            ],
            **fields,
        )
        raw["metadata"]["uid"] = self.uid
        return parse_pod(raw)


@dataclass
class Model:
    """Nodes by name, pods by uid, and what anybody who listens believes is placed."""

    nodes: dict[str, Node] = field(default_factory=dict)
    pods: dict[Uid, Held] = field(default_factory=dict)
    heard: dict[Uid, str | None] = field(default_factory=dict)
    nominated: dict[Uid, tuple[str, str]] = field(default_factory=dict)
    """The names of nominated pods and of their nodes."""

    def on(self, name: str) -> list[Held]:
        return [held for held in self.pods.values() if held.node == name]


class Cluster(RuleBasedStateMachine):
    """Events in any order; after each, every column is what adding up the model gives."""

    def __init__(self) -> None:
        super().__init__()
        self.state = ClusterState()
        self.model = Model()
        self.state.on_events(self.hear)
        self.delivered = 0
        self.uids = 0
        self.zone = self.state.nodes.label(ZONE)

    def hear(self, changes: Iterable[ClusterEvent]) -> None:
        """Note which pod is on which node, as the events say."""
        self.delivered += 1
        for change in changes:
            if change.kind is not Kind.POD:
                continue
            before, after = change.before, change.after
            if change.action is Action.DELETE:
                assert isinstance(before, Pod)
                self.model.heard.pop(before.uid, None)
            else:
                assert isinstance(after, Pod)
                self.model.heard[after.uid] = after.node_name

    def held(self, name: str, on: str, given: Mapping[str, Any], *, assumed: bool = False) -> Held:
        self.uids += 1
        return Held(
            uid=Uid(f"uid-{self.uids}"),
            name=name,
            node=on,
            cpu=given["cpu"],
            memory=given["memory"],
            gpus=given["gpus"],
            ports=frozenset(given["ports"]),
            app=given["app"],
            assumed=assumed,
            announced=not assumed,
        )

    @rule(
        name=node_names,
        cpu=st.sampled_from(("0", "1", "2500m")),
        gpus=st.sampled_from((None, 4)),
        slots=st.integers(0, 9),
        zone=st.sampled_from((None, "a", "b")),
        cordoned=st.booleans(),
        images=st.sets(st.sampled_from(tuple(IMAGES))),
        taints=st.sampled_from(((), ("t:NoSchedule",))),
    )
    def node_seen(
        self,
        name: str,
        cpu: str,
        gpus: int | None,
        slots: int,
        zone: str | None,
        *,
        cordoned: bool,
        images: set[str],
        taints: tuple[str, ...],
    ) -> None:
        seen = parse_node(
            node(
                name,
                cpu=cpu,
                pods=slots,
                resources={GPU: gpus} if gpus else None,
                zone=zone,
                unschedulable=cordoned,
                images={image: IMAGES[image] for image in images},
                taints=taints,
            )
        )
        self.state.put(Kind.NODE, name, seen)
        self.model.nodes[name] = seen

    @rule(name=node_names)
    def node_gone(self, name: str) -> None:
        before = self.delivered
        self.state.delete(Kind.NODE, name)
        assert (self.delivered > before) == (name in self.model.nodes)
        self.drop_node(name)

    def drop_node(self, name: str) -> None:
        self.model.nodes.pop(name, None)
        for uid, (_, nominated) in tuple(self.model.nominated.items()):
            if nominated == name:
                del self.model.nominated[uid]

    @rule(kept=st.sets(node_names))
    def nodes_relisted(self, kept: set[str]) -> None:
        values = {name: self.model.nodes[name] for name in kept & self.model.nodes.keys()}
        replace_all(self.state, Kind.NODE, values)
        for name in self.model.nodes.keys() - kept:
            self.drop_node(name)

    @rule(name=pod_names, on=node_names, given=features)
    def another_pod_seen_on_a_node(self, name: str, on: str, given: Mapping[str, Any]) -> None:
        """Show a pod that somebody else bound; one of its name may still be known, on any node."""
        held = self.held(name, on, given)
        self.state.put(Kind.POD, held.uid, held.parsed())
        self.model.pods[held.uid] = held

    @precondition(lambda self: self.model.pods)
    @rule(data=st.data(), given=features)
    def placed_pod_changed(self, data: st.DataObject, given: Mapping[str, Any]) -> None:
        """Change it in place: relabelled, resized, or confirmed where it was assumed."""
        known = self.one_of_the_pods(data)
        held = replace(self.held(known.name, known.node, given), uid=known.uid)
        self.state.put(Kind.POD, held.uid, held.parsed())
        self.model.pods[held.uid] = held

    @precondition(lambda self: any(held.assumed for held in self.model.pods.values()))
    @rule(data=st.data(), on=node_names)
    def assumption_confirmed(self, data: st.DataObject, on: str) -> None:
        """Show in the watch that the pod is bound, perhaps by somebody else and elsewhere."""
        known = self.one_of_the_pods(data, assumed=True)
        held = replace(known, node=on, assumed=False, announced=True)
        self.state.put(Kind.POD, held.uid, held.parsed())
        self.model.pods[held.uid] = held

    @precondition(lambda self: self.model.pods)
    @rule(data=st.data())
    def pod_gone(self, data: st.DataObject) -> None:
        known = self.one_of_the_pods(data)
        self.state.delete(Kind.POD, known.uid)
        del self.model.pods[known.uid]

    @rule(name=pod_names)
    def pod_gone_that_was_never_placed(self, name: str) -> None:
        """Delete a pod that was never placed; it may have the name of one that is."""
        before = self.delivered
        self.state.delete(Kind.POD, f"another {name}")
        assert self.delivered == before

    @precondition(lambda self: self.model.pods)
    @rule(data=st.data())
    def pod_finished(self, data: st.DataObject) -> None:
        known = self.one_of_the_pods(data)
        self.state.put(Kind.POD, known.uid, known.parsed(phase="Succeeded"))
        del self.model.pods[known.uid]

    @rule(data=st.data())
    def pods_relisted(self, data: st.DataObject) -> None:
        """List the pods again: what is missing is gone, except assumed pods.

        The list may be older than an assumed pod. It may still have that pod's predecessor, which
        had the same name.
        """
        placed = sorted(uid for uid, held in self.model.pods.items() if not held.assumed)
        kept = data.draw(st.sets(st.sampled_from(placed))) if placed else set()
        held = {uid: self.model.pods[uid] for uid in sorted(kept)}
        replace_all(self.state, Kind.POD, {uid: h.parsed() for uid, h in held.items()})
        assumed = {uid: h for uid, h in self.model.pods.items() if h.assumed}
        self.model.pods = held | assumed

    @precondition(lambda self: self.model.nodes)
    @rule(name=pod_names, given=features, data=st.data())
    def pod_assumed(self, name: str, given: Mapping[str, Any], data: st.DataObject) -> None:
        """Assume a pod, perhaps before the watch shows the end of an earlier one of its name."""
        on = data.draw(st.sampled_from(sorted(self.model.nodes)))
        nominated = sorted(self.model.nominated)
        uid = data.draw(st.sampled_from((None, *nominated)))
        held = self.held(name, on, given, assumed=True)
        if uid is not None:
            held = replace(held, uid=uid, name=self.model.nominated.pop(uid)[0])
        self.state.assume(held.parsed(placed=False), self.state.nodes.row_of[on])
        self.model.pods[held.uid] = held

    @precondition(lambda self: self.model.pods)
    @rule(data=st.data())
    def assumption_announced(self, data: st.DataObject) -> None:
        known = self.one_of_the_pods(data)
        self.state.announce(known.parsed(placed=False))
        self.model.pods[known.uid] = replace(known, announced=True)

    @precondition(lambda self: self.model.pods)
    @rule(data=st.data(), stale=st.booleans())
    def assumption_forgotten(self, data: st.DataObject, *, stale: bool) -> None:
        known = self.one_of_the_pods(data)
        asked = replace(known, uid=Uid("uid-of-a-predecessor")) if stale else known
        self.state.forget(asked.parsed(placed=False))
        if known.assumed and not stale:
            del self.model.pods[known.uid]

    @precondition(lambda self: self.model.pods)
    @rule(data=st.data(), deadline=st.integers(0, 9))
    def binding_went_through(self, data: st.DataObject, deadline: int) -> None:
        known = self.one_of_the_pods(data)
        self.state.expect_confirmation(known.parsed(), float(deadline))
        overdue = {pod.uid for pod in self.state.overdue(float(deadline))}
        assert (known.uid in overdue) == known.assumed

    @rule(name=pod_names, on=node_names, given=features)
    def room_is_made(self, name: str, on: str, given: Mapping[str, Any]) -> None:
        held = self.held(name, on, given)
        self.state.nominate(held.parsed(placed=False), on)
        if on in self.model.nodes:
            self.model.nominated[held.uid] = name, on

    @precondition(lambda self: self.model.nominated)
    @rule(data=st.data())
    def room_is_wanted_no_more(self, data: st.DataObject) -> None:
        uid, before = data.draw(st.sampled_from(sorted(self.model.nominated))), self.delivered
        self.state.withdraw(uid)
        assert self.delivered == before + 1
        del self.model.nominated[uid]

    def one_of_the_pods(self, data: st.DataObject, *, assumed: bool = False) -> Held:
        """Return a placed pod, or an assumed one."""
        uids = sorted(uid for uid, h in self.model.pods.items() if h.assumed or not assumed)
        return self.model.pods[data.draw(st.sampled_from(uids))]

    @precondition(lambda self: self.model.nodes)
    @rule(given=features, data=st.data())
    def dry_run(self, given: Mapping[str, Any], data: st.DataObject) -> None:
        """Let pods come and go inside a trial; the invariants hold again after it."""
        on = data.draw(st.sampled_from(sorted(self.model.nodes)))
        row = self.state.nodes.row_of[on]
        known = sorted(self.model.pods)
        removed = data.draw(st.sets(st.sampled_from(known))) if known else set()
        with self.state.trial() as trial:
            for uid in sorted(removed):
                trial.remove(uid)
            trial.add(self.held("newcomer", on, given).parsed(placed=False), row)
            left = [
                uid for uid, h in self.model.pods.items() if h.node == on and uid not in removed
            ]
            assert self.state.nodes.pod_count.data[row] == len(left) + 1

    @invariant()
    def a_node_has_a_row_while_it_exists_and_the_last_row_is_in_use(self) -> None:
        table, unknown = self.state.nodes, self.state.nodes.unknown_row
        assert table.row_of.keys() == self.model.nodes.keys()
        assert all(table.names[row] == name for name, row in table.row_of.items())
        free = set(range(table.row_count)) - set(table.row_of.values())
        assert all(table.names[row] == "" and table.nodes[row] is None for row in free)
        assert np.flatnonzero(table.present.data).tolist() == sorted(table.row_of.values())
        assert table.row_count == 1 + max((unknown, *table.row_of.values()))

    @invariant()
    def requests_and_pods_add_up(self) -> None:
        table, unknown = self.state.nodes, self.state.nodes.unknown_row
        expected: dict[str, Any] = {
            "pods": table.pod_count.data,
            **{
                name: every(table.requested, name, len(table.pod_count.data))
                for name in ("cpu", "memory", GPU)
            },
            "scored cpu": table.requested_scored_cpu.data,
            "scored memory": table.requested_scored_memory.data,
        }
        for what, column in expected.items():
            sums = np.zeros(len(column), np.int64)
            for held in self.model.pods.values():
                sums[table.row_of.get(held.node, unknown)] += amount(held, what)
            assert column.tolist() == sums.tolist(), what

    @invariant()
    def pods_are_where_they_are_held(self) -> None:
        state, pods = self.state, self.model.pods
        assert {p.pod.uid for p in state.pods} == pods.keys()
        assumed = {uid for uid, held in pods.items() if held.assumed}
        assert state.pods.assumed.keys() == assumed
        assert {p.pod.uid for p in state.pods if p.assumed} == assumed
        for name in NODES:
            there = {uid for uid, h in pods.items() if h.node == name}
            assert {p.pod.uid for p in state.pods_of(name)} == there
            if (row := state.nodes.row_of.get(name)) is not None:
                assert sorted(p.pod.uid for p in state.pods.on(row)) == sorted(there)
        assert self.model.heard == {uid: h.node for uid, h in pods.items() if h.announced}
        for name in PODS:
            found = state.pods.named(f"default/{name}")
            named = {uid for uid, held in pods.items() if held.name == name}
            assert found.pod.uid in named if found is not None else not named

    @invariant()
    def nodes_offer_what_they_say(self) -> None:
        table = self.state.nodes
        for row, name in enumerate(table.names):
            known = self.model.nodes.get(name)
            offered = known.allocatable if known is not None else {}
            for resource in ("cpu", "memory", GPU):
                assert table.allocatable.at(resource, row) == offered.get(resource, 0)
            assert table.pod_slots.data[row] == (known.pod_slots if known else 0)
            assert bool(table.unschedulable.data[row]) == bool(known and known.unschedulable)
            taints = table.taints.values[table.taints.codes.data[row]]
            assert taints == (known.taints if known else ())
            code = int(self.zone.codes.data[row])
            zone = None if code == ABSENT else self.zone.values[code]
            assert zone == (known.labels.get(ZONE) if known else None)

    @invariant()
    def zones_take_turns_in_the_order(self) -> None:
        table = self.state.nodes
        order = [table.names[row] for row in table.order()]
        assert sorted(order) == sorted(self.model.nodes)
        rounds: list[int] = []
        met: Counter[str | None] = Counter()
        for name in order:
            zone = self.model.nodes[name].labels.get(ZONE)
            rounds.append(met[zone])
            met[zone] += 1
        assert rounds == sorted(rounds)

    @invariant()
    def images_are_known_by_their_nodes(self) -> None:
        table = self.state.nodes
        holders: dict[str, set[int]] = defaultdict(set)
        for name, known in self.model.nodes.items():
            for image in known.images:
                holders[image].add(table.row_of[name])
        assert {image: set(entry.rows) for image, entry in table.images.items()} == holders

    @invariant()
    def a_host_port_is_taken_as_long_as_a_pod_holds_it(self) -> None:
        table = self.state.nodes
        for name, row in table.row_of.items():
            users = Counter(port for held in self.model.on(name) for port in held.ports)
            for protocol, port, address in (
                (protocol, port, address)
                for protocol in ("TCP", "UDP")
                for port in (80, 81)
                for address in ("0.0.0.0", "10.0.0.1", "10.0.0.2")
            ):
                clash = any(
                    (protocol, port) == (used[0], used[1])
                    and ("0.0.0.0" in (address, used[2]) or address == used[2])
                    for used in users
                )
                assert table.port_taken(row, HostPort(protocol, port, address)) == clash

    @invariant()
    def preemption_counts_the_same_pods(self) -> None:
        columns, table = self.state.pod_columns, self.state.nodes
        found = sorted(
            (pod.uid, table.names[row], int(cpu), bool(nominated))
            for pod, row, cpu, nominated in zip(
                columns.pods,
                columns.rows.tolist(),
                columns.requests("cpu").tolist(),
                columns.nominated.tolist(),
                strict=True,
            )
            if pod is not None
        )
        placed = [
            (uid, h.node if h.node in self.model.nodes else "", h.cpu or 0, False)
            for uid, h in self.model.pods.items()
        ]
        nominated = {entry[:2] for entry in found if entry[3]}
        assert nominated == {(uid, on) for uid, (_, on) in self.model.nominated.items()}
        assert [entry for entry in found if not entry[3]] == sorted(placed)


def every(resources: ResourceColumns, resource: str, rows: int) -> IntArray:
    amounts = resources.amounts(resource, rows)
    return np.zeros(rows, np.int64) if amounts is None else amounts


def amount(held: Held, what: str) -> int:
    """Return what the pod counts for; a container without requests counts a little in scores."""
    mib = 2**20
    return {
        "pods": 1,
        "cpu": held.cpu or 0,
        "memory": (held.memory or 0) * mib,
        GPU: held.gpus,
        "scored cpu": 100 if held.cpu is None else held.cpu,
        "scored memory": (200 if held.memory is None else held.memory) * mib,
    }[what]


TestCluster = Cluster.TestCase
TestCluster.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
