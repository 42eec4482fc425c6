"""The kinds and the version that an API server serves: requests, decisions and log lines."""

import logging
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from kube.api_server import ApiServer, Request
from mooring.kube.api_resources import (
    COSCHEDULING_POD_GROUP,
    DEVICE_TAINT_RULE,
    DEVICE_TAINT_RULE_V1BETA2,
    ELASTIC_QUOTA,
    HYPER_NODE,
    KAI_POD_GROUP,
    POD_DISRUPTION_BUDGET,
    POD_GANG,
    POD_GROUP,
    POD_GROUP_V1,
    POD_GROUP_V1ALPHA2,
    POD_GROUP_V1ALPHA3,
    QUEUE,
    SIGS_ELASTIC_QUOTA,
    SIGS_POD_GROUP,
    VOLCANO_POD_GROUP,
    Resource,
)
from mooring.kube.client import ApiClient
from mooring.kube.config import Connection
from mooring.mirroring.discovery import EXPECTED, Discovery
from mooring.model.events import Kind

OF_GROUPS = "v1, v1beta1, v1alpha3, v1alpha2"
BY_FIELD = "pods that name one in spec.schedulingGroup wait (docs/gangs.md)"
BY_LABEL = "pods that name one by its label wait (docs/gangs.md)"

BY_VOLCANO = "pods that name one by Volcano's annotation wait (docs/gangs.md)"
BY_KAI = "pods that name one by KAI's annotation wait (docs/gangs.md)"
BY_GROVE = "pods that name one by Grove's label wait (docs/gangs.md)"
IN_HYPER_NODES = "groups that must be placed in one wait (docs/gangs.md)"
NO_QUOTAS = "no quotas of queues apply (docs/queues.md)"
NO_ELASTIC = "no quotas of ElasticQuotas apply (docs/queues.md)"
BY_SLICE = "taints of devices are those of their slices"


class Answers:
    """A responder for the kinds and the version that the test sets."""

    def __init__(self) -> None:
        self.version = "1.36"
        self.served: set[Resource] = {*EXPECTED.values()}
        self.refusal: tuple[int, str] | None = None
        self.no_version: int | None = None

    def __call__(self, request: Request) -> None:
        if self.refusal is not None:
            request.refuse(*self.refusal, "not here")
        elif request.path == "/version" and self.no_version is not None:
            request.refuse(self.no_version, "Forbidden", "the version is not for you")
        elif request.path == "/version":
            major, minor = self.version.split(".")
            request.reply({"major": major, "minor": minor})
        elif here := [r for r in self.served if request.path == f"/apis/{r.api_version}"]:
            request.reply({"resources": [{"name": resource.plural} for resource in here]})
        else:
            request.refuse(404, "NotFound", "the server could not find the requested resource")


@pytest.fixture
def answers() -> Answers:
    return Answers()


@pytest.fixture
async def server(answers: Answers) -> AsyncIterator[ApiServer]:
    async with ApiServer(answers) as running:
        yield running


@pytest.fixture
def versions() -> list[str]:
    return []


@pytest.fixture
async def discovery(server: ApiServer, versions: list[str]) -> AsyncIterator[Discovery]:
    async with ApiClient(Connection(server.url)) as client:
        yield Discovery(client, versioned=versions.append)


async def test_each_version_of_a_group_is_asked_once_in_a_look(
    server: ApiServer, discovery: Discovery
) -> None:
    await discovery.look()
    asked = Counter(request.path for request in server.seen)
    assert set(asked.values()) == {1}
    assert {"/version", "/apis/policy/v1", "/apis/storage.k8s.io/v1"} < asked.keys()


@pytest.mark.parametrize(
    ("served", "used"),
    [
        ({POD_GROUP_V1ALPHA2}, POD_GROUP_V1ALPHA2),
        ({POD_GROUP_V1ALPHA3}, POD_GROUP_V1ALPHA3),
        ({POD_GROUP_V1ALPHA3, POD_GROUP}, POD_GROUP),
        ({POD_GROUP_V1ALPHA3, POD_GROUP, POD_GROUP_V1}, POD_GROUP_V1),
        ({POD_GROUP_V1}, POD_GROUP_V1),
        (set[Resource](), None),
    ],
)
async def test_of_the_versions_of_a_kind_the_newest_that_is_served_is_used(
    answers: Answers, discovery: Discovery, served: set[Resource], used: Resource | None
) -> None:
    answers.served |= served
    await discovery.look()
    assert discovery.served == {
        **EXPECTED,
        Kind.POD_GROUP: used,
        Kind.COSCHEDULING_POD_GROUP: None,
        Kind.VOLCANO_POD_GROUP: None,
        Kind.KAI_POD_GROUP: None,
        Kind.POD_GANG: None,
        Kind.HYPER_NODE: None,
        Kind.QUEUE: None,
        Kind.ELASTIC_QUOTA: None,
        Kind.DEVICE_TAINT_RULE: None,
    }


@pytest.mark.parametrize(
    ("kind", "served", "used"),
    [
        (Kind.COSCHEDULING_POD_GROUP, {SIGS_POD_GROUP}, SIGS_POD_GROUP),
        (
            Kind.COSCHEDULING_POD_GROUP,
            {SIGS_POD_GROUP, COSCHEDULING_POD_GROUP},
            COSCHEDULING_POD_GROUP,
        ),
        (Kind.ELASTIC_QUOTA, {SIGS_ELASTIC_QUOTA}, SIGS_ELASTIC_QUOTA),
        (Kind.ELASTIC_QUOTA, {SIGS_ELASTIC_QUOTA, ELASTIC_QUOTA}, ELASTIC_QUOTA),
    ],
)
async def test_kinds_of_scheduler_plugins_are_read_by_the_name_that_is_served(
    answers: Answers, discovery: Discovery, kind: Kind, served: set[Resource], used: Resource
) -> None:
    answers.served |= served
    await discovery.look()
    assert discovery.served[kind] == used


@pytest.mark.parametrize(
    ("served", "used"),
    [
        ({DEVICE_TAINT_RULE_V1BETA2}, DEVICE_TAINT_RULE_V1BETA2),
        ({DEVICE_TAINT_RULE_V1BETA2, DEVICE_TAINT_RULE}, DEVICE_TAINT_RULE),
    ],
)
async def test_taint_rules_are_read_from_the_version_that_is_served(
    answers: Answers, discovery: Discovery, served: set[Resource], used: Resource
) -> None:
    answers.served |= served
    await discovery.look()
    assert discovery.served[Kind.DEVICE_TAINT_RULE] == used


async def test_the_version_is_told_at_once_and_again_when_it_has_changed(
    answers: Answers, discovery: Discovery, versions: list[str]
) -> None:
    await discovery.look()
    assert versions == ["1.36"]
    answers.version = "1.37"
    for _ in range(9):
        await discovery.look()
    assert versions == ["1.36"]
    await discovery.look()
    assert versions == ["1.36", "1.37"]


async def test_servers_that_answer_in_turns_change_nothing(
    answers: Answers, discovery: Discovery, versions: list[str]
) -> None:
    """During an upgrade, a load balancer sends requests to old and new servers in turn."""
    old, new = {POD_GROUP_V1ALPHA2}, {POD_GROUP}
    answers.served |= old
    await discovery.look()
    for _ in range(3):
        answers.version, answers.served = "1.37", answers.served - old | new
        await discovery.look()
        answers.version, answers.served = "1.36", answers.served - new | old
        await discovery.look()
    assert versions == ["1.36"]
    assert discovery.served[Kind.POD_GROUP] == POD_GROUP_V1ALPHA2


async def test_an_upgrade_is_followed_when_several_looks_have_found_it(
    answers: Answers, discovery: Discovery
) -> None:
    answers.served |= {POD_GROUP_V1ALPHA2}
    await discovery.look()
    answers.served ^= {POD_GROUP_V1ALPHA2, POD_GROUP, COSCHEDULING_POD_GROUP}
    for _ in range(2):
        await discovery.look()
    assert discovery.served[Kind.COSCHEDULING_POD_GROUP] == COSCHEDULING_POD_GROUP
    for _ in range(8):
        await discovery.look()
    assert discovery.served == {
        **EXPECTED,
        Kind.POD_GROUP: POD_GROUP,
        Kind.COSCHEDULING_POD_GROUP: COSCHEDULING_POD_GROUP,
        Kind.VOLCANO_POD_GROUP: None,
        Kind.KAI_POD_GROUP: None,
        Kind.POD_GANG: None,
        Kind.HYPER_NODE: None,
        Kind.QUEUE: None,
        Kind.ELASTIC_QUOTA: None,
        Kind.DEVICE_TAINT_RULE: None,
    }


@pytest.mark.parametrize("refusal", [(404, "NotFound"), (503, "ServiceUnavailable")])
async def test_what_is_no_api_server_does_not_count_as_one_that_serves_nothing(
    answers: Answers, discovery: Discovery, refusal: tuple[int, str]
) -> None:
    answers.served |= {POD_GROUP}
    await discovery.look()
    before = dict(discovery.served)
    answers.refusal = refusal
    for _ in range(3):
        await discovery.look()
    assert discovery.served == before


async def test_a_version_that_may_not_be_read_hides_nothing(
    answers: Answers, discovery: Discovery, versions: list[str]
) -> None:
    answers.no_version = 403
    answers.served -= {POD_DISRUPTION_BUDGET}
    await discovery.look()
    assert discovery.served[Kind.POD_DISRUPTION_BUDGET] is None
    assert versions == []


async def test_what_is_not_served_is_said_once_with_what_follows(
    answers: Answers, discovery: Discovery, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "mooring.mirroring")
    answers.served -= {POD_DISRUPTION_BUDGET}
    for _ in range(3):
        await discovery.look()
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        (
            "WARNING",
            "poddisruptionbudgets.policy (v1) is not served: preemption respects no budgets",
        ),
        ("INFO", f"podgroups.scheduling.k8s.io ({OF_GROUPS}) is not served: {BY_FIELD}"),
        ("INFO", f"podgroups.scheduling.x-k8s.io (v1alpha1) is not served: {BY_LABEL}"),
        ("INFO", f"podgroups.scheduling.volcano.sh (v1beta1) is not served: {BY_VOLCANO}"),
        ("INFO", f"podgroups.scheduling.run.ai (v2alpha2) is not served: {BY_KAI}"),
        ("INFO", f"podgangs.scheduler.grove.io (v1alpha1) is not served: {BY_GROVE}"),
        ("INFO", f"hypernodes.topology.volcano.sh (v1alpha1) is not served: {IN_HYPER_NODES}"),
        ("INFO", f"queues.scheduling.mooring.dev (v1alpha1) is not served: {NO_QUOTAS}"),
        ("INFO", f"elasticquotas.scheduling.x-k8s.io (v1alpha1) is not served: {NO_ELASTIC}"),
        ("INFO", f"devicetaintrules.resource.k8s.io (v1, v1beta2) is not served: {BY_SLICE}"),
    ]
    assert discovery.unserved() == {
        Kind.POD_DISRUPTION_BUDGET: POD_DISRUPTION_BUDGET,
        Kind.POD_GROUP: POD_GROUP_V1,
        Kind.COSCHEDULING_POD_GROUP: COSCHEDULING_POD_GROUP,
        Kind.VOLCANO_POD_GROUP: VOLCANO_POD_GROUP,
        Kind.KAI_POD_GROUP: KAI_POD_GROUP,
        Kind.POD_GANG: POD_GANG,
        Kind.HYPER_NODE: HYPER_NODE,
        Kind.QUEUE: QUEUE,
        Kind.ELASTIC_QUOTA: ELASTIC_QUOTA,
        Kind.DEVICE_TAINT_RULE: DEVICE_TAINT_RULE,
    }


async def test_every_change_is_said_once(
    answers: Answers, discovery: Discovery, caplog: pytest.LogCaptureFixture
) -> None:
    answers.served |= {POD_GROUP_V1ALPHA2, COSCHEDULING_POD_GROUP}
    await discovery.look()
    caplog.set_level(logging.INFO, "mooring.mirroring")
    answers.version = "1.37"
    answers.served ^= {POD_GROUP_V1ALPHA2, POD_GROUP, COSCHEDULING_POD_GROUP, POD_DISRUPTION_BUDGET}
    for _ in range(3):
        await discovery.look()
    answers.served |= {POD_DISRUPTION_BUDGET}
    for _ in range(3):
        await discovery.look()
    assert caplog.messages == [
        ("poddisruptionbudgets.policy (v1) is not served any more: preemption respects no budgets"),
        f"podgroups.scheduling.x-k8s.io (v1alpha1) is not served any more: {BY_LABEL}",
        "poddisruptionbudgets.policy (v1) is served",
    ]


async def test_a_server_without_an_answer_is_said_once_for_each_question(
    answers: Answers, discovery: Discovery, caplog: pytest.LogCaptureFixture
) -> None:
    answers.refusal = (500, "InternalError")
    for _ in range(2):
        await discovery.look()
    assert caplog.messages[0].startswith("the API server's version is not known, the rules stay: ")
    assert len(caplog.messages) == len({*caplog.messages})
    assert sum("policy/v1" in message for message in caplog.messages) == 1


async def test_a_server_that_cannot_be_reached_is_said_once_and_changes_nothing(
    answers: Answers, caplog: pytest.LogCaptureFixture
) -> None:
    answers.served |= {POD_GROUP}
    async with ApiServer(answers) as server, ApiClient(Connection(server.url)) as client:
        discovery = Discovery(client)
        await discovery.look()
        before = dict(discovery.served)
        await server.__aexit__()
        await discovery.look()  # on the connection that has just been closed
        caplog.clear()
        for _ in range(2):
            await discovery.look()
        assert discovery.served == before
    (said,) = caplog.messages
    assert said.startswith("the API server does not say what it serves: cannot reach the API")
