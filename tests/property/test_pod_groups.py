"""Pod groups after random events are what counting every pod anew gives."""

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from mooring.groups.model.pod_group import COSCHEDULING_LABEL, GroupFormat, GroupKey, GroupSource
from mooring.groups.state.pod_groups import PodGroupState
from mooring.model.events import Kind
from mooring.model.node import parse_node
from mooring.model.objects import object_key, parse_object
from mooring.model.pod import Pod, Uid, parse_pod
from mooring.state.cluster import ClusterState
from mooring.testing.builders import (
    coscheduling_pod_group,
    node,
    pod,
    pod_group,
    volcano_pod_group,
)
from relists import replace_all

SITE = GroupFormat("site/group", "site/minimum")
OTHER = GroupFormat("other/group", source=GroupSource.VOLCANO)
ROLES = {"driver": 1, "worker": 2}
Formats = tuple[GroupFormat, ...]
SOURCES = {
    Kind.POD_GROUP: GroupSource.KUBERNETES,
    Kind.COSCHEDULING_POD_GROUP: GroupSource.COSCHEDULING,
    Kind.VOLCANO_POD_GROUP: GroupSource.VOLCANO,
}

names = st.sampled_from(("p0", "p1", "p2", "p3", "p4"))
rarely = st.sampled_from((None, None, None, None, "train", "serve"))
features = st.fixed_dictionaries(
    {
        "spec": rarely,
        "label": rarely,
        "site": st.sampled_from((None, "train", "serve")),
        "other": st.sampled_from((None, "train", "serve")),
        "role": st.sampled_from((None, "driver", "worker", "worker")),
        "minimum": st.sampled_from((None, 2, 10, 3)),
        "priority": st.sampled_from((0, 5, -3)),
        "terminating": st.sampled_from((False, False, True)),
        "created": st.sampled_from(("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z")),
    }
)


@dataclass
class Known:
    """A pod as the model knows it; an assumed one may still be unscheduled to its watch."""

    uid: Uid
    features: dict[str, Any]
    unscheduled: bool = False
    assumed: bool = False
    assigned: bool = False

    def parsed(self, name: str, **more: Any) -> Pod:
        site, other = self.features["site"], self.features["other"]
        labels = {COSCHEDULING_LABEL: self.features["label"]} if self.features["label"] else {}
        annotations = {SITE.name_key: site} if site else {}
        annotations |= {OTHER.name_key: other} if other else {}
        if self.features["role"]:
            annotations["volcano.sh/task-spec"] = self.features["role"]
        if self.features["minimum"] is not None:
            annotations[str(SITE.minimum_key)] = str(self.features["minimum"])
        raw = pod(
            name,
            group=self.features["spec"],
            labels=labels,
            annotations=annotations,
            priority=self.features["priority"],
            terminating=self.features["terminating"],
            created=self.features["created"],
            **more,
        )
        raw["metadata"]["uid"] = self.uid
        return parse_pod(raw)

    def names(self, formats: Formats) -> GroupKey | None:
        """Read of the features alone, in the order of docs/gangs.md."""
        if self.features["spec"]:
            return GroupKey(GroupSource.KUBERNETES, "default", self.features["spec"])
        if self.features["label"]:
            return GroupKey(GroupSource.COSCHEDULING, "default", self.features["label"])
        for form in formats:
            if name := self.features["site" if form == SITE else "other"]:
                return GroupKey(form.source, "default", name)
        return None

    def declares(self) -> int:
        """Return the minimum that this member of a group without an object declares."""
        minimum: int | None = self.features["minimum"]
        return 1 if minimum is None else minimum


def all_members(group: PodGroupState) -> list[Uid]:
    return [*group.unscheduled, *group.assumed, *group.assigned, *group.terminating]


@dataclass
class Model:
    pods: dict[str, Known] = field(default_factory=dict)
    defined: dict[GroupKey, int] = field(default_factory=dict)
    formats: Formats = ()
    uids: int = 0


class Groups(RuleBasedStateMachine):
    """Events in any order; after each, every group has the members that the model counts."""

    def __init__(self) -> None:
        super().__init__()
        self.state = ClusterState()
        self.state.put(Kind.NODE, "n", parse_node(node("n")))
        self.model = Model()

    def known(self, which: Callable[[Known], bool]) -> list[str]:
        return sorted(name for name, pod in self.model.pods.items() if which(pod))

    @rule(name=names, given=features, same=st.booleans())
    def pod_without_a_node_seen(self, name: str, given: dict[str, Any], *, same: bool) -> None:
        known = self.model.pods.get(name)
        if known is not None and (known.assumed or known.assigned):
            return
        if known is not None and not same:
            self.pod_gone(name)
            known = None
        if known is None:
            self.model.uids += 1
            known = Known(Uid(f"uid-{self.model.uids}"), given)
        known = replace(known, features={**given, "spec": known.features["spec"]}, unscheduled=True)
        self.model.pods[name] = known
        self.state.put_unscheduled(known.parsed(name))

    def pod_gone(self, name: str) -> None:
        known = self.model.pods.pop(name)
        self.state.delete(Kind.POD, known.uid)
        self.state.delete_unscheduled(known.uid)

    @precondition(lambda self: self.model.pods)
    @rule(data=st.data())
    def deleted(self, data: st.DataObject) -> None:
        self.pod_gone(data.draw(st.sampled_from(self.known(lambda _: True))))

    @precondition(lambda self: self.known(lambda p: p.unscheduled and not p.assumed))
    @rule(data=st.data())
    def assume(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(self.known(lambda p: p.unscheduled and not p.assumed)))
        self.state.assume(self.model.pods[name].parsed(name), 0)
        self.model.pods[name].assumed = True

    @precondition(lambda self: self.known(lambda p: p.unscheduled and p.assumed))
    @rule(data=st.data())
    def still_seen_without_a_node(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(self.known(lambda p: p.unscheduled and p.assumed)))
        self.state.put_unscheduled(self.model.pods[name].parsed(name))

    @precondition(lambda self: self.known(lambda p: p.assumed))
    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(self.known(lambda p: p.assumed)))
        known = self.model.pods[name]
        self.state.forget(known.parsed(name))
        known.assumed = False
        if not known.unscheduled:
            del self.model.pods[name]

    @precondition(lambda self: self.known(lambda p: p.assumed))
    @rule(data=st.data())
    def seen_to_have_left_before_it_is_seen_bound(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(self.known(lambda p: p.assumed)))
        known = self.model.pods[name]
        self.state.delete_unscheduled(known.uid)
        known.unscheduled = False

    @precondition(lambda self: self.model.pods)
    @rule(data=st.data(), given=features, changed=st.booleans())
    def seen_bound(self, data: st.DataObject, given: dict[str, Any], *, changed: bool) -> None:
        """Show it bound by this scheduler or by another, or again in a newer version."""
        name = data.draw(st.sampled_from(self.known(lambda _: True)))
        known = self.model.pods[name]
        if changed:
            known.features = {**given, "spec": known.features["spec"]}
        bound = known.parsed(name, node="n")
        self.state.put(Kind.POD, bound.uid, bound)
        known.unscheduled, known.assumed, known.assigned = False, False, True

    @precondition(lambda self: self.known(lambda p: p.assigned))
    @rule(data=st.data())
    def finished(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(self.known(lambda p: p.assigned)))
        known = self.model.pods.pop(name)
        ended = known.parsed(name, node="n", phase="Succeeded")
        self.state.put(Kind.POD, ended.uid, ended)

    @rule(kept=st.sets(names))
    def bound_pods_relisted(self, kept: set[str]) -> None:
        bound = set(self.known(lambda p: p.assigned))
        shown = (self.model.pods[name].parsed(name, node="n") for name in bound & kept)
        values: dict[str, Pod] = {pod.uid: pod for pod in shown}
        replace_all(self.state, Kind.POD, values)
        for name in bound - kept:
            del self.model.pods[name]

    @rule(
        kind=st.sampled_from(tuple(SOURCES)),
        name=st.sampled_from(("train", "serve")),
        minimum=st.integers(1, 4),
    )
    def defined(self, kind: Kind, name: str, minimum: int) -> None:
        make = pod_group if kind is Kind.POD_GROUP else coscheduling_pod_group
        raw = make(name, minimum)
        if kind is Kind.VOLCANO_POD_GROUP:
            minimum = max(minimum, sum(ROLES.values()))
            raw = volcano_pod_group(name, minimum, minTaskMember=ROLES)
        self.state.put(kind, object_key(kind, raw), parse_object(kind, raw))
        self.model.defined[GroupKey(SOURCES[kind], "default", name)] = minimum

    @rule(kind=st.sampled_from(tuple(SOURCES)), name=st.sampled_from(("train", "serve")))
    def definition_gone(self, kind: Kind, name: str) -> None:
        self.state.delete(kind, f"default/{name}")
        self.model.defined.pop(GroupKey(SOURCES[kind], "default", name), None)

    @rule(kind=st.sampled_from(tuple(SOURCES)))
    def a_kind_is_not_served_any_more(self, kind: Kind) -> None:
        replace_all(self.state, kind, {})
        for key in [key for key in self.model.defined if key.source is SOURCES[kind]]:
            del self.model.defined[key]

    @rule(formats=st.sampled_from(((), (SITE,), (OTHER,), (SITE, OTHER), (OTHER, SITE))))
    def profiles_changed(self, formats: Formats) -> None:
        self.state.track_pod_groups(formats)
        self.model.formats = formats

    @precondition(lambda self: self.model.pods)
    @rule(data=st.data())
    def trial(self, data: st.DataObject) -> None:
        """Add some pods and remove some; the counts follow, and are as before afterwards."""
        chosen = data.draw(st.sets(st.sampled_from(self.known(lambda _: True))))
        before = {name: replace(known) for name, known in self.model.pods.items()}
        with self.state.trial() as trial:
            for name in sorted(chosen):
                known = self.model.pods[name]
                if known.assumed or known.assigned:
                    trial.remove(known.uid)
                    known.assumed = known.assigned = False
                else:
                    trial.add(known.parsed(name), 0)
                    known.assumed = True
            self.every_group_is_as_counted_anew()
        self.model.pods = before

    @invariant()
    def every_group_is_as_counted_anew(self) -> None:
        found = {group.key: group for group in self.state.pod_groups}
        where = {uid: group.key for group in found.values() for uid in all_members(group)}
        assert len(where) == sum(len(all_members(group)) for group in found.values())
        members: dict[GroupKey, list[Known]] = defaultdict(list)
        for known in self.model.pods.values():
            key = where.get(known.uid)
            if known.unscheduled or known.assumed or known.assigned:
                assert key == known.names(self.model.formats)
            if key is not None and (known.unscheduled or known.assumed or known.assigned):
                members[key].append(known)
        assert found.keys() == members.keys() | self.model.defined.keys()
        for group in found.values():
            self.is_counted_right(group, members[group.key])
        surplus = [group for group in found.values() if group.minimum and group.surplus]
        assert {id(group) for group in self.state.pod_groups.with_surplus} == set(map(id, surplus))
        columns = self.state.pod_columns
        for group in found.values():
            at = np.flatnonzero(columns.in_groups([group.number])).tolist()
            uids = {pod.uid for slot in at if (pod := columns.pods[slot]) is not None}
            assert uids == {*group.assigned, *group.assumed}

    def is_counted_right(self, group: PodGroupState, here: list[Known]) -> None:
        key = group.key
        staying = [known for known in here if not known.features["terminating"]]
        assert set(group.terminating) == {k.uid for k in here if k.features["terminating"]}
        assert set(group.assigned) == {k.uid for k in staying if k.assigned}
        assert set(group.assumed) == {k.uid for k in staying if k.assumed}
        specs = Counter(pod.spec for pod in group.unscheduled.values())
        assert group.unscheduled_specs == specs
        assert set(group.unscheduled) == {k.uid for k in staying if not (k.assigned or k.assumed)}
        assert group.all_pods_count == len(staying)
        assert group.scheduled_pods_count == len(group.assigned) + len(group.assumed)
        minimum = group.minimum
        if key.source is GroupSource.PODS:
            declared = [known.declares() for known in staying]
            assert minimum == max(declared, default=0)
        else:
            assert minimum == self.model.defined.get(key, 0)
        assert (group.definition is None) == (
            not staying if key.source is GroupSource.PODS else key not in self.model.defined
        )
        on_nodes = Counter(k.features["role"] for k in staying if k.assigned or k.assumed)
        exist = Counter(k.features["role"] for k in staying)
        short = [sum((Counter(group.roles) - of).values()) for of in (exist, on_nodes)]
        assert group.missing == max(0, minimum - len(staying), short[0])
        assert group.lacking == max(0, minimum - group.scheduled_pods_count, short[1])
        assert group.priority == max((k.features["priority"] for k in staying), default=0)


TestGroups = Groups.TestCase
TestGroups.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
