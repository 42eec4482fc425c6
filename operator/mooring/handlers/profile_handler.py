"""Puts SchedulingProfiles in force or rejects them, and computes their status."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Literal, NamedTuple

import orjson

from mooring.kube.errors import ApiError, NotFoundError
from mooring.kube.recorder import EventRecorder, ObjectRef
from mooring.kube.status_writer import RETRIED, StatusWriter
from mooring.kube.timestamps import rfc3339
from mooring.kube.writes import ProfileWriter
from mooring.model.bounded_cache import BoundedCache
from mooring.model.wording import listed
from mooring.policy.match import conflict_in_short, conflict_text
from mooring.policy.profile import API_VERSION, KIND
from mooring.policy.profile_errors import ProfileInvalid
from mooring.policy.profile_status import LONGEST_MESSAGE, Condition, SchedulingProfileStatus
from mooring.process.time_slices import TimeSlices
from mooring.process.turn import Turn
from mooring.scheduling.pod_enqueuer import PodEnqueuer
from mooring.scheduling.profiles_in_force import CertificatesInvalid, Profiles
from mooring.scheduling.scheduler_state import DeletedUids

logger = logging.getLogger(__name__)

STATUS_SECONDS: Final = 30.0
"""The seconds between two checks whether statuses are outdated."""
REPEAT_SECONDS: Final = 5.0
"""The seconds after which a status that the API server refused is written again."""
_LANES: Final = 4
CONFLICT_SECONDS: Final = 1.0
"""The seconds without a changed profile after which statuses report conflicts."""
MOST_CONFLICT_WAITS: Final = 30
"""The most calls of `settle_conflicts` that put a report off because profiles still change."""
_MOST_NAMED = 3
"""The most rules, warnings or profiles that a message names; it counts the others."""
_OUTRANKED: Final = "outranked by "
_MOST_HISTORY = 50
"""The most changes, of all profiles together, in the history; then the oldest change is dropped."""
_MOST_HISTORY_BYTES = 8 * 2**20
_MOST_SPEC_BYTES = 16 * 1024
"""The most bytes of a spec in the history; a change with a larger spec is kept without it."""
MOST_KEPT_BYTES: Final = 512 * 1024
"""The most bytes of a spec that a profile's status keeps; etcd accepts 1.5 MiB for an object."""


@dataclass(frozen=True, slots=True)
class _Verdict:
    """Whether a profile's generation is in force, and its condition Ready."""

    uid: str
    generation: int
    ready: bool
    reason: str
    message: str


class _Surroundings(NamedTuple):
    """Texts in a profile's status that depend on nodes and other profiles."""

    over_budget: str | None
    warning: str | None
    outranked: str | None


@dataclass(eq=False, repr=False)
class ProfileHandler:
    """Puts profiles in force as the API server has them; invalid specs never replace valid ones.

    The status keeps the last valid spec for schedulers that start later. `found` is called with
    name, uid and status of a profile before its spec is put in force.
    """

    profiles: Profiles
    pod_enqueuer: PodEnqueuer
    found: Callable[[str, str, Mapping[str, Any]], object] = lambda _name, _uid, _status: None
    now: Callable[[], float] = time.time

    def __post_init__(self) -> None:
        self._verdicts: dict[str, _Verdict] = {}
        self._shown: dict[str, Mapping[str, Any]] = {}
        self._shown_versions: dict[str, str] = {}
        self._told: dict[str, _Surroundings] = {}
        """Maps a profile's name to the `_Surroundings` of its last status. They are kept here
        because the API server removes fields that an old CRD does not have."""
        self._uncertified: dict[str, tuple[Mapping[str, Any], CertificatesInvalid]] = {}
        """By the name of a profile: its object, and the error. The entry exists while only invalid
        certificates keep the newest or the last valid spec out of force."""
        self._unsettled: set[str] = set()
        """The profiles whose conflicts have changed since their status was computed."""
        self._just_changed = False
        self._conflict_waits = 0
        self._history: BoundedCache[int, dict[str, Any]] = BoundedCache(_MOST_HISTORY_BYTES)
        self._changes = 0
        self.departures = DeletedUids()
        """The uids of profiles that were deleted while another profile was being read."""

    def applied(self, raw: Mapping[str, Any]) -> dict[str, Any] | None:
        """Put the profile in force, if its generation is new and valid.

        Returns a merge patch for its status; None if the status needs no change.
        """
        metadata, before = raw["metadata"], _without_moves(raw.get("status") or {})
        verdict = self._verdicts.get(metadata["name"])
        if verdict is not None and verdict.uid != metadata["uid"]:
            if _is_older(metadata, self._shown_versions[metadata["name"]]):
                return None  # kopf tells of two objects of one name in any order
            self.gone(metadata["name"], verdict.uid)
            verdict = None
        if verdict is None or verdict.generation != metadata["generation"]:
            self.found(metadata["name"], metadata["uid"], raw.get("status") or {})
            verdict = self._take_up(raw)
        self._shown[metadata["name"]] = before
        self._shown_versions[metadata["name"]] = metadata.get("resourceVersion", "")
        return self.patch(metadata["name"]) or None

    def patch(self, name: str) -> dict[str, Any]:
        """Return a merge patch for the profile's status; {} if nothing must be written."""
        verdict, before = self._verdicts.get(name), self._shown.get(name, {})
        if verdict is None:
            return {}
        self._told[name] = self._surroundings(name)
        return _merge_patch(before, self._status(name, verdict, before))

    def surroundings_changed(self) -> list[str]:
        """Return the profiles whose status is outdated.

        Statuses depend on nodes, other profiles and the API server. Profiles with invalid
        certificate files are checked again, and put in force if they are valid now.
        """
        outdated = set[str]()
        for name, (raw, error) in tuple(self._uncertified.items()):
            if self.profiles.certificate_mistakes(error.extenders) != error.errors:
                self._take_up(raw)
                outdated.add(name)
        told = self._told.items()
        return sorted(outdated.union(n for n, said in told if said != self._surroundings(n)))

    def settle_conflicts(self) -> list[str]:
        """Return the profiles whose conflicts must be reported now; [] while profiles still change.

        After MOST_CONFLICT_WAITS calls, conflicts are reported although profiles still change.
        """
        if not self._unsettled:
            return []
        self._conflict_waits += 1
        if self._just_changed and self._conflict_waits < MOST_CONFLICT_WAITS:
            self._just_changed = False
            return []
        settled = sorted(self._unsettled)
        self._unsettled, self._conflict_waits = set(), 0
        return settled

    def warnings(self, name: str, patch: Mapping[str, Any]) -> list[tuple[ObjectRef, str, str]]:
        """Return the Events to write for a patch of the profile's status: object, reason and note.

        A text that the status has already gives no Event.
        """
        verdict, before = self._verdicts[name], self._shown[name]
        regarding = ObjectRef(KIND, name, uid=verdict.uid, api_version=API_VERSION)
        found = list[tuple[ObjectRef, str, str]]()
        after = {condition["type"]: condition for condition in patch.get("conditions") or ()}
        if "Ready" in after and not verdict.ready:
            told = [
                (condition.get("observedGeneration"), condition["message"])
                for condition in before.get("conditions") or ()
                if condition["type"] == "Ready"
            ]
            if (verdict.generation, verdict.message) not in told:
                found.append((regarding, verdict.reason, verdict.message))
        if patch.get("conflict") and "Conflicted" in after:
            found.append((regarding, "Conflicted", after["Conflicted"]["message"]))
        return found

    def ready(self) -> dict[str, bool]:
        """Return, by name of each profile, whether its newest spec is in force."""
        return {name: verdict.ready for name, verdict in self._verdicts.items()}

    def known(self) -> dict[str, str]:
        """Return the names of all known profiles by uid, without deleted profiles."""
        return {verdict.uid: name for name, verdict in self._verdicts.items()}

    def knows(self, name: str, uid: str) -> bool:
        """Return whether the profile of this name and uid is known and not deleted."""
        verdict = self._verdicts.get(name)
        return verdict is not None and verdict.uid == uid

    def verdicts(self) -> Mapping[str, dict[str, Any]]:
        """Return, by profile, whether its newest spec is in force and why, as JSON."""
        return {
            name: {
                "observedGeneration": verdict.generation,
                "ready": verdict.ready,
                "reason": verdict.reason,
                "message": verdict.message,
            }
            for name, verdict in self._verdicts.items()
        }

    def history(self) -> list[dict[str, Any]]:
        """Return the last 50 changes of profiles since this replica leads, newest first.

        A change has `time`, `profile`, `generation`, `ready`, `reason`, `message`, and `spec`: the
        spec then in force, or None if it is too large.
        """
        return self._history.values()[::-1]

    def gone(self, name: str, uid: str) -> None:
        """Take the profile with this uid out of force; its pods wait for another profile."""
        self.departures.note(uid)
        if self.knows(name, uid):
            self._remember(name, replace(self._verdicts[name], ready=False, reason="Deleted"), None)
            del self._verdicts[name]
            del self._shown[name], self._shown_versions[name]
            del self._told[name]
            self._uncertified.pop(name, None)
            self._unsettled.update(self.profiles.conflicts(name))
            self._unsettled.discard(name)
            self._just_changed = True
            self.profiles.remove(name)
            self.pod_enqueuer.profiles_changed()

    def _take_up(self, raw: Mapping[str, Any]) -> _Verdict:
        """Put the profile's spec in force, or its last valid spec; return the verdict."""
        name = raw["metadata"]["name"]
        verdict = self._verdicts[name] = self._judge(raw)
        if (why := self._over_budget(name)) is not None:
            logger.warning("profile %s: %s", name, why)
        in_force = self.profiles.in_force.get(name)
        spec = in_force.profile.manifest()["spec"] if in_force is not None else None
        self._remember(name, verdict, spec)
        return verdict

    def _judge(self, raw: Mapping[str, Any]) -> _Verdict:
        metadata = raw["metadata"]
        name, uid, generation = metadata["name"], metadata["uid"], metadata["generation"]
        self._uncertified.pop(name, None)
        try:
            self._put(raw)
        except ProfileInvalid as error:
            logger.warning("profile %s is invalid: %s", name, error)
            self._note_certificates(raw, error)
            if name not in self.profiles.in_force:
                self._restore(raw)
            if name not in self.profiles.in_force:
                self.profiles.not_in_force(name, _scheduler_names(raw))
            only_plugins = all(mistake.plugin for mistake in error.errors)
            reason = "PluginFailed" if only_plugins else "Invalid"
            former = self.profiles.in_force.get(name)
            stays = f"generation {former.profile.generation} stays in force: " if former else ""
            message = f"{stays}{error}"[:LONGEST_MESSAGE]
            return _Verdict(uid, generation, ready=False, reason=reason, message=message)
        logger.info("profile %s is in force", name, extra={"generation": generation})
        profile = self.profiles.in_force[name].profile
        pods = f"pods with schedulerName {', '.join(profile.scheduler_names)}"
        reason, message = "InForce", f"in force for {pods}"
        if profile.spec.mode == "Shadow":
            reason, message = "Shadow", f"decides about {pods} for comparison, and binds none"
        return _Verdict(uid, generation, ready=True, reason=reason, message=message)

    def _note_certificates(self, shown: Mapping[str, Any], error: ProfileInvalid) -> None:
        if isinstance(error, CertificatesInvalid):
            # To check it again: its certificates may become valid.
            self._uncertified.setdefault(shown["metadata"]["name"], (shown, error))

    def _remember(self, name: str, verdict: _Verdict, spec: dict[str, Any] | None) -> None:
        change = {
            "time": rfc3339(self.now()),
            "profile": name,
            "generation": verdict.generation,
            "ready": verdict.ready,
            "reason": verdict.reason,
            "message": verdict.message,
            "spec": spec if len(orjson.dumps(spec)) <= _MOST_SPEC_BYTES else None,
        }
        self._changes += 1
        self._history.put(self._changes, change)
        self._history.pop(self._changes - _MOST_HISTORY)

    def _put(self, raw: Mapping[str, Any]) -> None:
        name = raw["metadata"]["name"]
        is_new, before = name not in self.profiles.in_force, self.profiles.conflicts(name)
        self.profiles.apply(raw)
        after = self.profiles.conflicts(name)
        if is_new or after != before:
            self._unsettled.update((name,), before, after)
            self._just_changed = True
        self.pod_enqueuer.profiles_changed()

    def _restore(self, raw: Mapping[str, Any]) -> None:
        status, metadata = raw.get("status") or {}, raw["metadata"]
        spec, generation = status.get("inForceSpec"), status.get("inForceGeneration")
        if spec is None:
            return
        former = {**raw, "metadata": {**metadata, "generation": generation}, "spec": spec}
        try:
            self._put(former)
        except ProfileInvalid as error:
            text = "generation %s of profile %s, the last in force, is invalid too: %s"
            logger.warning(text, generation, metadata["name"], error)
            self._note_certificates(raw, error)
        else:
            text = "profile %s: generation %s stays in force; correct generation %s, see its status"
            logger.info(text, metadata["name"], generation, metadata["generation"])

    def _status(self, name: str, verdict: _Verdict, before: Mapping[str, Any]) -> dict[str, Any]:
        in_force = self.profiles.in_force.get(name)
        conflict = self._conflict(name, before)
        spec = in_force.profile.manifest()["spec"] if in_force else None
        size = len(orjson.dumps(spec))
        status = SchedulingProfileStatus(
            observed_generation=verdict.generation,
            in_force_generation=in_force.profile.generation if in_force else 0,
            conditions=tuple(self._conditions(name, verdict, before, size)),
            conflict=(conflict[0] or None) if conflict is not None else None,
            effective=in_force.effective.policy(in_force.profile) if in_force else None,
            in_force_spec=spec if size <= MOST_KEPT_BYTES else None,
        )
        found = status.model_dump(mode="json", by_alias=True, exclude_none=True)
        if in_force is not None and in_force.profile.spec.mode == "Shadow" and "shadow" in before:
            found["shadow"] = before["shadow"]  # which ShadowStatusWriter writes
        has_section = in_force is not None and in_force.profile.spec.rebalancing is not None
        if has_section and "rebalancing" in before:
            found["rebalancing"] = before["rebalancing"]  # which Rebalancer writes
        return found

    def _conditions(
        self, name: str, verdict: _Verdict, before: Mapping[str, Any], size: int
    ) -> Iterator[Condition]:
        def condition(
            kind: str, holds: Literal["True", "False"], reason: str, message: str
        ) -> Condition:
            return Condition(
                type=kind,
                status=holds,
                observed_generation=verdict.generation,
                last_transition_time=_transition_time(kind, holds, before, self.now()),
                reason=reason,
                message=message,
            )

        message = self._ready_message(name, verdict, before)
        yield condition("Ready", "True" if verdict.ready else "False", verdict.reason, message)
        if (conflict := self._conflict(name, before)) is not None:
            yield condition("Conflicted", "True", "SamePods", conflict[1])
        if (why := self._over_budget(name)) is not None:
            yield condition("OverBudget", "True", "RulesTooExpensive", why)
        reason, text = self._warning(name)
        if size > MOST_KEPT_BYTES:
            reason = reason if text is not None else "SpecNotKept"
            why = (
                f"the status does not keep the spec, because it has {size // 1024:,} KiB and not "
                f"{MOST_KEPT_BYTES // 1024} at most: a scheduler that starts while a later one is "
                "invalid has none in force"
            )
            text = "; ".join(filter(None, (text, why)))
        if text is not None:
            yield condition("Warning", "True", reason, text)

    def _ready_message(self, name: str, verdict: _Verdict, before: Mapping[str, Any]) -> str:
        if not verdict.ready:
            return verdict.message
        # Conflicts still change: the part about other profiles stays.
        if name in self._unsettled:
            conditions = before.get("conditions") or ()
            told = (str(c["message"]) for c in conditions if c["type"] == "Ready")
            return next((text for text in told if text.startswith(_OUTRANKED)), verdict.message)
        return self._outranked(name) or verdict.message

    def _outranked(self, name: str) -> str | None:
        others = self.profiles.outranked_by(name)
        if not others:
            return None
        names = self.profiles.in_force[name].profile.scheduler_names
        return (
            f"{_OUTRANKED}{listed(others, _MOST_NAMED)}, and takes no pods: all with "
            f"schedulerName {', '.join(names)} that it selects go there"
        )

    def _warning(self, name: str) -> tuple[str, str | None]:
        unknown, missing = self.profiles.unknown_server(name), self._missing(name)
        if unknown is None:
            return "NotOnAnyNode", missing
        return "UnknownServer", "; ".join(filter(None, (unknown, missing)))

    def _missing(self, name: str) -> str | None:
        warnings = self.profiles.missing_on_nodes(name)
        if not warnings:
            return None
        more = len(warnings) - _MOST_NAMED
        named = "; ".join(map(str, warnings[:_MOST_NAMED]))
        return named + (f"; and {more} more" if more > 0 else "")

    def _surroundings(self, name: str) -> _Surroundings:
        warning, outranked = self._warning(name)[1], self._outranked(name)
        return _Surroundings(self._over_budget(name), warning, outranked)

    def _conflict(self, name: str, before: Mapping[str, Any]) -> tuple[str, str] | None:
        """Return a short and a long text about the profile's conflicts with other profiles."""
        # Conflicts still change: the texts stay.
        if name in self._unsettled:
            conditions = before.get("conditions") or ()
            told = (c["message"] for c in conditions if c["type"] == "Conflicted")
            message = next(told, None)
            return (before.get("conflict") or "", message) if message is not None else None
        others = self.profiles.conflicts(name)
        return (conflict_in_short(name, others), conflict_text(name, others)) if others else None

    def _over_budget(self, name: str) -> str | None:
        in_force = self.profiles.in_force.get(name)
        left_out = in_force.pipeline.evaluations.left_out() if in_force is not None else []
        if not left_out:
            return None
        named = listed([rule for rule, _ in left_out], _MOST_NAMED)
        return f"{named} fail for every pod: {left_out[0][1]} (docs/rules.md, What rules cost)"


@dataclass(eq=False, repr=False)
class ProfileStatusWriter:
    """Gives profiles to a ProfileHandler, and writes their statuses.

    Other writers set the fields `shadow` and `rebalancing`. If the API server rejects a status, it
    is written again after some seconds, or when kopf reports the profile again. After the status,
    an Event reports the profile's mistakes.
    """

    handler: ProfileHandler
    writer: ProfileWriter
    recorder: EventRecorder
    turn: Turn
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    def __post_init__(self) -> None:
        self._slices = TimeSlices(clock=self.clock)
        self._statuses = StatusWriter[str](
            "profiles", self._write, lanes=_LANES, turn=self.turn, sleep=self.sleep
        )
        self._later: set[str] = set()
        """The profiles whose statuses are written again after `REPEAT_SECONDS`."""

    async def run(self) -> None:
        """Write statuses until cancelled, also after changes of nodes, API server or files."""
        await self._statuses.run(
            (STATUS_SECONDS, self.handler.surroundings_changed),
            (CONFLICT_SECONDS, self.handler.settle_conflicts),
            (REPEAT_SECONDS, self._take_later),
        )

    def _take_later(self) -> set[str]:
        later, self._later = self._later, set()
        return later

    async def found(self, raw: Mapping[str, Any]) -> None:
        """Put a profile in force as kopf has read it, and queue its status for writing."""
        if await self._apply(raw) is not None:
            self._statuses.note(raw["metadata"]["name"])

    async def read(self, raw: Mapping[str, Any]) -> None:
        """Put a profile in force that was read with GET, unless it is known already.

        The status is written when kopf reports the profile, or some seconds later.
        """
        if await self._apply(raw, unless_known=True) is not None:
            self._later.add(raw["metadata"]["name"])

    async def _apply(
        self, raw: Mapping[str, Any], *, unless_known: bool = False
    ) -> dict[str, Any] | None:
        """Put a profile in force; return a patch for its status."""
        name, uid = raw["metadata"]["name"], raw["metadata"]["uid"]
        with self.handler.departures.meanwhile() as gone:
            async with self.turn:
                # Nothing changes if the profile was deleted meanwhile.
                if uid in gone or (unless_known and self.handler.knows(name, uid)):
                    return None
                slices = TimeSlices(clock=self._slices.clock)
                status = await slices.run(partial(self.handler.applied, raw))
                self._seen(raw["metadata"])
                return status

    def _seen(self, metadata: Mapping[str, Any]) -> None:
        name, uid = metadata["name"], metadata["uid"]
        if self.handler.knows(name, uid):
            self.writer.seen(name, uid, metadata.get("resourceVersion", ""))

    async def gone(self, name: str, uid: str) -> None:
        """Take a deleted profile out of force, and forget its status."""
        await self.turn.run(partial(self.handler.gone, name, uid))
        self.writer.gone(name, uid)
        self._statuses.forget(name)

    async def _write(self, name: str) -> None:
        await self._slices.pause()  # of a thousand profiles, all are looked at
        self._later.discard(name)
        patch = self.handler.patch(name)
        if not patch:
            return
        warnings = self.handler.warnings(name, patch)
        try:
            await self.writer.patch_status(name, patch)
        except (*RETRIED, NotFoundError):
            raise
        except ApiError:
            self._later.add(name)
            raise
        for regarding, reason, note in warnings:
            self.recorder.record(regarding, "Warning", reason, "Applying", note)


def _without_moves(status: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**status, "rebalancing": {}} if "rebalancing" in status else status


def _scheduler_names(raw: Mapping[str, Any]) -> tuple[str, ...]:
    spec = raw.get("spec")
    if isinstance(spec, Mapping) and spec.get("mode") == "Shadow":
        return ()
    match = spec.get("match") if isinstance(spec, Mapping) else None
    names = match.get("schedulerNames") if isinstance(match, Mapping) else None
    if isinstance(names, list | tuple) and names:
        return tuple(name for name in names if isinstance(name, str))
    return (raw["metadata"]["name"],)


def _is_older(metadata: Mapping[str, Any], than: str) -> bool:
    version = metadata.get("resourceVersion", "")
    return version.isdecimal() and than.isdecimal() and int(version) < int(than)


def _transition_time(kind: str, holds: str, before: Mapping[str, Any], now: float) -> str:
    for condition in before.get("conditions") or ():
        if condition.get("type") == kind and condition.get("status") == holds:
            return str(condition.get("lastTransitionTime"))
    return rfc3339(now)


def _merge_patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    # RFC 7386.
    patch: dict[str, Any] = {field: None for field in before if field not in after}
    for field, value in after.items():
        old = before.get(field)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            if inner := _merge_patch(old, value):
                patch[field] = inner
        elif field not in before or value != old:
            patch[field] = value
    return patch
