"""The page of a running operator in a real browser, on a real control plane."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from playwright.sync_api import Browser, Page, expect

import browser
from browser import Tab
from controlplane import Access, ControlPlane
from controlplane.access import ADMIN
from controlplane.client import Client
from controlplane.nodes import create_nodes
from controlplane.processes import free_ports
from e2e.replicas import (
    PROFILES,
    QUICK_LEASE,
    Raw,
    Replica,
    Replicas,
    bound,
    create_pods,
    delete_now,
    eventually,
    pod,
    pods,
)
from mooring.groups.model.pod_group import COSCHEDULING_LABEL
from mooring.testing.builders import coscheduling_pod_group
from policies import profile

SHOP, BANK = "shop", "bank"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
LARGE = """
apiVersion: v1
kind: Pod
metadata: {name: tried, namespace: shop}
spec:
  schedulerName: mooring
  containers:
    - name: main
      image: x
      resources: {requests: {cpu: "64"}}
"""


@dataclass
class Cluster:
    access: Access
    replicas: Replicas
    scheduler: Replica
    port: int

    def start(self) -> None:
        """Start a replica again at the same address; wait until it leads."""
        self.scheduler = self.replicas.start(f"--secure-port={self.port}", *QUICK_LEASE)
        self.scheduler.wait_until_leads()


@pytest.fixture(scope="module")
def cluster(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("page")
    (port,) = free_ports(1)
    with plane.access.client() as client:
        capacity = {"cpu": "4", "memory": "8Gi", "pods": "110"}
        for zone in ("x", "y"):
            labels = {"topology.kubernetes.io/zone": f"zone-{zone}"}
            create_nodes(plane.access, 3, prefix=zone, capacity=capacity, labels=labels)
        for namespace in (SHOP, BANK):
            client.post("/api/v1/namespaces", {"metadata": {"name": namespace}})
        _grant(client, "ann")
        with Replicas.of(plane.access, folder) as replicas:
            scheduler = replicas.start(f"--secure-port={port}", *QUICK_LEASE)
            scheduler.wait_until_leads()
            create_pods(client, SHOP, pod("web", cpu="1"), pod("greedy", cpu="64"))
            create_pods(client, BANK, pod("vault", cpu="1"))
            eventually(lambda: bound(client, SHOP), lambda names: "web" in names, "a binding")
            yield Cluster(plane.access, replicas, scheduler, port)


def _grant(client: Client, user: str) -> None:
    """Allow the user to read the page and the pods of one namespace."""
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]
    subjects = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]
    api = "rbac.authorization.k8s.io"
    client.post(f"{RBAC}/clusterroles", {"metadata": {"name": "reads-pods"}, "rules": rules})
    for place, role in (
        ("clusterrolebindings", "mooring-page"),
        (f"namespaces/{SHOP}/rolebindings", "reads-pods"),
    ):
        reference = {"apiGroup": api, "kind": "ClusterRole", "name": role}
        body = {"metadata": {"name": f"{role}-{user}"}, "roleRef": reference, "subjects": subjects}
        client.post(f"{RBAC}/{place}", body)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser.chromium() as started:
        yield started


@pytest.fixture
def tab(cluster: Cluster, chromium: Browser) -> Iterator[Tab]:
    """Yield a tab with the page; fail at the end after a script error or a call of another host."""
    with browser.opened(chromium) as opened:
        opened.page.goto(f"{cluster.scheduler.url}/ui/")
        yield opened
        assert opened.errors == []
        assert opened.hosts == {f"127.0.0.1:{cluster.port}"}


def sign_in(page: Page, cluster: Cluster, user: str = ADMIN) -> None:
    page.get_by_label("Token").fill(cluster.access.tokens[user])
    page.keyboard.press("Enter")
    expect(page.locator("#connection")).to_have_text("live")


def test_the_nodes_of_the_cluster_are_shown_live(tab: Tab, cluster: Cluster) -> None:
    sign_in(tab.page, cluster)
    summary = tab.page.locator("#summary")
    expect(summary).to_contain_text("6 nodes · 2 pods")
    with cluster.access.client() as client:
        create_pods(client, SHOP, pod("later", cpu="1"))
    expect(summary).to_contain_text("6 nodes · 3 pods")
    tab.page.get_by_label("Coloured by requested").select_option("memory")
    expect(summary).to_contain_text("of memory requested")


def test_a_node_opens_with_a_click(tab: Tab, cluster: Cluster) -> None:
    sign_in(tab.page, cluster)
    expect(tab.page.locator("#summary")).to_contain_text("6 nodes")
    tab.page.locator("#nodes").click(position={"x": 60, "y": 45})
    details = tab.page.get_by_role("complementary")
    expect(details.get_by_role("heading").first).to_have_text("x-1")
    expect(details.locator("#largest")).to_contain_text("memory 8Gi")


def _is_told_why(raw: Raw) -> bool:
    return bool(raw["status"].get("conditions"))


def test_a_waiting_gang_is_explained_as_one_with_links_to_its_members(
    tab: Tab, cluster: Cluster
) -> None:
    """The page explains the gang as a whole, because each single member would fit."""
    labels = {COSCHEDULING_LABEL: "train"}
    group = coscheduling_pod_group("train", 8, namespace=SHOP)
    with cluster.access.client() as client:
        client.post(f"/apis/scheduling.x-k8s.io/v1alpha1/namespaces/{SHOP}/podgroups", group)
        create_pods(client, SHOP, *(pod(f"m{n}", cpu="3", labels=labels) for n in range(8)))
        eventually(lambda: pods(client, SHOP)["m0"], _is_told_why, "a condition")
    sign_in(tab.page, cluster)
    tab.page.goto(f"{cluster.scheduler.url}/ui/#/pod/{SHOP}/m0")
    cause = tab.page.locator("#cause")
    expect(cause).to_contain_text("the group of 8 does not fit")
    expect(cause).to_contain_text("The group would fit")
    expect(cause).not_to_contain_text("as it is")
    expect(tab.page.get_by_role("heading", name="A decision now")).to_have_count(0)
    tab.page.get_by_role("link", name=f"{SHOP}/train").click()
    expect(tab.page.locator(".title")).to_have_text(f"{SHOP}/train")
    expect(tab.page.locator("#cause")).to_contain_text("if each member requested at most")
    expect(tab.page.locator("#cause")).to_contain_text("if its minMember were at most")
    expect(tab.page.locator("#attempt")).to_contain_text("not placed")
    tab.page.locator("#members").get_by_role("link", name=f"{SHOP}/m7").click()
    expect(tab.page.locator(".title")).to_have_text(f"{SHOP}/m7")
    with cluster.access.client() as client:
        for number in range(8):
            delete_now(client, SHOP, f"m{number}")


def test_a_token_that_is_not_accepted_is_told(tab: Tab) -> None:
    tab.page.get_by_label("Token").fill("no-such-token")
    tab.page.get_by_role("button", name="Sign in").click()
    expect(tab.page.get_by_role("alert")).to_contain_text("does not accept the token")


def test_a_user_without_the_role_is_told_what_is_missing(tab: Tab, cluster: Cluster) -> None:
    tab.page.get_by_label("Token").fill(cluster.access.tokens["bob"])
    tab.page.keyboard.press("Enter")
    expect(tab.page.get_by_role("alert")).to_contain_text('User "bob" cannot get path "/ui/api/')


def test_an_unschedulable_pod_is_found_in_the_queue_and_explained(
    tab: Tab, cluster: Cluster
) -> None:
    sign_in(tab.page, cluster)
    tab.page.get_by_role("link", name="Queue").click()
    expect(tab.page.locator('[data-state="unschedulable"]')).to_contain_text("1")
    tab.page.get_by_role("img", name="shop/greedy").click()
    expect(tab.page.locator("#state")).to_contain_text("unschedulable")
    cause = tab.page.locator("#cause")
    expect(cause.get_by_role("heading").first).to_have_text("Cause: Insufficient cpu")
    expect(cause).to_contain_text("of cpu instead of 64")
    expect(tab.page.locator("#funnel")).to_contain_text("6 Insufficient cpu")
    expect(tab.page.locator('[data-step="unschedulable"]').last).to_contain_text("cpu")


def test_a_user_sees_no_names_of_pods_that_it_may_not_get(tab: Tab, cluster: Cluster) -> None:
    sign_in(tab.page, cluster, "ann")
    with cluster.access.client() as client:
        node = bound(client, BANK)["vault"]
    tab.page.get_by_label("Find a node").fill(node)
    tab.page.keyboard.press("Enter")
    details = tab.page.get_by_role("complementary")
    expect(details).to_contain_text("of namespaces whose pods you may not get")
    assert "vault" not in tab.page.content()
    tab.page.goto(f"{cluster.scheduler.url}/ui/#/pod/{BANK}/vault")
    expect(tab.page.get_by_role("alert").first).to_contain_text("cannot get resource")
    tab.page.get_by_role("link", name="Try it").click()
    expect(tab.page.get_by_role("alert")).to_contain_text("mooring-page-try")


def test_a_pasted_pod_is_tried_and_told_why_it_does_not_fit(tab: Tab, cluster: Cluster) -> None:
    sign_in(tab.page, cluster)
    tab.page.get_by_role("link", name="Try it").click()
    tab.page.locator("#manifests").fill(LARGE)
    tab.page.locator("#try").click()
    expect(tab.page.locator("#verdict")).to_have_text("0 of 1 pod would get a node")
    expect(tab.page.locator("#why")).to_contain_text("6 Insufficient cpu")
    expect(tab.page.locator("#cause")).to_contain_text("of cpu instead of 64")
    tab.page.locator("#manifests").fill(LARGE.replace('"64"', '"1"'))
    tab.page.locator("#try").click()
    expect(tab.page.locator("#verdict")).to_have_text("1 pod would get a node")
    with cluster.access.client() as client:
        found = client.get(f"/api/v1/namespaces/{SHOP}/pods")["items"]
    assert "tried" not in [each["metadata"]["name"] for each in found]


def test_two_profiles_are_compared_for_the_running_pods(tab: Tab, cluster: Cluster) -> None:
    sign_in(tab.page, cluster)
    tab.page.get_by_role("link", name="Try it").click()
    tab.page.locator("#which").select_option("running")
    tab.page.locator("#namespace").fill(SHOP)
    tab.page.locator("#compare").click()
    expect(tab.page.locator("#verdict")).to_contain_text("would be elsewhere")


def test_profiles_are_shown_with_their_history(tab: Tab, cluster: Cluster) -> None:
    sign_in(tab.page, cluster)
    tab.page.get_by_role("link", name="Policy").click()
    expect(tab.page.get_by_role("main")).to_contain_text("in force for pods with schedulerName")
    expect(tab.page.locator(".record").first).to_contain_text("generation 1")


def test_the_theme_can_be_chosen_and_is_kept(tab: Tab, cluster: Cluster) -> None:
    sign_in(tab.page, cluster)
    body = tab.page.locator("body")

    def background() -> str:
        return str(body.evaluate("element => getComputedStyle(element).backgroundColor"))

    light = background()
    button = tab.page.locator("#theme")
    button.click()
    expect(button).to_have_text("Theme: light")
    button.click()
    expect(button).to_have_text("Theme: dark")
    assert background() != light
    tab.page.reload()
    expect(button).to_have_text("Theme: dark")
    assert background() != light


def test_everything_can_be_reached_with_the_keyboard(tab: Tab, cluster: Cluster) -> None:
    sign_in(tab.page, cluster)
    expect(tab.page.locator("#summary")).to_contain_text("6 nodes")
    press = tab.page.keyboard.press

    def focus(wanted: str) -> None:
        """Press Tab until the element `wanted` has the focus."""
        for _ in range(40):
            if tab.page.evaluate(f"document.activeElement.matches({wanted!r})"):
                return
            press("Tab")
        pytest.fail(f"Tab does not lead to {wanted}")

    focus("#nodes")
    for key in ("ArrowRight", "ArrowRight", "ArrowLeft", "End", "Home", "ArrowRight", "Enter"):
        press(key)
    details = tab.page.get_by_role("complementary")
    expect(details.get_by_role("heading").first).to_have_text("x-2")
    expect(details).to_be_focused()
    press("Home")
    focus('[data-view="queue"]')
    press("Enter")
    expect(tab.page.get_by_role("option").first).to_be_visible()
    focus(".list")
    press("End")
    press("Home")
    press("Enter")
    expect(tab.page.locator("#state")).to_be_visible()
    focus("#sign-out")
    press("Enter")
    expect(tab.page.get_by_label("Token")).to_be_focused()


def test_after_a_lost_connection_the_page_goes_on(tab: Tab, cluster: Cluster) -> None:
    sign_in(tab.page, cluster)
    connection = tab.page.locator("#connection")
    cluster.scheduler.kill()
    expect(connection).to_have_text("not connected")
    expect(tab.page.locator("#lost")).to_contain_text("trying again")
    cluster.start()
    expect(connection).to_have_text("live")
    expect(tab.page.locator("#summary")).to_contain_text("6 nodes")


def test_text_of_the_cluster_is_never_markup(tab: Tab, cluster: Cluster) -> None:
    """Names and labels cannot contain < or quotes, but messages can."""
    evil = "<img src=x onerror=document.title='owned'>"
    sign_in(tab.page, cluster)
    with cluster.access.client() as client:
        rule = {"name": "never", "filter": "false", "message": evil}
        client.post(PROFILES, profile("evil", rules=[rule]))
        evil_pod = pod("struck", cpu="1")
        evil_pod["spec"]["schedulerName"] = "evil"
        create_pods(client, SHOP, evil_pod)
        eventually(
            lambda: pods(client, SHOP)["struck"]["status"].get("conditions"), bool, "a decision"
        )
    tab.page.goto(f"{cluster.scheduler.url}/ui/#/pod/{SHOP}/struck")
    expect(tab.page.get_by_role("main")).to_contain_text("onerror=document.title")
    assert tab.page.title() == "Pod - Mooring"
    assert tab.page.locator("main img").count() == 0


def test_a_pod_that_is_not_known_yet_is_shown_once_it_is(tab: Tab, cluster: Cluster) -> None:
    """The page also survives a malformed address."""
    sign_in(tab.page, cluster)
    tab.page.goto(f"{cluster.scheduler.url}/ui/#/pod/%")
    expect(tab.page.get_by_label("Pod")).to_have_value("%")
    tab.page.goto(f"{cluster.scheduler.url}/ui/#/pod/{SHOP}/late")
    expect(tab.page.get_by_role("alert")).to_contain_text(f"{SHOP}/late is not known")
    with cluster.access.client() as client:
        create_pods(client, SHOP, pod("late", cpu="1"))
    expect(tab.page.locator("#state")).to_contain_text("bound")
