"""What Mooring keeps of a cluster is no more after everything is gone, whatever it was called."""

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from devices.objects import gpu_node, share_pod
from holders import parts_of
from mooring.gpu_cards.card_args import PRESETS
from mooring.model.bounded_cache import BoundedCache
from mooring.model.events import Kind
from mooring.model.objects import identity, parse_object
from mooring.model.pod import Pod, parse_pod
from mooring.observe.records import DecisionLog
from mooring.scheduling.assumed import assume_reserve_and_permit
from mooring.scheduling.cycle import decide
from mooring.scheduling.outcome import FitError, ScheduleResult
from mooring.scheduling.result_cache import ResultCache
from mooring.scheduling.scheduler_state import CurrentAttempt
from mooring.testing.builders import namespace, node, pdb, pod, pod_group, queue_object, service
from pod_terms import apart, spread_evenly, to_pods
from scheduler_states import put_profile, scheduler_state, silent_pod_enqueuer
from storage_builders import (
    csi_driver,
    csi_node,
    pv,
    pvc,
    storage_capacity,
    storage_class,
    volume_attachment,
)

Raw = dict[str, Any]

BOUNDED: Final = (BoundedCache, ResultCache, DecisionLog)
"""Keep what is gone, and have a bound of their own."""
BOUNDED_WAYS: Final = tuple(
    f"SchedulerState.state.{way}"
    for way in (
        "topology._counts",
        "topology._by_source",
        "topology._selections",
        "nodes._labels._unheld",
    )
)
"""Bounded by the class that holds them: counts per domain, their selections, columns of labels."""
_ROUNDS: Final = 3


def entries(*roots: object) -> Counter[str]:
    """Return how many parts everything below the objects has, by the way to it."""
    found: Counter[str] = Counter()
    seen: set[int] = set()
    left: deque[tuple[str, object]] = deque((type(root).__name__, root) for root in roots)
    while left:
        way, here = left.popleft()
        if id(here) in seen or isinstance(here, (type, *BOUNDED)) or way in BOUNDED_WAYS:
            continue
        seen.add(id(here))
        parts = [*parts_of(way, here)]
        found[way] += len(parts)
        left.extend(parts)
    return +found


class World:
    """A scheduler, and a cluster that comes and goes under ever new names."""

    def __init__(self) -> None:
        self.scheduler = scheduler_state()
        self.shown: list[tuple[Kind, str]] = []
        self.state = self.scheduler.state
        put_profile(self.scheduler)
        of_all = {"matchExpressions": [{"key": "none", "operator": "DoesNotExist"}]}
        self.show([queue_object("all", selector=of_all)])
        self.shown.clear()
        self.pod_enqueuer = silent_pod_enqueuer(self.scheduler)
        self.state.on_events(self.pod_enqueuer.on_events)
        self.results = ResultCache(self.scheduler.cluster)
        self.cards = self.state.track_cards(PRESETS["gpushare"], demand=True)

    def show(self, objects: Iterable[Raw]) -> None:
        """Show the objects, as the watches do."""
        for raw in objects:
            kind = Kind(raw["kind"])
            key = identity(kind, raw)
            self.shown.append((kind, key))
            self.state.put(kind, key, parse_object(kind, raw))

    def pending(self, raw: Raw) -> Pod:
        """Let the pod come in, and return it."""
        came = parse_pod(raw)
        self.pod_enqueuer.pending(came)
        return came

    def attempt(self) -> bool:
        """Bind the first pod, or find it unschedulable; return False if no pod is active."""
        scheduler = self.scheduler
        queued = scheduler.queue.pop(0.0)
        if queued is None:
            return False
        came, pipeline = queued.pod, queued.pipeline
        outcome = decide(came, pipeline, self.results, seed=0, start=0, now=0.0)
        if isinstance(outcome, FitError):
            scheduler.queue.add_unschedulable(queued, outcome.diagnosis.plugins, 0.0)
            return True
        assert isinstance(outcome, ScheduleResult)
        attempt = CurrentAttempt(pipeline, 0.0, {came.uid: queued})
        rows = {came.uid: outcome.row}
        (assumed,) = assume_reserve_and_permit(attempt, rows, scheduler, now=0.0)
        scheduler.state.announce(came)
        if came.volumes:
            assumed.undo.close()  # its binding fails
            scheduler.queue.add_after_error(queued, 0.0)
            return True
        scheduler.queue.done(queued, 0.0)
        assumed.undo.pop_all()
        return True

    def size(self) -> Counter[str]:
        """Return how many entries the containers of the scheduler have."""
        return entries(self.scheduler, self.pod_enqueuer)

    def ends(self) -> None:
        """Delete everything that was shown, pods without a node first."""
        for queued in tuple(self.scheduler.queue):
            self.pod_enqueuer.gone(queued.pod.uid)
        for waiting in tuple(self.scheduler.without_profile.values()):
            self.pod_enqueuer.gone(waiting.uid)
        for placed in tuple(self.state.pods):
            self.pod_enqueuer.gone(placed.pod.uid)
            self.state.forget(placed.pod)
        for kind, key in reversed(self.shown):
            self.state.delete(kind, key)
        self.shown.clear()
        while self.scheduler.queue.run_hints(0.0):
            pass
        self.state.take_changed_groups()


def everything(name: str) -> Iterator[Raw]:
    """Yield one object or more of each kind; no name in it is in those of another name."""
    home, driver, made, app = f"ns-{name}", f"csi-{name}.example", f"class-{name}", {name: name}
    yield namespace(home, {f"env-{name}": name})
    for number in range(3):
        yield gpu_node(
            f"node-{name}-{number}",
            labels={f"rack-{name}": str(number), "rack": name},
            zone=name,
            taints=[f"dedicated-{name}:PreferNoSchedule"],
            images={f"image-{name}:v1": 10},
            conditions={f"Trouble-{name}": "False"},
        )
    yield csi_node(f"node-{name}-0", {driver: 3}, migrated=[f"kubernetes.io/{name}"])
    yield csi_driver(driver, storage_capacity=True)
    yield storage_class(made, provisioner=driver)
    yield storage_capacity(f"capacity-{name}", made, "9Gi", {"rack": name})
    csi = {"csi": {"driver": driver, "volumeHandle": name}}
    modes = [f"Mode{name}"]
    yield pv(f"free-{name}", storage_class=made, nodes=[f"node-{name}-1"], modes=modes, spec=csi)
    yield pv(f"used-{name}", storage_class=made, claim=f"{home}/claim", spec=csi)
    yield pvc("claim", namespace=home, storage_class=made, volume=f"used-{name}")
    yield pvc("unbound", namespace=home, storage_class=made)
    yield volume_attachment(f"attachment-{name}", driver, f"node-{name}-0", f"used-{name}")
    yield service(f"service-{name}", app, namespace=home)
    yield pdb(f"budget-{name}", app, allowed=1, namespace=home)
    yield pod_group(f"gang-{name}", 2, namespace=home)
    yield from placed(name, home, app)


def placed(name: str, home: str, app: Mapping[str, str]) -> Iterator[Raw]:
    """Yield pods on nodes that exist, and on others."""
    plain: Raw = {"namespace": home, "labels": app, "ports": [80], "cpu": "1"}
    yield pod(f"plain-{name}", node=f"node-{name}-0", claims=["claim", "unbound"], **plain)
    yield pod(f"lost-{name}", node=f"invented-{name}", claims=["claim"], **plain)
    yield pod(f"odd-{name}", node=f"node-{name}-1", requests={f"example.com/{name}": 1}, **plain)
    yield pod(f"member-{name}", node=f"node-{name}-1", group=f"gang-{name}", namespace=home)
    yield share_pod(f"gpu-{name}", 4, node=f"node-{name}-2", card=1, namespace=home)
    disk = {"name": "disk", "awsElasticBlockStore": {"volumeID": name}}
    yield pod(f"disk-{name}", node=f"node-{name}-2", namespace=home, spec={"volumes": [disk]})
    yield pod(f"ends-{name}", node=f"node-{name}-2", terminating=True, **plain)


def waiting(name: str) -> Iterator[Raw]:
    """Yield pods without a node: those that fit, and those that do not."""
    home, app = f"ns-{name}", {name: name}
    plain: Raw = {"namespace": home, "labels": app}
    spread = spread_evenly(app, "rack", whenUnsatisfiable="ScheduleAnyway")
    yield pod(f"fits-{name}", node_selector={f"rack-{name}": "1"}, **plain)
    yield pod(f"apart-{name}", affinity=apart(to_pods(app, f"rack-{name}")), **plain)
    yield pod(f"spread-{name}", spread=[spread], **plain)
    yield pod(f"binds-{name}", claims=["unbound"], **plain)
    yield pod(f"large-{name}", cpu="1000", group=f"other-{name}", **plain)
    yield pod(f"gated-{name}", gates=[f"gate-{name}"], **plain)
    yield pod(f"nobodys-{name}", spec={"schedulerName": name}, **plain)


def lives(world: World, name: str) -> None:
    """Show a cluster of that name, work on it, and delete it."""
    state, home = world.state, f"ns-{name}"
    world.show(everything(name))
    preemptor = world.pending(pod(f"high-{name}", namespace=home, priority=9, cpu="1000"))
    world.attempt()
    known = next(p.pod for p in state.pods if p.pod.name == f"plain-{name}")
    state.nominate(preemptor, f"node-{name}-0")
    state.begin_evictions(preemptor, [known])
    state.eviction_refused(known, by_budget=True)
    for raw in waiting(name):
        world.pending(raw)
    while world.attempt():
        pass
    world.show([node(f"invented-{name}")])
    world.ends()


def test_nothing_is_left_of_a_cluster_that_is_gone_whatever_its_objects_were_called() -> None:
    world = World()
    lives(world, "first")
    before = world.size()
    for number in range(_ROUNDS):
        lives(world, f"other{number}")
    after = world.size()
    grown = {way: (before[way], count) for way, count in after.items() if count > before[way]}
    assert not grown, "\n".join(f"{way}: {counts}" for way, counts in sorted(grown.items()))
