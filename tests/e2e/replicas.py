"""Runs replicas of Mooring as processes, and reads their cluster as a user sees it.

The functions that wait poll with a deadline: the API server reports when a pod is bound, but
nothing reports when a log line was written or a port was opened.
"""

import json
import os
import signal
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Final, TypeVar

import replica
from certificates import insecure
from controlplane import Access
from controlplane.access import ADMIN
from controlplane.client import ApiError, Client
from controlplane.processes import ProcessGroup, Program
from controlplane.tls import tls_opener
from mooring.kube.api_resources import Resource

Raw = dict[str, Any]
T = TypeVar("T")

CRDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
PROFILES: Final = "/apis/scheduling.mooring.dev/v1alpha1/schedulingprofiles"
QUICK_LEASE: Final = ("--lease-duration=6", "--renew-deadline=5", "--retry-period=0.5")
"""A replica that is killed is followed after six seconds instead of fifteen.

A busy machine holds a process up for a second or two, in which it must not lose its lease.
"""

WAIT_SECONDS: Final = 120.0
LOOK_AGAIN: Final = 0.05
LOOK_LATER: Final = 0.25
"""Seconds between two looks of somebody who has waited for five; each look costs two processes."""


def eventually(
    ask: Callable[[], T],
    holds: Callable[[T], object],
    what: str,
    *,
    seconds: float = WAIT_SECONDS,
) -> T:
    """Call `ask` until `holds` accepts its result, and return the result."""
    began = time.monotonic()
    while not holds(answer := ask()):
        waited = time.monotonic() - began
        assert waited < seconds, f"{what} did not come about; at last: {answer!r:.2000}"
        time.sleep(min(max(LOOK_AGAIN, waited / 20), LOOK_LATER))
    return answer


class Replica:
    """One running process of `mooring run`."""

    def __init__(self, program: Program, token: str) -> None:
        self._program = program
        self._token = token

    def log(self) -> list[Raw]:
        """Return the records of the log; a line that is no JSON becomes the message of a record."""
        lines = self._program.log.read_text().splitlines()
        return [json.loads(line) if line.startswith("{") else {"message": line} for line in lines]

    def says(self, words: str) -> bool:
        """Return whether the message of a log record contains these words."""
        return any(words in record["message"] for record in self.log())

    def wait_until_says(self, words: str) -> None:
        """Wait until the message of a log record contains these words."""
        eventually(self._messages, lambda all_: words in all_, f"the log line {words!r}")

    def wait_until_leads(self) -> None:
        """Wait until the replica holds the lease and is ready."""
        self.wait_until_says("leading:")
        eventually(lambda: self.get("/readyz")[0], lambda status: status == 200, "readiness")

    @cached_property
    def url(self) -> str:
        """The URL of the endpoints; the property waits until they are served."""
        [address] = eventually(self._addresses, bool, "an open port")
        return f"https://{address}"

    def get(self, path: str, token: str | None = None) -> tuple[int, str]:
        """Return status and text of an endpoint's answer, as admin or as the token's user."""
        headers = {"Authorization": f"Bearer {token or self._token}"}
        request = urllib.request.Request(f"{self.url}{path}", headers=headers)  # noqa: S310 - https
        try:
            with tls_opener(insecure()).open(request, timeout=15) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as rejection:
            with rejection:
                return rejection.code, rejection.read().decode()

    def terminate(self) -> int | None:
        """Send SIGTERM; return the exit code, or None if the process exceeds the grace period."""
        os.kill(self._program.pid, signal.SIGTERM)
        return self.wait()

    def wait(self, seconds: float = WAIT_SECONDS) -> int | None:
        """Return the exit code; None if the process has not ended after `seconds`."""
        return self._program.wait(seconds)

    def kill(self) -> None:
        """Kill the process with SIGKILL."""
        os.kill(self._program.pid, signal.SIGKILL)
        self._program.wait()

    def pause(self) -> None:
        """Stop the process with SIGSTOP, as a suspended host does."""
        os.kill(self._program.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Continue a process that `pause` stopped."""
        os.kill(self._program.pid, signal.SIGCONT)

    def _messages(self) -> str:
        return "\n".join(record["message"] for record in self.log())

    def _addresses(self) -> list[str]:
        return [record["address"] for record in self.log() if "address" in record]


class Replicas:
    """Starts replicas as the shipped service account; they end with the context."""

    def __init__(self, access: Access, folder: Path, group: ProcessGroup) -> None:
        self._kubeconfig = access.kubeconfig_for_service_account(*replica.SERVICE_ACCOUNT)
        self._token = access.tokens[ADMIN]
        self._folder = folder
        self._group = group
        self._started = 0

    @classmethod
    @contextmanager
    def of(cls, access: Access, folder: Path) -> Iterator["Replicas"]:
        """Yield an object that starts replicas; fail at the end if a log has a traceback."""
        with ProcessGroup() as group:
            yield cls(access, folder, group)
        for log in folder.glob("mooring-*.log"):
            assert "Traceback" not in log.read_text(), log.read_text()

    def start(
        self,
        *options: str,
        kubeconfig: Path | None = None,
        packages: Path | None = None,
        in_pod: bool = False,
    ) -> Replica:
        """Start a replica without waiting for it; it also imports packages from this folder.

        With `in_pod`, its environment is that of a pod.
        """
        self._started += 1
        environment = replica.environment()
        if in_pod:
            environment["KUBERNETES_SERVICE_HOST"] = "10.0.0.1"
        if packages is not None:
            environment["PYTHONPATH"] += f"{os.pathsep}{packages}"
        log = self._folder / f"mooring-{self._started}.log"
        program = self._group.spawn(
            "mooring",
            replica.command(kubeconfig or self._kubeconfig, 0, "--log-format=json", *options),
            log=log,
            env=environment,
        )
        return Replica(program, self._token)


def pod(name: str, *, cpu: str = "100m", scheduler: str = "mooring", **fields: Any) -> Raw:
    """Return a pod with one container; `labels` go to its metadata, other fields to its spec."""
    requests = {"cpu": cpu, **fields.pop("requests", {})}
    resources = {"requests": requests, "limits": fields.pop("limits", {})}
    return {
        "metadata": {"name": name, "labels": fields.pop("labels", {})},
        "spec": {
            "schedulerName": scheduler,
            "containers": [{"name": "c", "image": "registry.example/c:1", "resources": resources}],
            **fields,
        },
    }


def create_pods(client: Client, namespace: str, *created: Raw) -> None:
    for raw in created:
        client.post(f"/api/v1/namespaces/{namespace}/pods", raw)


@contextmanager
def priority_class(client: Client, name: str, value: int) -> Iterator[None]:
    """Create a PriorityClass, and wait until the API server's admission knows it."""
    path = "/apis/scheduling.k8s.io/v1/priorityclasses"
    client.post(path, {"metadata": {"name": name}, "value": value})
    tried = pod(f"of-{name}", scheduler="nobody", priorityClassName=name)

    def refusal() -> str:
        try:
            client.post("/api/v1/namespaces/default/pods?dryRun=All", tried)
        except ApiError as error:
            return str(error)
        return ""

    eventually(refusal, lambda said: not said, f"PriorityClass {name} in admission")
    yield
    client.delete(f"{path}/{name}")


def crd(resource: Resource) -> dict[str, Any]:
    """Return a CustomResourceDefinition of the resource that accepts every field."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": resource.version, "served": True, "storage": True}
    version |= {"subresources": {"status": {}}, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource.plural}.{resource.group}"},
        "spec": {
            "group": resource.group,
            "names": {"kind": resource.kind, "plural": resource.plural},
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "versions": [version],
        },
    }


def delete_now(client: Client, namespace: str, name: str) -> None:
    """Delete the pod without a grace period, because no kubelet would end it."""
    path = f"/api/v1/namespaces/{namespace}/pods/{name}"
    client.request("DELETE", path, {"gracePeriodSeconds": 0})


def pods(client: Client, namespace: str) -> dict[str, Raw]:
    items = client.get(f"/api/v1/namespaces/{namespace}/pods")["items"]
    return {raw["metadata"]["name"]: raw for raw in items}


def bound(client: Client, namespace: str) -> dict[str, str]:
    """Return the node of every bound pod, by the pod's name."""
    found = pods(client, namespace)
    return {
        name: raw["spec"]["nodeName"] for name, raw in found.items() if "nodeName" in raw["spec"]
    }


def messages_of(client: Client, namespace: str) -> set[str]:
    """Return the messages of all conditions of the namespace's pods."""
    return {
        known.get("message", "")
        for raw in pods(client, namespace).values()
        for known in raw["status"].get("conditions", ())
    }


def ready(raw: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return status, reason and message of a profile's first condition; "" for each without one."""
    for condition in raw.get("status", {}).get("conditions", ()):
        return condition["status"], condition["reason"], condition["message"]
    return "", "", ""


def pods_per_node(client: Client, namespace: str) -> Counter[str]:
    """Return the number of the namespace's pods by node."""
    return Counter(bound(client, namespace).values())
