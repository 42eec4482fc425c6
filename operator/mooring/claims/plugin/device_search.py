"""The search for the devices of all claims of a pod on one node (allocateOne of the allocator).

The search goes claim by claim and request by request. For each device it takes the first candidate,
in the order of pools, slices and devices, with which the rest of the search succeeds.
kube-scheduler finds the same devices.

kube-scheduler tries every combination, which may take exponential time. Here the search begins anew
when the first device is given back, and then skips branches that cannot succeed:

- a request for which too few candidates remain
- a candidate that equals an earlier candidate with which the rest of the search has failed
- all further requests, if the search for them has failed before in an equal state
- requests that together need more devices, values or counters than there are

A branch is not skipped if this may change the result: if the branch may end in an error, or depends
on the order of earlier trials.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Final

from mooring.claims.model.resource_claims import MOST_RESULTS
from mooring.claims.plugin.allocation_error import AllocationError
from mooring.claims.plugin.attempt_budget import Budget
from mooring.claims.plugin.device_trial import DeviceTrial
from mooring.claims.plugin.pruning import Pruning, may_prune
from mooring.claims.plugin.requests import NodeDevices, Slot
from mooring.model.kubernetes_rules import KubernetesRules

Moves = tuple[tuple[int, int, int, int], ...]
"""The chosen devices, each as the indices of claim, request, alternative and device."""


class _Frame:
    """An entry of the search's stack: a choice or a mark."""

    __slots__ = ()


@dataclass(slots=True)
class _Devices(_Frame):
    """The choice of device number `taken` of a request: the candidate at `position`."""

    slot: Slot
    taken: int
    position: int
    failed: set[int] = field(default_factory=set)
    """The kinds (see `Pruning.kinds`) of the candidates that led to no solution."""


@dataclass(slots=True)
class _AllDevices(_Frame):
    """A device for a request for all devices; there is no other choice."""


@dataclass(slots=True)
class _Alternatives(_Frame):
    """The choice of a sub-request; the search tries number `chosen` now."""

    slots: Sequence[Slot]
    chosen: int = 0
    all_too_many: bool = True
    """Whether every sub-request that failed so far needs too many devices (`_Fail.too_many`)."""


@dataclass(slots=True)
class _EndOfClaim(_Frame):
    """Marks the end of a claim."""


@dataclass(slots=True)
class _State(_Frame):
    """Marks the beginning of a request, with the state of the search (`Pruning.state`)."""

    key: Hashable


@dataclass(frozen=True, slots=True)
class _Request:
    """The next step: begin a request, by its indices in `Search.claims`."""

    claim: int
    request: int


@dataclass(frozen=True, slots=True)
class _Slot:
    """The next step: take device number `taken`, from candidate `start` on."""

    slot: Slot
    taken: int
    start: int


@dataclass(frozen=True, slots=True)
class _Fail:
    """The next step: go back to the last choice."""

    too_many: bool
    """Whether the only reason is that the claim needs more devices than its status can hold."""


_NO_SOLUTION: Final = _Fail(too_many=False)
_TOO_MANY: Final = _Fail(too_many=True)
_MOST_STATES: Final = 4096
"""The most failed states that the search remembers, of some hundred bytes each. Further failed
states are not remembered, so their work may be repeated."""
_Next = _Request | _Slot | _Fail | None


@dataclass(eq=False, repr=False)
class Search:
    """The search for devices on one node.

    `claims` has the requests of each claim, and each request has its alternatives. The choices so
    far are on a stack of frames.
    """

    claims: Sequence[Sequence[Sequence[Slot]]]
    node: NodeDevices
    trial: DeviceTrial
    rules: KubernetesRules
    budget: Budget

    def __post_init__(self) -> None:
        self._pruning: Pruning | None = None
        self._frames: list[_Frame] = []
        self._step: _Next = _Request(0, 0)
        self._gave_back = False
        self._failed: dict[Hashable, _Fail] = {}

    def run(self) -> bool:
        """Search for a solution; return whether there is one, with its devices in `trial.taken`.

        Raises AllocationError, or PluginFailed if the attempt's budget is used up.
        """
        while True:
            match step := self._step:
                case _Request():
                    self._step = self._reach(step.claim, step.request)
                case _Slot():
                    self._step = self._fill(step.slot, step.taken, step.start)
                case None:
                    return True
                case _Fail() if self._frames:
                    self._step = self._go_back(step)
                case _Fail(too_many=True):
                    raise AllocationError("allocation max size exceeded")
                case _Fail():
                    return False
            self.budget.pause()

    @property
    def moves(self) -> Moves:
        """The devices of the solution, in the order of the search."""
        chosen = self.chosen()
        return tuple(
            (
                taken.slot.claim,
                taken.slot.request,
                chosen.get((taken.slot.claim, taken.slot.request), 0),
                taken.position,
            )
            for taken in self.trial.taken
        )

    def chosen(self) -> dict[tuple[int, int], int]:
        """Return the index of the chosen sub-request, by claim and request."""
        return {
            (frame.slots[0].claim, frame.slots[0].request): frame.chosen
            for frame in self._frames
            if isinstance(frame, _Alternatives)
        }

    def _reach(self, claim: int, request: int) -> _Next:
        """Return the step that begins the request; None if all claims have their devices."""
        if claim == len(self.claims):
            return None
        requests = self.claims[claim]
        if request == len(requests):
            self._frames.append(_EndOfClaim())
            return _Request(claim + 1, 0)
        if self._pruning is not None:
            known = self._known_to_fail(self._pruning, claim, request)
            if known is not None:
                return known
        alternatives = requests[request]
        if alternatives[0].parent:
            self._frames.append(_Alternatives(alternatives))
        return _Slot(alternatives[0], 0, 0)

    def _known_to_fail(self, pruning: Pruning, claim: int, request: int) -> _Fail | None:
        key = (claim, request, pruning.state(claim))
        if (known := self._failed.get(key)) is not None:
            return known
        self._frames.append(_State(key))
        rest = [
            *self.claims[claim][request:],
            *(alternatives for later in self.claims[claim + 1 :] for alternatives in later),
        ]
        self.budget.spend(1 + len(rest) * self.trial.size)
        return _NO_SOLUTION if pruning.too_many_requests(rest) else None

    def _fill(self, slot: Slot, taken: int, start: int) -> _Next:
        if slot.every is not None and not slot.every:
            return _NO_SOLUTION
        if taken >= slot.count:
            return _Request(slot.claim, slot.request + 1)
        if slot.count - taken > MOST_RESULTS - self.trial.number_of_results(slot.claim):
            return _TOO_MANY
        if slot.every is not None:
            if not self.trial.take(slot, slot.every[taken], must=True):
                return _NO_SOLUTION
            self._frames.append(_AllDevices())
            return _Slot(slot, taken + 1, 0)
        frame = _Devices(slot, taken, start)
        self._frames.append(frame)
        return self._next_candidate(frame)

    def _next_candidate(self, frame: _Devices) -> _Next:
        trial, slot, pruning = self.trial, frame.slot, self._pruning
        if self._gave_back:
            self.budget.spend(1 + trial.size - frame.position)
        if pruning is not None and pruning.too_few(slot, slot.count - frame.taken, frame.position):
            self._frames.pop()
            return _NO_SOLUTION
        for position in range(frame.position, trial.size):
            if (
                pruning is not None
                and pruning.kinds[position] in frame.failed
                and trial.untouched(position)
            ):
                continue
            if trial.may_take(slot, position) and trial.take(slot, position):
                frame.position = position
                return _Slot(slot, frame.taken + 1, position + 1)
        self._frames.pop()
        return _NO_SOLUTION

    def _go_back(self, failure: _Fail) -> _Next:
        frame = self._frames[-1]
        match frame:
            case _Devices():
                return self._after_device(frame, failure)
            case _Alternatives():
                return self._after_alternative(frame, failure)
            case _EndOfClaim():
                # `too_many` concerns one claim only.
                failure = _NO_SOLUTION
            case _State() if len(self._failed) < _MOST_STATES:
                self._failed[frame.key] = failure
            case _State():
                pass
            case _:
                self.trial.give_back()
        self._frames.pop()
        return failure

    def _after_device(self, frame: _Devices, failure: _Fail) -> _Next:
        self.trial.give_back()
        if failure.too_many:
            self._frames.pop()
            return failure
        if not self._gave_back:
            self._gave_back = True
            if may_prune(self.node, self.rules):
                return self._begin_anew()
        if self._pruning is not None and self.trial.untouched(frame.position):
            frame.failed.add(self._pruning.kinds[frame.position])
        frame.position += 1
        return self._next_candidate(frame)

    def _begin_anew(self) -> _Next:
        while self.trial.taken:
            self.trial.give_back()
        self._frames.clear()
        self.budget.spend(self.trial.size)
        self._pruning = Pruning(self.claims, self.node, self.trial, self.rules)
        return _Request(0, 0)

    def _after_alternative(self, frame: _Alternatives, failure: _Fail) -> _Next:
        frame.all_too_many &= failure.too_many
        frame.chosen += 1
        if frame.chosen < len(frame.slots):
            return _Slot(frame.slots[frame.chosen], 0, 0)
        self._frames.pop()
        return _TOO_MANY if frame.all_too_many else _NO_SOLUTION
