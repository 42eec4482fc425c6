"""Calls the extenders of a profile in order, and combines their answers."""

import os
import ssl
import tempfile
from base64 import b64encode
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from certificates import Authority
from extending import Answers, GivenObjects, extender
from http_servers import serving
from mooring.extenders.extenders import Extenders, tls_problem
from mooring.extenders.http_client import NotLeading
from mooring.extenders.verdicts import ExtenderError, Needed, NodeFailure, PodExtenderResults
from mooring.extenders.verdicts import ExtenderResults as Found
from mooring.framework.post_filter import PreemptionCandidate, ProcessedCandidates
from mooring.model.pod import Pod, parse_pod
from mooring.policy.extender import Extender
from mooring.policy.reading import read
from mooring.state.cluster_view import ClusterView
from mooring.testing.builders import cluster, node, pod, pod_group, uid_of
from mooring.testing.fakes import pipeline

WEB = parse_pod(pod("web", priority=10))
NODES = ("n1", "n2", "n3")
ON_N1, ALSO_ON_N1 = pod("v1", node="n1", priority=1), pod("v2", node="n1", priority=1)
ON_N2, ABOVE = pod("v3", node="n2"), pod("above", node="n2", priority=10)
TOGETHER = (
    pod_group("whole", 2, disruption_mode="PodGroup"),
    *(pod(f"whole-{name}", node=name, group="whole") for name in ("n2", "n3")),
)
CLUSTER = ClusterView(cluster(*map(node, NODES), ON_N1, ALSO_ON_N1, ON_N2, ABOVE, *TOGETHER))


class Stage:
    """Extenders on loopback, and the `Extenders` that calls them."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack
        self.objects = GivenObjects(*map(node, NODES))
        self.observed: Counter[tuple[str, str]] = Counter()
        self.leads = True
        self.bound_to: str | None = None
        self.extenders = Extenders(
            self.objects,
            observe=lambda _name, verb, result, _seconds: self.observed.update([(verb, result)]),
            may_write=lambda: self.leads,
            bound_node=self._bound_node,
        )
        stack.push_async_callback(self.extenders.close)

    async def _bound_node(self, _pod: Pod) -> str | None:
        return self.bound_to

    async def serve(self, answers: Answers, *verbs: str, **fields: Any) -> Extender:
        port = await self._stack.enter_async_context(answers.serving())
        return read(Extender, extender(port, *verbs, **fields), "")

    async def answer(self, *found: Extender, **needed: Any) -> PodExtenderResults:
        answers, plugins = Found(), replace(pipeline(), extenders=found)
        await self.extenders.answer((Needed(WEB, **needed),), plugins, answers, CLUSTER)
        return answers.about(WEB)

    async def filter(self, *found: Extender) -> PodExtenderResults:
        return await self.answer(*found, nodes=NODES)

    async def preempt(
        self, *found: Extender, placeholders: Sequence[str] = ()
    ) -> ProcessedCandidates:
        """Return the candidates that the extenders keep; `placeholders` have no victims."""
        victims = {"n1": (victim("v1"), victim("v2")), "n2": (victim("v3"),)}
        candidates = tuple(
            PreemptionCandidate(node, () if node in placeholders else pods, int(node == "n1"))
            for node, pods in victims.items()
        )
        processed = (await self.answer(*found, candidates=candidates)).processed
        assert processed is not None
        return processed


def passed_and_failed(answers: PodExtenderResults) -> tuple[list[str], dict[str, NodeFailure]]:
    """Return the nodes that passed, and why each other node failed."""
    assert answers.nodes is not None
    codes = dict(zip(NODES, answers.nodes.codes.tolist(), strict=True))
    failed = {name: answers.nodes.failures[code - 1] for name, code in codes.items() if code > 0}
    return [name for name, code in codes.items() if code == 0], failed


def victim(name: str) -> Pod:
    placed = CLUSTER.pod(uid_of(name))
    assert placed is not None
    return placed.pod


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with AsyncExitStack() as stack:
        yield Stage(stack)


async def test_each_filter_gets_what_the_one_before_it_passed(stage: Stage) -> None:
    first = Answers(filter={"NodeNames": ["n3", "n1"], "FailedNodes": {"n2": "busy"}})
    second = Answers(filter={"NodeNames": ["n1"], "FailedAndUnresolvableNodes": {"n3": "never"}})
    found = [await stage.serve(first, "filter"), await stage.serve(second, "filter")]
    answers = await stage.filter(*found)
    assert [arguments["NodeNames"] for _, arguments in second.asked] == [["n3", "n1"]]
    passed, failed = passed_and_failed(answers)
    assert passed == ["n1"]
    assert failed == {
        "n2": NodeFailure("busy", resolvable=True, extender=found[0].name),
        "n3": NodeFailure("never", resolvable=False, extender=found[1].name),
    }


async def test_a_node_that_is_left_out_without_a_reason_gets_one_that_names_the_extender(
    stage: Stage,
) -> None:
    found = await stage.serve(Answers(filter={"NodeNames": ["n1", "n2"]}), "filter")
    _, failed = passed_and_failed(await stage.filter(found))
    reason = f"node(s) were filtered out by extender {found.name}"
    assert failed == {"n3": NodeFailure(reason, resolvable=False, extender=found.name)}


async def test_unresolvable_wins_where_a_node_is_in_both_maps(stage: Stage) -> None:
    maps = {"FailedNodes": {"n1": "a"}, "FailedAndUnresolvableNodes": {"n1": "b"}}
    found = await stage.serve(Answers(filter={"NodeNames": ["n2", "n3"], **maps}), "filter")
    _, failed = passed_and_failed(await stage.filter(found))
    failure = NodeFailure("b", resolvable=False, extender=found.name)
    assert failed == {"n1": failure}


async def test_when_no_node_is_left_no_further_extender_is_called(stage: Stage) -> None:
    first, second = Answers(filter={}), Answers(filter={}, prioritize=[])
    await stage.filter(
        await stage.serve(first, "filter"), await stage.serve(second, "filter", "prioritize")
    )
    assert second.asked == []


async def test_an_extender_without_a_node_cache_gets_whole_nodes(stage: Stage) -> None:
    def keeps_first(arguments: dict[str, Any]) -> object:
        return {"Nodes": {"items": arguments["Nodes"]["items"][:1]}}

    answers = Answers(filter=keeps_first)
    found = await stage.serve(answers, "filter", nodeCacheCapable=False)
    assert passed_and_failed(await stage.filter(found))[0] == ["n1"]
    (_, arguments) = answers.asked[0]
    assert arguments["NodeNames"] is None
    assert arguments["Nodes"]["items"][2]["status"]["allocatable"]["cpu"] == "4"


@pytest.mark.parametrize("answer", [500, b"no", {"Error": "no cards"}, {"NodeNames": ["n9"]}])
async def test_a_filter_that_fails_ends_the_attempt_unless_it_is_ignorable(
    stage: Stage, answer: object
) -> None:
    failing = Answers(filter=answer)
    with pytest.raises(ExtenderError, match=r'^extender ".*" failed to filter: '):
        await stage.filter(await stage.serve(failing, "filter"))
    ignored = await stage.filter(await stage.serve(failing, "filter", ignorable=True))
    assert passed_and_failed(ignored) == ([*NODES], {})


async def test_the_nominated_node_is_filtered_alone_and_not_scored(stage: Stage) -> None:
    answers = Answers(filter={"NodeNames": []}, prioritize=[])
    found = await stage.serve(answers, "filter", "prioritize")
    given = await stage.answer(found, nodes=("n2",), nominated=True)
    assert (given.nominee, given.passes_nominee, given.nodes) == ("n2", False, None)
    assert len(answers.asked) == 1


async def test_an_error_about_the_nominated_node_means_that_all_nodes_are_looked_at(
    stage: Stage,
) -> None:
    found = await stage.serve(Answers(filter=500), "filter")
    given = await stage.answer(found, nodes=("n2",), nominated=True)
    assert (given.nominee, given.passes_nominee) == ("n2", False)


def scores_of(answers: PodExtenderResults) -> dict[str, list[int]]:
    assert answers.nodes is not None
    return {name: column.tolist() for name, column in answers.nodes.scores.items()}


async def test_scores_are_multiplied_by_the_weight_and_by_ten(stage: Stage) -> None:
    scores = [{"Host": "n1", "Score": 7}, {"Host": "n9", "Score": 9}]
    found = await stage.serve(Answers(prioritize=scores), "prioritize", weight=3)
    assert scores_of(await stage.filter(found)) == {found.name: [210, 0, 0]}


async def test_scores_of_two_verbs_of_one_service_are_added(stage: Stage) -> None:
    """As in kube-scheduler (prioritizeNodes in schedule_one.go)."""
    answers = Answers(packing=[{"Host": "n1", "Score": 7}], licences=[{"Host": "n2", "Score": 1}])
    packing = await stage.serve(answers, prioritizeVerb="packing", weight=3)
    licences = packing.model_copy(update={"prioritize_verb": "licences", "weight": 2})
    assert scores_of(await stage.filter(packing, licences)) == {packing.name: [210, 20, 0]}


@pytest.mark.parametrize(
    "answer",
    [
        *(500, b"no", {}),
        *([{"Host": "n1", "Score": score}] for score in (2**62, -(2**62))),
        *(
            [{"Host": "n1", "Score": s} for s in scores]
            for scores in ((2**63 - 1, 1), (-(2**63), -1))
        ),
    ],
)
async def test_an_extender_that_fails_to_prioritize_gives_no_scores(
    stage: Stage, answer: object
) -> None:
    failing = await stage.serve(Answers(prioritize=answer), "prioritize")
    scoring = await stage.serve(Answers(prioritize=[{"Host": "n2", "Score": 1}]), "prioritize")
    assert scores_of(await stage.filter(failing, scoring)) == {scoring.name: [0, 10, 0]}


async def test_a_single_node_is_not_scored(stage: Stage) -> None:
    answers = Answers(filter={"NodeNames": ["n1"]}, prioritize=[])
    await stage.filter(await stage.serve(answers, "filter", "prioritize"))
    assert [verb for verb, _ in answers.asked] == ["filter"]


async def test_a_pod_that_has_gone_gets_no_node_and_no_extender_is_called(stage: Stage) -> None:
    answers = Answers()
    found = await stage.serve(answers, "filter", "preempt")
    stage.objects.gone.add("web")
    passed, failed = passed_and_failed(await stage.filter(found))
    assert (passed, failed["n1"].reason) == ([], "the pod does not exist any more")
    assert not (await stage.answer(found, nodes=("n2",), nominated=True)).passes_nominee
    assert (await stage.preempt(found)).candidates == ()
    assert answers.asked == []


async def test_an_ignorable_extender_that_fails_is_called_about_no_more_pods(stage: Stage) -> None:
    broken = Answers(filter=500, prioritize=500)
    found = await stage.serve(broken, "filter", "prioritize", ignorable=True)
    plugins, answers = replace(pipeline(), extenders=(found,)), Found()
    members = [parse_pod(pod(f"w{number}")) for number in range(100)]
    await stage.extenders.answer(
        [Needed(member, NODES) for member in members], plugins, answers, CLUSTER
    )
    assert Counter(verb for verb, _ in broken.asked) == {"filter": 16, "prioritize": 16}
    assert not any(map(answers.lack, members))


async def test_a_failure_about_one_of_several_pods_ends_the_other_calls(stage: Stage) -> None:
    found = await stage.serve(Answers(filter=500), "filter")
    plugins = replace(pipeline(), extenders=(found,))
    needed = [Needed(parse_pod(pod(f"w{number}")), NODES) for number in range(40)]
    with pytest.raises(ExtenderError, match="failed to filter: it answered with status 500"):
        await stage.extenders.answer(needed, plugins, Found(), CLUSTER)


def meta(**victims: list[str]) -> dict[str, Any]:
    return {
        "NodeNameToMetaVictims": {
            found: {"Pods": [{"UID": victim(name).uid} for name in names], "NumPDBViolations": 0}
            for found, names in victims.items()
        }
    }


async def test_each_preempt_extender_gets_what_the_one_before_it_left(stage: Stage) -> None:
    first, second = (
        Answers(preempt=meta(n1=["v2"])),
        Answers(preempt=meta(n1=["v1"])),
    )
    left = await stage.preempt(
        await stage.serve(first, "preempt"), await stage.serve(second, "preempt")
    )
    assert first.asked[0][1]["NodeNameToMetaVictims"]["n1"] == {
        "Pods": [{"UID": victim("v1").uid}, {"UID": victim("v2").uid}],
        "NumPDBViolations": 1,
    }
    sent = second.asked[0][1]["NodeNameToMetaVictims"]
    assert sent == {"n1": {"Pods": [{"UID": victim("v2").uid}], "NumPDBViolations": 0}}
    assert [(c.node, [v.name for v in c.victims]) for c in left.candidates] == [("n1", ["v1"])]


async def test_an_extender_without_a_node_cache_gets_whole_victims(stage: Stage) -> None:
    answers = Answers(preempt=meta(n2=["v3"]))
    await stage.preempt(await stage.serve(answers, "preempt", nodeCacheCapable=False))
    sent = answers.asked[0][1]
    assert sent["NodeNameToMetaVictims"] is None
    assert sent["NodeNameToVictims"]["n2"]["Pods"][0]["metadata"]["name"] == "v3"


async def test_a_node_that_came_without_victims_is_passed_on_and_left_out_if_none_are_named(
    stage: Stage,
) -> None:
    first = Answers(preempt=meta(n1=[], n2=[]))
    second, third = (
        Answers(preempt=meta(n1=[], n2=["v3"])),
        Answers(preempt=meta(n1=[], n2=[])),
    )
    found = [
        await stage.serve(first, "preempt"),
        await stage.serve(second, "preempt"),
    ]
    left = await stage.preempt(*found, placeholders=("n1", "n2"))
    assert list(second.asked[0][1]["NodeNameToMetaVictims"]) == ["n1", "n2"]
    assert [(c.node, [v.name for v in c.victims]) for c in left.candidates] == [("n2", ["v3"])]
    emptied = await stage.preempt(*found, await stage.serve(third, "preempt"), placeholders=("n1",))
    assert emptied.error is not None
    assert 'expected at least one victim pod on node "n2"' in emptied.error


async def test_an_empty_answer_ends_the_preemption(stage: Stage) -> None:
    first, second = Answers(preempt={}), Answers(preempt=meta(n1=["v1"]))
    left = await stage.preempt(
        await stage.serve(first, "preempt"), await stage.serve(second, "preempt")
    )
    assert left.candidates == ()
    assert left.error is None
    assert second.asked == []


async def test_an_extender_may_leave_a_victim_elsewhere_that_leaves_with_one_on_the_node(
    stage: Stage,
) -> None:
    both = Answers(preempt=meta(n2=["whole-n2", "whole-n3"]))
    left = await stage.preempt(await stage.serve(both, "preempt"))
    assert [[v.name for v in c.victims] for c in left.candidates] == [["whole-n2", "whole-n3"]]
    other = Answers(preempt=meta(n1=["whole-n3"]))
    left = await stage.preempt(await stage.serve(other, "preempt"))
    assert "not found on that node" in (left.error or "")


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (500, "it answered with status 500"),
        ({"NodeNameToMetaVictims": {"n9": {}}}, 'on node "n9", which is not found'),
        ({"NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "x"}]}}}, "not found on that node"),
        ({"NodeNameToMetaVictims": {"n1": {"Pods": []}}}, "expected at least one victim pod"),
        (meta(n2=["above"]), "claims to preempt pod default/above, whose priority is not lower"),
    ],
)
async def test_a_preempt_extender_that_fails_ends_the_preemption_unless_it_is_ignorable(
    stage: Stage, answer: object, problem: str
) -> None:
    failing = Answers(preempt=answer)
    left = await stage.preempt(await stage.serve(failing, "preempt"))
    assert left.candidates == ()
    assert left.error is not None
    assert problem in left.error
    ignored = await stage.preempt(await stage.serve(failing, "preempt", ignorable=True))
    assert ignored.error is None


async def test_the_extender_that_binds_gets_names_and_uid(stage: Stage) -> None:
    answers = Answers(bind={"Error": ""})
    found = await stage.serve(answers, "bind")
    assert await stage.extenders.bind([found], WEB, "n1")
    assert answers.asked == [
        (
            "bind",
            {"PodName": "web", "PodNamespace": "default", "PodUID": WEB.uid, "Node": "n1"},
        )
    ]


async def test_without_an_extender_that_binds_plugins_bind(stage: Stage) -> None:
    found = await stage.serve(Answers(), "filter")
    assert not await stage.extenders.bind([found], WEB, "n1")


@pytest.mark.parametrize("answer", [500, {"Error": "no"}])
async def test_a_failed_binding_counts_if_the_pod_is_bound_all_the_same(
    stage: Stage, answer: object
) -> None:
    found = await stage.serve(Answers(bind=answer), "bind")
    stage.bound_to = "n1"
    assert await stage.extenders.bind([found], WEB, "n1")
    stage.bound_to = "n2"
    with pytest.raises(ExtenderError, match="failed to bind"):
        await stage.extenders.bind([found], WEB, "n1")
    ignorable = await stage.serve(Answers(bind=answer), "bind", ignorable=True)
    assert not await stage.extenders.bind([ignorable], WEB, "n1")


async def test_a_replica_that_does_not_lead_lets_no_extender_bind(stage: Stage) -> None:
    answers = Answers(bind={})
    found = await stage.serve(answers, "bind", ignorable=True)
    stage.leads = False
    with pytest.raises(NotLeading):
        await stage.extenders.bind([found], WEB, "n1")
    assert answers.asked == []


async def test_extenders_are_called_though_more_than_enough_have_been_called(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mooring.extenders.extenders._MOST_CLIENTS", 2)
    every = Answers(filter={"NodeNames": [*NODES]})
    others = [await stage.serve(every, "filter") for _ in range(3)]
    for other in (*others, *others):
        assert passed_and_failed(await stage.filter(other)) == ([*NODES], {})


async def test_certificates_are_read_again_when_their_files_change(
    stage: Stage, tmp_path: Path
) -> None:
    ours, ca = Authority(), tmp_path / "ca.crt"
    ca.write_bytes(Authority("other").certificate)
    pair = ours.server()
    (tmp_path / "s.crt").write_bytes(pair.certificate)
    (tmp_path / "s.key").write_bytes(pair.key)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "s.crt", tmp_path / "s.key")
    fields = {"enableHTTPS": True, "tlsConfig": {"caFile": str(ca)}}
    async with serving(Answers(filter={"NodeNames": ["n1"]}).application(), context) as port:
        url = f"https://127.0.0.1:{port}"
        found = read(Extender, extender(port, "filter", urlPrefix=url, **fields), "")
        with pytest.raises(ExtenderError, match="its certificate is not trusted"):
            await stage.filter(found)
        ca.write_bytes(ours.certificate)
        os.utime(ca, ns=(1, 1))
        assert passed_and_failed(await stage.filter(found))[0] == ["n1"]


async def test_a_call_that_answers_with_an_error_is_counted_as_invalid(stage: Stage) -> None:
    found = await stage.serve(Answers(filter={"Error": "no"}), "filter", ignorable=True)
    await stage.filter(found)
    assert stage.observed == {("filter", "success"): 1, ("filter", "invalid"): 1}


def test_certificates_that_cannot_be_read_are_a_problem_of_the_profile() -> None:
    tls = {"caFile": "/no/such/ca.crt"}
    found = read(Extender, {"urlPrefix": "https://x", "tlsConfig": tls}, "")
    problem = tls_problem(found)
    assert problem == "caFile /no/such/ca.crt cannot be used: No such file or directory"
    assert tls_problem(read(Extender, {"urlPrefix": "https://x"}, "")) is None


def test_a_client_certificate_in_the_profile_needs_no_writable_file_system(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The shipped Deployment has a read-only file system."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "there-is-none"))
    pair = Authority().client("mooring")
    tls = {
        "certData": b64encode(pair.certificate).decode(),
        "keyData": b64encode(pair.key).decode(),
    }
    found = read(Extender, {"urlPrefix": "https://x", "tlsConfig": tls}, "")
    assert tls_problem(found) is None


def test_certificates_in_the_profile_can_be_checked_without_reading_a_file() -> None:
    def problem(**tls: str) -> str | None:
        url = {"urlPrefix": "https://x", "enableHTTPS": True}
        return tls_problem(read(Extender, {**url, "tlsConfig": tls}, ""), files=False)

    pair, garbage = Authority().client("mooring"), b64encode(b"no certificate").decode()
    certificate, key = (b64encode(pem).decode() for pem in (pair.certificate, pair.key))
    assert problem(caFile="/no/such/ca.crt", certFile="/no/such", keyFile="/no/such") is None
    assert problem(caData=garbage, caFile="/no/such/ca.crt") == (
        "caData cannot be used: it contains no certificate"
    )
    assert problem(certData=garbage, keyFile="/no/such") is None
    assert problem(certData=certificate, keyData=key) is None
    assert "the client certificate or its key cannot be used" in str(
        problem(certData=certificate, keyData=garbage)
    )
