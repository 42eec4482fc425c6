"""Does the work of the controllers of volumes, claims and disruption budgets, which do not run."""

import threading
from http.client import HTTPException
from typing import Any, Final, Self

from controlplane import Access, ApiError
from controlplane.client import Client
from soak.workloads import BUDGET, CLAIMS

Raw = dict[str, Any]

TICK_SECONDS: Final = 0.5
VOLUMES: Final = "/api/v1/persistentvolumes"
ALLOWED: Final = 2
"""The disruptions that the budget allows again after each look."""


class Controllers:
    """A thread that binds volumes which Mooring chose, frees devices and renews the budget."""

    def __init__(self, access: Access, namespace: str) -> None:
        self._access = access
        self._claims = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"
        self._device_claims = CLAIMS.format(namespace)
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
        self._budget = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets/{BUDGET}"
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(TICK_SECONDS):
            try:
                with self._access.client() as client:
                    self._free_devices(client)
                    self._bind_volumes(client)
                    self._renew_budget(client)
            except (ApiError, OSError, HTTPException):
                continue  # an object changed or went meanwhile, or the API server is away

    def _free_devices(self, client: Client) -> None:
        """Remove pods that have gone from the claims; without pods, a claim's devices are free."""
        claims = client.get(self._device_claims)["items"]
        there = {raw["metadata"]["uid"] for raw in client.get(self._pods)["items"]}
        for claim in claims:
            status = claim.get("status") or {}
            known = status.get("reservedFor") or []
            left = [each for each in known if each["uid"] in there]
            if len(left) == len(known):
                continue
            freed = {"reservedFor": left} if left else {"reservedFor": None, "allocation": None}
            version = {"resourceVersion": claim["metadata"]["resourceVersion"]}
            path = f"{self._device_claims}/{claim['metadata']['name']}/status"
            client.patch(path, {"metadata": version, "status": freed})

    def _bind_volumes(self, client: Client) -> None:
        """Bind claims to their chosen volumes; free the volumes of deleted claims.

        Otherwise a claim might wait for ever: any claim may get a volume made for another claim,
        and when it is deleted, the volume stays bound to it.
        """
        volumes = client.get(VOLUMES)["items"]  # before the claims, which may be newer
        claims = {raw["metadata"]["uid"]: raw for raw in client.get(self._claims)["items"]}
        for claim in claims.values():
            if claim["metadata"].get("deletionTimestamp"):
                path = f"{self._claims}/{claim['metadata']['name']}"
                client.patch(path, {"metadata": {"finalizers": None}})
        for volume in volumes:
            path = f"{VOLUMES}/{volume['metadata']['name']}"
            if volume["metadata"].get("deletionTimestamp"):
                client.patch(path, {"metadata": {"finalizers": None}})
                continue
            if not (reference := volume["spec"].get("claimRef")):
                if volume["status"]["phase"] != "Available":
                    client.patch(f"{path}/status", {"status": {"phase": "Available"}})
                continue
            chosen = claims.get(reference["uid"])
            if chosen is None:
                version = {"resourceVersion": volume["metadata"]["resourceVersion"]}
                client.patch(path, {"metadata": version, "spec": {"claimRef": None}})
            elif not chosen["spec"].get("volumeName"):
                self._bind(client, path, volume["metadata"]["name"], chosen)

    def _bind(self, client: Client, volume: str, name: str, claim: Raw) -> None:
        path = f"{self._claims}/{claim['metadata']['name']}"
        completed = {
            "uid": claim["metadata"]["uid"],  # refused if it is another claim of the name
            "annotations": {"pv.kubernetes.io/bind-completed": "yes"},
        }
        client.patch(path, {"metadata": completed, "spec": {"volumeName": name}})
        client.patch(f"{volume}/status", {"status": {"phase": "Bound"}})
        client.patch(f"{path}/status", {"status": {"phase": "Bound"}})

    def _renew_budget(self, client: Client) -> None:
        found = client.get(self._budget)
        status = {
            "disruptionsAllowed": ALLOWED,
            "observedGeneration": found["metadata"]["generation"],
            "expectedPods": 100,
            "currentHealthy": 100,
            "desiredHealthy": 100 - ALLOWED,
            "disruptedPods": {},
        }
        if found.get("status", {}).get("disruptionsAllowed") != ALLOWED:
            client.patch(f"{self._budget}/status", {"status": status})
