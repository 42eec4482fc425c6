from typing import Any

from mooring.framework.registry import Registry
from mooring.plugins import SHIPPED
from mooring.simulate.inputs import inputs_of
from mooring.simulate.manifests import Manifest
from mooring.testing.builders import node, pdb, pod
from storage_builders import pvc, storage_class

LABELS = {"app": "web"}
RUNNING = pod("web", labels=LABELS, node="n1")


def notes(*objects: dict[str, Any]) -> tuple[str, ...]:
    manifests = (Manifest("file", raw) for raw in objects)
    return inputs_of(manifests, Registry(SHIPPED, {})).notes


def new(raw: dict[str, Any]) -> dict[str, Any]:
    """Return the object as a user writes it."""
    return {**raw, "metadata": {"name": raw["metadata"]["name"]}}


def without_status(name: str = "few") -> dict[str, Any]:
    raw = new(pdb(name, LABELS))
    del raw["status"]
    return raw


def test_budgets_without_a_status_are_named_where_they_select_a_pod_that_runs() -> None:
    (note,) = notes(RUNNING, *(without_status(name) for name in "abcde"))
    assert "default/a, default/b, default/c and 2 more without status.disruptionsAllowed" in note
    assert notes(pod("waits", labels=LABELS), without_status()) == ()
    assert notes(pod("other", node="n1"), without_status()) == ()


def test_nothing_is_said_of_budgets_that_say_what_they_allow_or_that_a_cluster_has_stored() -> None:
    stored = pdb("few", LABELS)
    del stored["status"]
    assert notes(RUNNING, new(pdb("few", LABELS))) == notes(RUNNING, stored) == ()
    assert notes(RUNNING, stored, without_status()) != ()
    assert notes(RUNNING, without_status(), stored) != ()


def waits_for(claim: str) -> dict[str, Any]:
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": claim}}
    return pod("waits", spec={"volumes": [volume]})


def test_claims_that_a_volume_controller_would_bind_are_named() -> None:
    later = storage_class("later")
    (note,) = notes(node("n1"), pvc("data", storage_class="gone"), waits_for("data"))
    assert note.startswith("no volume controller binds claims: default/data stays unbound")
    assert notes(later, pvc("data", storage_class="later"), waits_for("data")) == ()
    assert notes(pvc("data", volume="v"), waits_for("data")) == ()
    assert notes(pvc("data", storage_class="gone"), pod("waits")) == notes(waits_for("none")) == ()
