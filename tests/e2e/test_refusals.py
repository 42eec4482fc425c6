"""Admission policies deny Mooring's writes: users read why, and retries are not too frequent."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from controlplane.client import ApiError
from e2e.node_pool import NodePool
from e2e.replicas import eventually, pods

Raw = dict[str, Any]

ADMISSION: Final = "/apis/admissionregistration.k8s.io/v1"
WORDS: Final = "the platform team does not allow this today"


def policy(name: str, namespace: str, resource: str, operation: str) -> tuple[Raw, Raw]:
    """Return a policy that denies the operation in the namespace, and its binding."""
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "resources": [resource],
        "operations": [operation],
    }
    selector = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    return {
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"namespaceSelector": selector, "resourceRules": [rule]},
            "validations": [{"expression": "false", "message": WORDS}],
        },
    }, {
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    }


@contextmanager
def denied(pool: NodePool, resource: str, operation: str, path: str, body: Raw) -> Iterator[None]:
    """Let the API server deny the operation inside; wait by trying it with `body` at `path`."""
    name = f"{pool.name}-{operation.lower()}"
    definition, binding = policy(name, pool.name, resource, operation)
    pool.client.post(f"{ADMISSION}/validatingadmissionpolicies", definition)
    pool.client.post(f"{ADMISSION}/validatingadmissionpolicybindings", binding)

    def answer() -> str:
        try:
            pool.client.post(path, body) if operation == "CREATE" else pool.client.delete(path)
        except ApiError as error:
            return str(error)
        return ""

    try:
        eventually(answer, lambda text: WORDS in text, "a denial")
        yield
    finally:
        pool.client.delete(f"{ADMISSION}/validatingadmissionpolicybindings/{name}")
        pool.client.delete(f"{ADMISSION}/validatingadmissionpolicies/{name}")


def scheduled_condition(pool: NodePool, name: str) -> Raw:
    conditions = pods(pool.client, pool.name)[name]["status"].get("conditions", ())
    return next((dict(found) for found in conditions if found["type"] == "PodScheduled"), {})


def test_a_denied_binding_is_told_in_the_words_of_the_policy_and_asks_for_no_nodes(
    pool: NodePool,
) -> None:
    pool.add_nodes()
    path = f"/api/v1/namespaces/{pool.name}/pods/none/binding"
    target = {"metadata": {"name": "none"}, "target": {"kind": "Node", "name": "none"}}
    with denied(pool, "pods/binding", "CREATE", path, target):
        pool.add_pod("web")
        condition = eventually(
            lambda: scheduled_condition(pool, "web"),
            lambda found: found.get("reason") == "AdmissionDenied",
            "the condition",
        )
        assert condition["status"] == "False"
        assert WORDS in condition["message"]
        (event,) = eventually(lambda: pool.events("FailedScheduling"), bool, "the event")
        assert WORDS in event["note"]
    pool.wait_until_bound("web")
