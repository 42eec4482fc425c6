"""Profiles with status and history, and the decisions of shadow profiles."""

from typing import Any

from mooring.handlers.profile_handler import ProfileHandler
from mooring.page.policy_view import PolicyView
from policies import profile
from scheduler_states import scheduler_state, silent_pod_enqueuer

NO_SHADOWS: dict[str, Any] = {"profiles": {}, "pods": []}


def document(*, generation: int = 1, name: str = "packed", **spec: Any) -> dict[str, Any]:
    return profile(name, {"uid": f"uid-{name}", "generation": generation}, **spec)


class Stage:
    """A handler that gets profiles, and the page's view of these profiles."""

    def __init__(self, shadow: dict[str, Any] | None = None) -> None:
        shared = scheduler_state()
        self.handler = ProfileHandler(shared.profiles, silent_pod_enqueuer(shared))
        self.policy = PolicyView(shared.profiles, self.handler, lambda _: shadow or NO_SHADOWS)

    def shown(self, *visible: str) -> dict[str, Any]:
        return self.policy.document(frozenset(visible))


def test_a_profile_in_force_is_shown_with_its_plugins_and_status() -> None:
    stage = Stage()
    stage.handler.applied(document(percentageOfNodesToScore=50))
    (profile,) = stage.shown()["profiles"]
    assert (profile["name"], profile["generation"], profile["mode"]) == ("packed", 1, "Active")
    assert profile["status"]["ready"]
    assert profile["spec"] == {"percentageOfNodesToScore": 50}
    assert {"name": "NodeResourcesFit", "weight": 1} in profile["effective"]["plugins"]["score"]


def test_an_invalid_generation_is_shown_beside_the_one_that_stays_in_force() -> None:
    stage = Stage()
    stage.handler.applied(document())
    stage.handler.applied(document(generation=2, percentageOfNodesToScore=500))
    (profile,) = stage.shown()["profiles"]
    assert profile["generation"] == 1
    assert not profile["status"]["ready"]
    assert profile["status"]["observedGeneration"] == 2
    assert "percentageOfNodesToScore" in profile["status"]["message"]


def test_a_profile_that_was_never_in_force_is_shown_with_its_mistakes() -> None:
    stage = Stage()
    stage.handler.applied(document(percentageOfNodesToScore=500))
    (profile,) = stage.shown()["profiles"]
    assert (profile["generation"], profile["effective"], profile["spec"]) == (0, None, None)
    assert profile["status"]["reason"] == "Invalid"


def test_passwords_and_keys_of_extenders_are_not_shown() -> None:
    stage = Stage()
    extender = {
        "urlPrefix": "https://ann:secret@extender.example/api?token=secret#secret",
        "filterVerb": "filter",
        "enableHTTPS": True,
        "tlsConfig": {"insecure": True, "serverName": "private.example"},
    }
    stage.handler.applied(document(extenders=[extender]))
    shown = stage.shown()
    assert "secret" not in str(shown)
    assert "private.example" not in str(shown)
    (profile,) = shown["profiles"]
    assert profile["spec"]["extenders"][0]["urlPrefix"] == "https://extender.example/api"
    assert shown["history"][0]["spec"] == profile["spec"]


def test_comparisons_of_pods_of_other_namespaces_are_left_out() -> None:
    records = [{"pod": "bank/vault", "result": "same"}, {"pod": "shop/web", "result": "tied"}]
    stage = Stage({"profiles": {"canary": {"compared": 2}}, "pods": records})
    assert stage.policy.namespaces() == ["bank", "shop"]
    shown = stage.shown("shop")
    assert shown["compared"] == [records[1]]
    assert shown["shadow"] == {"canary": {"compared": 2}}
