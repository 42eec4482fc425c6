"""Records the plans and moves of one profile, and shows them as documents and as its status."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from mooring.framework.decision import TextAboutPods
from mooring.kube.timestamps import rfc3339
from mooring.model.bounded_cache import BoundedCache
from mooring.model.fields import timestamp
from mooring.model.pod import Pod, Uid
from mooring.pausing import pause
from mooring.policy.profile import SchedulingProfile
from mooring.policy.profile_status import (
    MoveBegun,
    MoveEnded,
    PlannedMove,
    RebalancingStatus,
    RefusedMoves,
)
from mooring.policy.reading import read
from mooring.policy.rebalancing import Rebalancing, Window
from mooring.rebalancing.movable import owner_of
from mooring.rebalancing.plan import Plan, Why
from mooring.rebalancing.report import (
    MovedPod,
    PlannedStep,
    PlanReport,
    RebalancingReport,
    plan_report,
    planned_step,
)
from mooring.rebalancing.under_way import ExpectedReplacements, Result, UnderWay
from mooring.state.cluster import ClusterState

_MOST_PLANNED: Final = 10
_MOST_REFUSED: Final = 20
_MOST_LAST: Final = 50
_MOST_UNDER_WAY: Final = 100
_LONGEST_TEXT: Final = 512
_LONGEST_MESSAGE: Final = 1024
_SKEW: Final = 5.0
"""The most seconds by which a replacement may seem older than its move, because the clocks of a
former leader and the API server differ. A pod that seems older is not taken for the replacement."""
HOUR: Final = 3600.0
_DAY: Final = 24 * HOUR
_FIRST_DAY: Final = 3
"""The index of Thursday in `_DAYS`, because the epoch began on a Thursday."""
_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MOST_TIMES: Final = 100_000
_REST_BYTES: Final = 4 * 2**20
_BYTES_PER_REST: Final = 256


def is_open(windows: Sequence[Window], now: float) -> bool:
    """Return whether a window is open at `now` (seconds since the epoch); True without windows."""
    return not windows or any(_is_open(window, now) for window in windows)


def _is_open(window: Window, now: float) -> bool:
    start, end = _seconds(window.start), _seconds(window.end)
    lasts = (end - start) % _DAY or _DAY
    since_start = (now - start) % _DAY
    began_on = _DAYS[(int((now - since_start) // _DAY) + _FIRST_DAY) % len(_DAYS)]
    return since_start < lasts and (not window.days or began_on in window.days)


def _seconds(time_of_day: str) -> float:
    hours, _, minutes = time_of_day.partition(":")
    return int(hours) * HOUR + int(minutes) * 60.0


class RecentEvictions:
    """Counts the evictions of a profile within the last hour; `clock` returns seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._times: deque[float] = deque(maxlen=_MOST_TIMES)

    def note(self, count: int = 1, *, seconds_ago: float = 0.0) -> None:
        """Count evictions; those with `seconds_ago` must be older than all counted before."""
        at = self._clock() - seconds_ago
        if seconds_ago:
            self._times.extendleft([at] * min(count, _MOST_TIMES))
        else:
            self._times.extend([at] * count)

    def __len__(self) -> int:
        while self._times and self._times[0] <= self._clock() - HOUR:
            self._times.popleft()
        return len(self._times)


class Rests:
    """Remembers the time until which a pod, or all pods of a controller, must not be moved."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._until: BoundedCache[str, tuple[str, float]] = BoundedCache(
            _REST_BYTES, lambda _uid, _until: _BYTES_PER_REST
        )

    def rest(self, uid: str, seconds: float) -> None:
        """Forbid moves of the pod, or of all pods of the controller, for this number of seconds."""
        if seconds > 0:
            self._until.put(uid, (uid, self._clock() + seconds))

    def resting(self) -> frozenset[str]:
        """Return the uids of the pods and controllers whose pods must not be moved now."""
        now, found = self._clock(), self._until.values()
        for uid, until in found:
            if until <= now:
                self._until.pop(uid)
        return frozenset(uid for uid, until in found if until > now)


@dataclass(frozen=True, slots=True)
class FormerMove:
    """A move that a former leader began, read from the profile's status.

    `began` is in seconds since the epoch. The move times out at `until`, on the monotonic clock.
    """

    shown: MoveBegun
    began: float
    until: float

    @property
    def owner(self) -> str:
        """The uid of the pod's controller."""
        return self.shown.owner

    def may_end_with(self, pod: Pod) -> bool:
        """Return whether this pod may be the replacement of the moved pod."""
        owner, shown = pod.owner, self.shown
        if owner is None or owner.uid != shown.owner:
            return False
        # A pod in another namespace may name the controller's uid, too.
        if pod.namespace != shown.pod.partition("/")[0]:
            return False
        is_named = owner.kind != "StatefulSet" or pod.key == shown.pod
        return is_named and pod.uid != shown.uid and pod.created >= self.began - _SKEW


def take_ended(
    moves: list[FormerMove], known: set[str], state: ClusterState, now: float
) -> list[str]:
    """Remove moves that have ended or timed out; return uids for `Rests.rest`.

    Each is the uid of a replacement, or of the controller after a timeout. The uids are also added
    to `known`. `now` is on the monotonic clock.
    """
    owners = {each.owner for each in moves}
    ready, found = list[Pod](), list[str]()
    for placed in state.pods:
        pause()
        pod = placed.pod
        is_ready = pod.ready and not placed.assumed and not pod.terminating
        if is_ready and owner_of(pod) in owners:
            ready.append(pod)
    for former in tuple(moves):
        new = (p.uid for p in ready if p.uid not in known and former.may_end_with(p))
        evicted = state.pods.get(Uid(former.shown.uid))
        if evicted is not None and not evicted.pod.terminating:
            moves.remove(former)  # it was not evicted
        elif (rests := next(new, former.owner)) != former.owner or now >= former.until:
            moves.remove(former)
            known.add(rests)
            found.append(rests)
    return found


@dataclass(slots=True, eq=False)
class Record:
    """The plans and moves of one profile's rebalancing, over all versions of the profile.

    `now` returns seconds since the epoch, `clock` seconds on the monotonic clock.

    Attributes:
        name: The name of the profile.
        uid: The uid of the profile's object.
        message: The present activity, or why the last plan was not carried out to its end.
        done: How many moves ended with a ready replacement on the target.
        evictions: The evictions of the last hour.
        former: Moves that a former leader began and that may not have ended.
    """

    name: str
    expected: ExpectedReplacements
    now: Callable[[], float]
    clock: Callable[[], float]
    evictions: RecentEvictions
    uid: str = ""
    message: Why = ""
    done: int = 0
    position: int = 0
    """The position in the order of pods at which the last plan ended; the next plan continues
    there."""
    former: list[FormerMove] = field(default_factory=list)
    found: object = None
    """The section of the profile's status as the watch first showed it; None once it was read."""
    # A cache of one entry, because it counts the plan's bytes.
    _plan: BoundedCache[str, PlanReport] = field(
        default_factory=lambda: BoundedCache[str, PlanReport](4 * 2**20)
    )
    _last: deque[MoveEnded] = field(default_factory=lambda: deque(maxlen=_MOST_LAST))

    @property
    def plan(self) -> PlanReport | None:
        """The last plan, None before the first."""
        return self._plan.get("plan")

    @property
    def under_way(self) -> list[UnderWay]:
        """The moves of the profile that have begun and not ended."""
        return [each for each in self.expected.moves if each.profile == self.name]

    @property
    def in_flight(self) -> int:
        """The number of pods that will be evicted soon, or whose replacements are not ready yet."""
        return len(self.under_way) + len(self.former)

    @property
    def used_of_hour(self) -> int:
        """The number of pods that were evicted within the last hour or will be evicted soon."""
        return len(self.evictions) + sum(not each.evicted for each in self.under_way)

    def in_flight_of(self, owner: str) -> int:
        """Return `in_flight` for the pods of the controller with this uid."""
        begun = sum(each.owner == owner for each in self.under_way)
        return begun + sum(each.owner == owner for each in self.former)

    def publish(self, profile: str, section: Rebalancing, plan: Plan) -> None:
        """Make this the plan that the profile's status and `/debug/rebalancing` show.

        Replace `message` by a text about the plan.
        """
        shown = plan_report(profile, section, plan, rfc3339(self.now()))
        self._plan.put("plan", replace(shown, message=""))
        self.message = _said(plan, section)

    def note(self, under_way: UnderWay) -> None:
        """Add the move, which has evicted its pod, to the last moves; count it if it succeeded."""
        move = under_way.move
        if under_way.result is Result.MOVED:
            self.done += 1
        last = {
            "pod": move.pod.key,
            "uid": under_way.rests,
            "from": move.source,
            "to": move.target,
            "result": str(under_way.result),
            "time": rfc3339(self.now()),
        }
        self._last.append(MoveEnded.model_validate(last))

    def restore(self, raw: object, section: Rebalancing, rests: Rests) -> None:
        """Restore a former leader's moves and counts from `raw`, the status of rebalancing.

        Pods and controllers that must not be moved yet are added to `rests`. Raises ProfileInvalid
        or ManifestError if the status is malformed.
        """
        status = read(RebalancingStatus, raw, "status.rebalancing")
        limits, since = section.limits, self._seconds_since(status.observed_time)
        self.done = status.done
        if since < HOUR:
            count = status.evicted_in_last_hour + len(status.under_way)
            self.evictions.note(count, seconds_ago=since)
        for begun in status.under_way[:_MOST_UNDER_WAY]:
            ago = self._seconds_since(begun.time)
            until = self.clock() + limits.replacement_seconds - ago
            self.former.append(FormerMove(begun, self.now() - ago, until))
        for ended in status.last_moves[-_MOST_LAST:]:
            rests.rest(ended.uid, limits.rest_seconds - self._seconds_since(ended.time))
            self._last.append(ended)

    def _seconds_since(self, time: str) -> float:
        at = timestamp({"time": time}, "time", "status.rebalancing")
        return max(0.0, self.now() - (at or 0.0))

    def status(self) -> dict[str, Any]:
        """Return the section `rebalancing` of the profile's status."""
        plan = self.plan
        begun = [_begun(each) for each in self.under_way]
        begun += [each.shown for each in self.former]
        steps, refused = (plan.steps, plan.refused) if plan is not None else ((), ())
        moves = [_planned(step, move) for step in steps for move in step.moves]
        status = RebalancingStatus(
            observed_time=rfc3339(self.now()),
            planned_time=plan.time if plan is not None else None,
            planned=len(moves),
            plan=tuple(moves[:_MOST_PLANNED]),
            done=self.done,
            refused=tuple(
                RefusedMoves(reason=each.reason[:_LONGEST_TEXT], count=each.pods)
                for each in refused[:_MOST_REFUSED]
            ),
            message=whole(self.message)[:_LONGEST_MESSAGE],
            evicted_in_last_hour=len(self.evictions),
            under_way=tuple(begun[:_MOST_UNDER_WAY]),
            last_moves=tuple(self._last),
        )
        return status.model_dump(mode="json", by_alias=True)

    def report(self, profile: SchedulingProfile) -> RebalancingReport:
        """Return the document about the profile for /debug/rebalancing."""
        section = profile.spec.rebalancing
        return RebalancingReport(
            profile=profile.name,
            mode=section.mode if section is not None else "",
            message=self.message,
            done=self.done,
            evicted_in_last_hour=len(self.evictions),
            under_way=tuple(planned_step(each.step, each.move) for each in self.under_way),
            plan=self.plan,
        )


def _said(plan: Plan, section: Rebalancing) -> Why:
    if not plan.steps:
        if plan.spent:
            return f"no move was found; {_left_out(plan)}"
        return plan.message or "nothing is to be gained by moves"
    count = len(plan.moves)
    planned = f"{count} moves are planned" if count > 1 else "1 move is planned"
    if section.mode != "Apply":
        planned = f"{planned}; mode Plan carries out none"
    return f"{planned}; {_left_out(plan)}" if plan.spent else planned


def _left_out(plan: Plan) -> str:
    why = "the decisions that a plan may cost were spent before all was looked at"
    if plan.examined is not None and 0 < plan.examined < plan.pods:
        looked_at = f"{plan.examined:,} of {plan.pods:,} running pods were"
        return f"{why}: {looked_at}, and the next plan goes on with the others"
    return f"{why}: plan for fewer goals or pods"


def whole(text: Why) -> str:
    """Return the text with the names of pods. The profile's status shows this text."""
    return text.text if isinstance(text, TextAboutPods) else text


def _planned(step: PlannedStep, move: MovedPod) -> PlannedMove:
    return PlannedMove.model_validate(
        {
            "pod": move.pod.key,
            "from": move.from_,
            "to": move.to,
            "goal": step.goal,
            "reason": whole(step.reason)[:_LONGEST_TEXT],
        }
    )


def _begun(under_way: UnderWay) -> MoveBegun:
    pod = under_way.move.pod
    return MoveBegun(
        pod=pod.key,
        uid=pod.uid,
        owner=under_way.owner,
        to=under_way.move.target,
        time=rfc3339(under_way.began),
    )
