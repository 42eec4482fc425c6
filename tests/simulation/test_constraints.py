"""The simulation's own check of constraints between a pod, a node and neighbours."""

from typing import Any

import pytest

from mooring.model.node import HOSTNAME, ZONE
from mooring.testing.builders import node, pod
from simulation.constraints import Surroundings, keeps_away, refusal
from simulation.storage import Raw

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def term(app: str, key: str = ZONE) -> dict[str, Any]:
    return {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}


def apart(app: str) -> dict[str, Any]:
    return {"podAntiAffinity": {REQUIRED: [term(app)]}}


def together(app: str) -> dict[str, Any]:
    return {"podAffinity": {REQUIRED: [term(app)]}}


def spread(app: str, key: str = ZONE, **more: Any) -> dict[str, Any]:
    rule = {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", **term(app, key), **more}
    return {"spread": [rule]}


def running(name: str, app: str = "web", on: str = "a1", **given: Any) -> Raw:
    return pod(name, labels={"app": app}, node=on, **given)


NODES = [node("a1", zone="a"), node("a2", zone="a"), node("b1", zone="b")]
BY_NAME = {raw["metadata"]["name"]: (raw,) for raw in NODES}


@pytest.mark.parametrize(
    ("wanted", "beside", "why"),
    [
        (pod(node_selector={ZONE: "b"}), [], "its labels are"),
        (pod(ports=[80]), [running("x", ports=[80])], "x has its host port"),
        (pod(ports=[80]), [running("x", ports=[{"hostPort": 80, "hostIP": "10.0.0.1"}])], "x has"),
        (pod(ports=[80]), [running("x", ports=[{"hostPort": 80, "protocol": "UDP"}])], None),
        (pod(ports=[80]), [running("x", on="a2", ports=[80])], None),
        (pod(ports=[80]), [running("x", ports=[80], phase="Succeeded")], None),
        (pod(affinity=apart("web")), [running("x", on="a2")], "it is not to be with x"),
        (pod(affinity=apart("web")), [running("x", on="b1")], None),
        (pod(labels={"app": "db"}), [running("x", affinity=apart("db"))], "x is not to be with it"),
        (pod(labels={"app": "web"}), [running("x", affinity=apart("db"))], None),
        (pod(affinity=together("web")), [running("x", on="b1")], "nobody is there"),
        (pod(affinity=together("web")), [running("x", on="a2")], None),
        (pod(affinity=together("web"), labels={"app": "web"}), [], None),
        (pod(affinity=together("web"), labels={"app": "web"}), [running("x", on="b1")], "nobody"),
        (pod(labels={"app": "web"}, **spread("web")), [running("x")], "skew"),
        (pod(labels={"app": "web"}, **spread("web")), [running("x", terminating=True)], None),
        (pod(labels={"app": "web"}, **spread("web")), [running("x"), running("y", on="b1")], None),
        (pod(labels={"app": "web"}, **spread("web", minDomains=3)), [running("x")], "skew"),
        (pod(**spread("web", "rack")), [], "it lacks one of the labels"),
    ],
)
def test_a_node_is_refused_for_a_reason(wanted: Raw, beside: list[Raw], why: str | None) -> None:
    said = refusal(wanted, "a1", Surroundings.known_exactly(NODES, beside))
    assert (said is None) == (why is None)
    assert (why or "") in (said or "")


def test_a_tainted_or_cordoned_node_takes_those_who_tolerate_it() -> None:
    tainted = node("a1", taints=["dedicated=x:NoSchedule"])
    cordoned = node("a2", unschedulable=True)
    around = Surroundings.known_exactly([tainted, cordoned], [])
    tolerant = pod(tolerations=[{"operator": "Exists"}])
    assert [refusal(pod(), name, around) is None for name in ("a1", "a2")] == [False, False]
    assert [refusal(tolerant, name, around) is None for name in ("a1", "a2")] == [True, True]


def test_what_may_have_gone_keeps_nobody_away_and_what_may_be_there_is_company() -> None:
    other = running("x")
    unsure = Surroundings(BY_NAME, {"x": [other, None]})
    assert refusal(pod(affinity=apart("web")), "a1", unsure) is None
    assert refusal(pod(affinity=together("web")), "a1", unsure) is None


def test_a_node_that_was_suitable_a_moment_ago_is_not_refused() -> None:
    changed = [node("a1"), node("a1", labels={HOSTNAME: "a1", "size": "s"})]
    around = Surroundings({"a1": changed}, {})
    assert refusal(pod(node_selector={"size": "s"}), "a1", around) is None
    assert refusal(pod(node_selector={"size": "l"}), "a1", around) is not None


def test_a_nominated_pod_keeps_those_away_by_its_terms_who_have_terms_themselves() -> None:
    """For a pod without terms, kube-scheduler skips the plugin and so ignores nominated pods."""
    nominated = pod("x", affinity=apart("db"))
    here, labels = NODES[0], {"app": "db"}
    assert keeps_away(pod(labels=labels), here, nominated) is None
    said = keeps_away(pod(labels=labels, affinity=together("web")), here, nominated)
    assert said == "x is not to be with it"
