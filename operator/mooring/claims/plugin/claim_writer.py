"""Writes claims: PreBind allocates and reserves, Unreserve removes reservations, PostFilter frees.

Every write names the version of the claim that it changes. After a conflict, or without an answer,
the claim is read and the write is decided anew. So a write is never done twice.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from mooring.claims.model.resource_claims import (
    FINALIZER,
    Allocation,
    ConsumerReference,
    ResourceClaim,
    allocation_fields,
    parse_resource_claim,
    unreadable_claim,
)
from mooring.claims.plugin.extended_resource_claims import NewClaim
from mooring.claims.plugin.pod_claims import consumer, is_reserved, may_be_freed
from mooring.framework.handle import Api, ReadAgainError, VolumeAssumeCache
from mooring.framework.verdicts import PluginError
from mooring.model.manifest_error import ManifestError
from mooring.model.pod import Pod, Uid
from mooring.state.cluster_view import ClusterView

_CLAIMS: Final = "resourceclaims"
_LONGEST_DELAY: Final = 120.0
"""The seconds after which PreBind fails if the watch has not shown the claim that it created."""
_MOST_TRIES: Final = 5
"""The most tries to write a claim that other writers keep changing; then the write fails."""


class ClaimWriter:
    """Writes claims for pods; a claim has only one writer at a time.

    A claim is in flight for a pod while its allocation to this pod is not written yet.
    """

    def __init__(self, api: Api, cache: VolumeAssumeCache, cluster: ClusterView) -> None:
        self._api = api
        self._cache = cache
        self._claims = cluster.dynamic_resources.claims
        self._cluster = cluster
        self._deallocating: dict[str, None] = {}
        """The uids of the claims whose devices are being freed."""

    async def reserve(
        self, pod: Pod, claim: ResourceClaim, allocation: Allocation, *, is_new: bool
    ) -> None:
        """Reserve the claim for the pod, and write the allocation if it is new.

        Afterwards, the claim is not in flight for the pod. Raises PluginError if the claim is no
        longer usable, or changes at each try.
        """
        async with self._api.alone(claim.uid):
            claim = self._claims.of_uid(claim.uid) or claim
            for _ in range(_MOST_TRIES):
                if (changed := _changed(claim, allocation, is_new=is_new)) is not None:
                    raise PluginError(changed)
                try:
                    if not is_reserved(claim, pod, self._cluster):
                        if claim.allocation is None and FINALIZER not in claim.finalizers:
                            finalizers = [*claim.finalizers, FINALIZER]
                            claim = await self._update(claim, finalizers=finalizers)
                        status = self._reservation(pod, claim, allocation)
                        claim = await self._update(claim, status=status)
                    break
                except ReadAgainError as error:
                    problem, latest = str(error), await self._read(claim)
                if latest is None:
                    raise PluginError(f"claim {claim.key} got deleted in the meantime")
                claim = latest
            else:
                raise PluginError(f"claim {claim.key} changes all the time: {problem}")
            self._cache.assume_claim(claim)
            self._cache.release_claims(pod.uid, [claim.uid])

    async def create(self, pod: Pod, new: NewClaim) -> ResourceClaim:
        """Create the claim for the pod's extended resources and return it."""
        return parse_resource_claim(await self._api.create(_CLAIMS, new.fields(pod)))

    async def until_known(self, claim: ResourceClaim) -> None:
        """Wait until the watch shows the created claim; PluginError if that takes too long."""
        try:
            await self._api.until(
                lambda: self._claims.of_uid(claim.uid) is not None, _LONGEST_DELAY
            )
        except TimeoutError as error:
            raise PluginError(
                f"claim {claim.key} was created, but the watch has not shown it after "
                f"{_LONGEST_DELAY:g} s"
            ) from error

    async def delete(self, pod: Pod, claim: ResourceClaim) -> None:
        """Delete a claim that an earlier attempt created, unless the pod is on a node now."""
        async with self._api.alone(claim.uid):
            latest = await self._read(claim)
            if latest is not None and not self._cluster.is_placed(pod):
                await self._delete(latest)

    async def unreserve(self, pod: Pod, claims: Iterable[ResourceClaim], holder: Uid) -> None:
        """Remove the pod's reservations, or delete claims for its extended resources.

        Nothing is written if the pod is on a node again. Afterwards, no claim is in flight for
        `holder`. Raises the first error after all claims have been tried.
        """
        failed: Exception | None = None
        for claim in claims:
            try:
                async with self._api.alone(claim.uid):
                    latest = await self._read(claim)
                    if latest is not None and not self._cluster.is_placed(pod):
                        if latest.for_extended_resources and latest.controller_uid == pod.uid:
                            await self._delete(latest)
                        else:
                            await self._unreserve(pod, latest)
            except Exception as error:  # noqa: BLE001 - raised below, when all claims are done
                failed = failed or error
            self._cache.release_claims(holder, [claim.uid])
        if failed is not None:
            raise failed

    def deallocate_later(self, pod: Pod, claim: ResourceClaim) -> None:
        """Free the claim's devices in a task, unless a task for this claim runs already.

        The task frees nothing if the claim has changed, another pod uses it, or the pod is on a
        node.
        """
        if claim.uid not in self._deallocating:
            self._deallocating[claim.uid] = None
            self._api.later(partial(self._deallocate, pod, claim))

    async def _deallocate(self, pod: Pod, claim: ResourceClaim) -> None:
        freed = {"allocation": None, "reservedFor": None, "devices": None}
        try:
            async with self._api.alone(claim.uid):
                latest = await self._read(claim)
                if (
                    latest is not None
                    and latest.allocation == claim.allocation
                    and not self._cluster.is_placed(pod)
                    and may_be_freed(latest, pod, self._cluster)
                ):
                    self._cache.assume_claim(await self._update(latest, status=freed))
        except ReadAgainError:
            pass  # the next attempt finds out
        finally:
            del self._deallocating[claim.uid]

    def _reservation(
        self, pod: Pod, claim: ResourceClaim, allocation: Allocation
    ) -> dict[str, Any]:
        mine = consumer(claim, pod, self._cluster)
        status: dict[str, Any] = {"reservedFor": _consumers([*claim.reserved_for, mine])}
        known = claim.allocation
        if known is None:
            status["allocation"] = allocation_fields(allocation)
        if known is None or known.time is None:
            status.setdefault("allocation", {})["allocationTimestamp"] = self._now()
        return status

    async def _unreserve(self, pod: Pod, claim: ResourceClaim) -> None:
        latest: ResourceClaim | None = claim
        for _ in range(_MOST_TRIES):
            if latest is None:
                return
            self._cache.assume_claim(latest)
            others = [each for each in latest.reserved_for if each.uid != pod.uid]
            try:
                if len(others) < len(latest.reserved_for):
                    status = {"reservedFor": _consumers(others) or None}
                    latest = await self._update(latest, status=status)
                elif latest.allocation is None and not latest.malformed:
                    # The claim gets a new version, so an earlier write that arrives late fails. It
                    # must not allocate devices that another claim may have by then.
                    latest = await self._without_finalizer(latest)
                # A reservation for the pod's group stays: other members may use the claim.
            except ReadAgainError:
                latest = await self._read(latest)
            else:
                self._cache.assume_claim(latest)
                return
        raise PluginError(f"claim {claim.key} stays reserved for pod {pod.key}: it changes often")

    async def _delete(self, claim: ResourceClaim) -> None:
        latest: ResourceClaim | None = claim
        for _ in range(_MOST_TRIES):
            if latest is None:
                return
            try:
                latest = await self._without_finalizer(latest)
            except ReadAgainError:
                latest = await self._read(latest)
            else:
                await self._api.delete(_CLAIMS, latest.namespace, latest.name, latest.uid)
                return
        raise PluginError(f"claim {claim.key} cannot be deleted: it changes often")

    async def _without_finalizer(self, claim: ResourceClaim) -> ResourceClaim:
        if FINALIZER not in claim.finalizers:
            return claim
        others = [each for each in claim.finalizers if each != FINALIZER]
        return await self._update(claim, finalizers=others)

    async def _read(self, claim: ResourceClaim) -> ResourceClaim | None:
        raw = await self._api.read(_CLAIMS, claim.namespace, claim.name)
        latest = _parsed(raw, claim) if raw is not None else None
        return latest if latest is not None and latest.uid == claim.uid else None

    async def _update(
        self,
        claim: ResourceClaim,
        *,
        status: Mapping[str, Any] | None = None,
        finalizers: list[str] | None = None,
    ) -> ResourceClaim:
        patch: dict[str, Any] = {"metadata": {"resourceVersion": claim.resource_version}}
        if finalizers is not None:
            patch["metadata"]["finalizers"] = finalizers
        if status is not None:
            patch["status"] = status
        part = "status" if status is not None else None
        namespace, name = claim.namespace, claim.name
        raw = await self._api.update(_CLAIMS, namespace, name, patch, subresource=part)
        return _parsed(raw, claim)

    def _now(self) -> str:
        seconds = self._api.unix_nanoseconds() // 10**9
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _changed(claim: ResourceClaim, allocation: Allocation, *, is_new: bool) -> str | None:
    if claim.malformed:
        return f"a claim cannot be read: {claim.malformed}"
    if claim.deleting:
        return f"claim {claim.key} got deleted in the meantime"
    if claim.allocation is None and not is_new:
        return f"claim {claim.key} got deallocated elsewhere in the meantime"
    if claim.allocation is not None and _devices(allocation) != _devices(claim.allocation):
        return f"claim {claim.key} got allocated elsewhere in the meantime"
    return None


def _parsed(raw: Mapping[str, Any], known: ResourceClaim) -> ResourceClaim:
    try:
        return parse_resource_claim(raw)
    except ManifestError as error:
        return unreadable_claim(raw, str(error), known)


def _devices(allocation: Allocation) -> list[tuple[Any, ...]]:
    return [(r.request, r.device, r.share_id) for r in allocation.results]


def _consumers(consumers: Iterable[ConsumerReference]) -> list[dict[str, str]]:
    return [
        ({"apiGroup": c.group} if c.group else {})
        | {"resource": c.resource, "name": c.name, "uid": c.uid}
        for c in consumers
    ]
