"""The page in a real browser, with a large cluster that has many problems."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import pytest
import yaml
from playwright.sync_api import Browser, Page, Route, expect

import browser
from browser import Tab
from page_stage import EVIL, LONG, PACKED, Stage, cluster_in_trouble, staged

pytestmark = pytest.mark.server

SCREENSHOTS: Final = Path(__file__).parents[2] / "build" / "screenshots"
VIEWS: Final = {
    "cluster": ("", "#wrong a"),
    "node": ("cluster?node=gpu-0917", "#largest"),
    "queue": ("queue", ".list-row"),
    "quotas": ("quotas", ".quotas table"),
    "pod": ("pod/ml/train-resnet-007", "#funnel"),
    "try": ("try", "#try:enabled"),
    "rebalancing": ("rebalancing", ".plan table"),
    "policy": ("policy", ".profile"),
}
"""The address of each view after the #, and what it shows once it is complete."""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser.chromium() as started:
        yield started


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with staged(cluster_in_trouble()) as served:
        yield served


@pytest.fixture
def tab(stage: Stage, chromium: Browser) -> Iterator[Tab]:
    """Yield a tab of a signed-in user; fail at the end if the page had errors or left its host."""
    with browser.opened(chromium) as opened:
        opened.page.add_init_script("sessionStorage.setItem('mooring-token', 'admin')")
        opened.page.goto(stage.url)
        expect(opened.page.locator("#summary")).to_contain_text("1,000 nodes")
        yield opened
        assert opened.errors == []
        assert opened.hosts == {f"127.0.0.1:{stage.port}"}


def test_the_page_begins_with_what_is_wrong_and_leads_there(tab: Tab) -> None:
    wrong = tab.page.locator("#wrong")
    expect(wrong).to_contain_text("410 pending")
    expect(wrong).to_contain_text("2 nodes not ready")
    wrong.get_by_role("link", name="nvidia.com/gpu 104").click()
    expect(tab.page.locator(".filters")).to_contain_text("104 pods")
    assert "cause=Insufficient+nvidia.com%2Fgpu" in tab.page.url


def test_a_page_without_a_connection_keeps_its_last_numbers_in_grey(tab: Tab, stage: Stage) -> None:
    for address, kept in (("", "#summary"), ("queue", "#causes"), ("policy", ".profile")):
        _open(tab.page, stage, address)
        expect(tab.page.locator("#connection")).to_have_text("live")
        shown = tab.page.locator(kept).first
        expect(shown).not_to_be_empty()
        before = shown.inner_text()
        stage.stop()
        try:
            lost = tab.page.locator("#lost")
            expect(lost).to_contain_text("trying again. What is shown is of")
            expect(tab.page.locator("main > *").last).to_have_css("filter", "grayscale(1)")
            assert shown.inner_text() == before
        finally:
            stage.serve()
        expect(lost).to_be_hidden()
        expect(tab.page.locator("main > *").last).to_have_css("filter", "none")


@pytest.mark.parametrize("width", [1280, 390])
def test_the_list_of_pods_has_each_cause_and_the_end_of_each_name(
    tab: Tab, stage: Stage, width: int
) -> None:
    tab.page.set_viewport_size({"width": width, "height": 900})
    _open(tab.page, stage, f"queue?{urlencode({'owner': f'{LONG}/Pod/huge-007'})}")
    row = tab.page.locator(".list-row")
    expect(row).to_have_count(1)
    for text in ("Insufficient cpu", "huge-007"):
        part = row.get_by_text(text)
        cut = part.evaluate(
            "part => part.scrollWidth > part.clientWidth + 1 && part.clientWidth > 0"
        )
        assert part.bounding_box() is not None
        assert not cut, text
    expect(row.get_by_role("img")).to_have_accessible_name(f"{LONG}/huge-007")
    expect(row.get_by_role("link")).to_have_count(0)


def test_each_view_has_one_heading_of_the_first_level(tab: Tab, stage: Stage) -> None:
    for address, complete in VIEWS.values():
        _open(tab.page, stage, address)
        expect(tab.page.locator(complete).first).to_be_visible()
        expect(tab.page.get_by_role("heading", level=1)).to_have_count(1)


def test_a_label_stands_beside_its_field_at_any_width(tab: Tab) -> None:
    for width in (1600, 1400, 1100, 800):
        tab.page.set_viewport_size({"width": width, "height": 900})
        label = tab.page.get_by_text("Find a pod", exact=True).bounding_box()
        field = tab.page.get_by_label("Find a pod").bounding_box()
        assert label is not None
        assert field is not None
        assert label["x"] + label["width"] < field["x"] < label["x"] + label["width"] + 20
        assert abs(label["y"] + label["height"] / 2 - field["y"] - field["height"] / 2) < 3


def test_the_address_of_the_cluster_shows_the_same_to_somebody_else(tab: Tab, stage: Stage) -> None:
    tab.page.locator("#resource").select_option("memory")
    tab.page.get_by_label("Find a node").fill("gpu-0917")
    tab.page.get_by_label("Find a node").press("Enter")
    expect(tab.page.locator("#largest")).to_be_visible()
    _open(tab.page, stage, tab.page.url.partition("#/")[2])
    expect(tab.page.locator("#resource")).to_have_value("memory")
    expect(tab.page.locator(".details")).to_contain_text("gpu-0917")


def test_without_a_name_the_views_of_a_pod_and_a_group_list_what_waits(
    tab: Tab, stage: Stage
) -> None:
    _open(tab.page, stage, "pod")
    waiting = tab.page.get_by_role("region", name="Pods that wait")
    expect(waiting.locator("tbody tr")).to_have_count(50)
    expect(tab.page.get_by_text("360 more, in the view Queue")).to_be_visible()
    waiting.get_by_role("link").first.click()
    expect(tab.page.locator("#state")).to_be_visible()
    _open(tab.page, stage, "podgroup")
    expect(tab.page.get_by_text("No pod group waits.")).to_be_visible()


def test_the_profiles_that_come_late_do_not_change_a_text_that_somebody_edits(
    tab: Tab, stage: Stage
) -> None:
    held = list[Route]()

    def hold(route: Route) -> None:
        held.append(route)

    _open(tab.page, stage, "queue")
    tab.page.route("**/ui/api/policy", hold)
    with tab.page.expect_request("**/ui/api/policy"):
        _open(tab.page, stage, "try")
    manifests = tab.page.locator("#manifests")
    before = manifests.input_value()
    manifests.focus()
    for route in held:  # of the view Cluster, too
        answer = route.fetch()
        route.fulfill(response=answer, body=answer.text().replace("default-scheduler", "mooring"))
    expect(tab.page.locator("#try")).to_be_enabled()
    assert manifests.input_value() == before


def test_a_node_shows_its_devices_and_who_holds_them(tab: Tab, stage: Stage) -> None:
    _open(tab.page, stage, "cluster?node=gpu-0917")
    devices = tab.page.get_by_role("region", name="Devices of gpu.example.com")
    rows = devices.locator("tbody tr")
    expect(rows).to_have_count(4)
    expect(rows.nth(1)).to_contain_text("in use")
    expect(rows.nth(1)).to_contain_text("claim ml/vision ml/vision-0")
    expect(rows.nth(3)).to_contain_text("taint health.example.com/xid-error=79:NoExecute")
    expect(rows.nth(1).get_by_role("link")).to_have_attribute("href", "#/pod/ml/vision-0")


def test_a_pod_shows_what_keeps_its_claims_from_devices(tab: Tab, stage: Stage) -> None:
    _open(tab.page, stage, "pod/bank/db-007")
    claims = tab.page.locator("#claims")
    expect(claims).to_contain_text("gpu (large-gpu)")
    expect(claims).to_contain_text("Request large: 1 device; enough on 0 of 1,000 nodes")
    expect(claims.locator("tbody tr").first).to_have_text("selector #0 of request large41")


def test_the_chart_of_the_last_hour_has_axes(tab: Tab, stage: Stage) -> None:
    _open(tab.page, stage, "queue")
    counts = tab.page.locator(".axis-y span:not(.widest)")
    expect(counts).to_have_text(["0", "100", "200", "300", "400"])
    times = tab.page.locator(".axis-x span")
    minutes = [text.partition(":")[2][:2] for text in times.all_inner_texts()]
    assert [int(each) % 10 for each in minutes] == [0] * 6


def test_a_pod_is_found_by_a_part_of_its_name_with_the_keyboard(tab: Tab) -> None:
    page, press = tab.page, tab.page.keyboard.press
    field = page.get_by_label("Find a pod")
    field.press_sequentially("resnet-01")
    options = page.locator(".completion > [role=option]")
    expect(options).to_have_count(10)
    expect(options.first).to_have_text("ml/train-resnet-010 pending")
    press("ArrowDown")
    press("ArrowDown")
    expect(field).to_have_attribute("aria-activedescendant", "find-pod-found-1")
    press("Escape")
    expect(options).to_have_count(0)
    expect(field).to_have_attribute("aria-expanded", "false")
    field.press_sequentially("9")
    expect(options).to_have_count(1)
    press("ArrowUp")
    press("Enter")
    expect(page.get_by_role("heading", name="ml/train-resnet-019")).to_be_visible()
    page.get_by_label("Pod").fill("web-3-5d4f8b7c9d-0000")
    page.get_by_text("shop/web-3-5d4f8b7c9d-00003").click()
    expect(page.locator("#state")).to_contain_text("bound on general-0003")
    page.get_by_label("Pod").fill("<b>none")
    expect(page.get_by_text("nothing has this in its name")).to_be_visible()


VALUES: Final[tuple[Any, ...]] = (
    {"weights": [1, 2.5, -3], "empty": [], "none": {}, "null": None, "on": True},
    {"nested": [[1, [2]], {"a": {"b": [{"c": 1, "d": [{}]}]}}]},
    {
        "texts": [
            "yes",
            "Null",
            "~",
            "",
            "1e3",
            "0x1f",
            "12:30",
            "2026-01-01",
            "- a",
            "a: b",
            "a #b",
        ]
    },
    {"image": "registry.example/app:v1@sha256:ab", "tail": "a:", "quotes": "\"'\\", "space": " a "},
    {"script": "#!/bin/sh\n\n  set -e\necho é\n", "open": "a\nb", "blank": "\n", "more": "a\n\n"},
    {
        "tab": "a\tb\nc",
        "control": "a\x00\x85\u2028b\nc",
        "indented": "  a\nb",
        "emoji": "\U0001f6a2",
    },
    {"yes": {"a b": 1, "": 2, "k:": 3, "x.y/z": 4}},
    ["a", ["b\nc", {"d": "e\nf"}]],
)


def test_yaml_says_what_the_json_said(tab: Tab) -> None:
    write = "async value => (await import('/ui/yaml.js')).toYaml(value)"
    for value in VALUES:
        text = tab.page.evaluate(write, value)
        assert yaml.safe_load(text) == value, text
    assert tab.page.evaluate(write, {"spec": {"a": [{"b": "c d"}]}}) == "spec:\n  a:\n  - b: c d\n"


def test_the_chosen_profile_is_edited_as_yaml(tab: Tab, stage: Stage) -> None:
    _open(tab.page, stage, "try")
    tab.page.locator("#profile").select_option("packed")
    tab.page.locator("#edit-profile").click()
    editor = tab.page.locator("#profile-text")
    expect(editor).to_be_focused()
    assert yaml.safe_load(editor.input_value())["spec"]["pluginConfig"][0]["args"] == PACKED
    _open(tab.page, stage, "policy")
    tab.page.locator(".profile").filter(has_text="packed").get_by_role("link").click()
    expect(editor).to_have_value(re.compile("type: MostAllocated"))


@pytest.mark.parametrize("width", [1280, 390])
def test_two_profiles_are_compared_by_pools_and_empty_nodes(
    tab: Tab, stage: Stage, width: int
) -> None:
    tab.page.set_viewport_size({"width": width, "height": 900})
    _open(tab.page, stage, "try")
    tab.page.locator("#second").select_option("packed")
    tab.page.locator("#which").select_option("running")
    tab.page.locator("#namespace").fill("batch")
    tab.page.locator("#compare").click()
    expect(tab.page.locator("#verdict")).to_contain_text("10 of 10 pods would be elsewhere")
    expect(tab.page.locator("#summary-of-nodes")).to_contain_text("→ 20")
    pools = tab.page.get_by_role("region", name="Pools of nodes")
    expect(pools.get_by_role("row").filter(has_text="general")).to_contain_text("900")
    changes = tab.page.get_by_role("region", name="What changes").get_by_role("row")
    expect(changes.filter(has_text="batch/nightly-0 and 9 others")).to_contain_text("4 nodes")
    _picture(tab.page, f"compared-light-{width}")


@pytest.mark.parametrize("width", [1280, 390])
def test_events_and_yaml_of_a_pod_are_one_click_away(tab: Tab, stage: Stage, width: int) -> None:
    tab.page.set_viewport_size({"width": width, "height": 900})
    _open(tab.page, stage, "pod/ml/train-resnet-000")
    tab.page.get_by_text("Events", exact=True).click()
    expect(tab.page.locator("[data-object=events]")).to_contain_text(f"{EVIL} (7 times)")
    tab.page.get_by_text("YAML", exact=True).click()
    text = tab.page.get_by_label("YAML of ml/train-resnet-000")
    metadata = yaml.safe_load(text.inner_text())["metadata"]
    assert metadata["annotations"] == {"note": EVIL, "script": "set -e\nexit 1\n"}
    assert "managedFields" not in metadata
    assert tab.page.title() == "Pod - Mooring"
    _picture(tab.page, f"objects-light-{width}")
    tab.page.keyboard.press("Escape")
    expect(text).to_be_hidden()
    _open(tab.page, stage, "pod/ml/train-resnet-001")
    tab.page.get_by_text("YAML", exact=True).click()
    expect(tab.page.get_by_role("alert").filter(has_text="no pod")).to_be_visible()


@pytest.mark.parametrize("width", [1280, 390])
def test_the_tree_of_queues_says_who_borrows_and_lends_how_much(
    tab: Tab, stage: Stage, width: int
) -> None:
    tab.page.set_viewport_size({"width": width, "height": 900})
    _open(tab.page, stage, "quotas")
    rows = tab.page.get_by_role("region", name="nvidia.com/gpu").locator("tbody tr")
    expect(rows).to_have_count(4)
    expect(rows.nth(1)).to_have_text("images3280241040")
    borrower = rows.filter(has_text=LONG)
    expect(borrower).to_have_text(f"{LONG}164024000.3")
    borrowed = borrower.get_by_role("img", name="40 of 16 used, 24 borrowed, 0 lent")
    expect(borrowed.locator(".quota-borrowed")).to_have_attribute("style", "width: 30%;")
    memory = tab.page.get_by_role("region", name="memory").locator("tbody tr")
    own = memory.nth(0).locator(".quota-own")
    expect(own).to_have_attribute("style", "width: 50%;")
    lost = tab.page.get_by_text("lost is not ready:")
    expect(lost.locator("..")).to_contain_text(f"queue {EVIL} does not exist")
    _picture(tab.page, f"quotas-open-{width}")


@pytest.mark.parametrize("width", [1280, 390])
def test_the_last_plan_says_what_moves_where_and_what_that_leaves_of_the_nodes(
    tab: Tab, stage: Stage, width: int
) -> None:
    tab.page.set_viewport_size({"width": width, "height": 900})
    _open(tab.page, stage, "rebalancing")
    plan = tab.page.locator(".plan")
    expect(plan).to_contain_text("applied")
    expect(plan).to_contain_text("1 pod moved so far")
    expect(plan).to_contain_text("under way: batch/nightly-7 from general-0887 to general-0881")
    expect(plan).to_contain_text("3 moves in 3 steps")
    expect(plan).to_contain_text("not all was looked at, at 1,500 pods only, because")
    expect(plan).to_contain_text("2 nodes emptied: general-0882, general-0887")
    expect(plan).to_contain_text("1 pending pod that fits afterwards: ml/train-resnet-007")
    moves = tab.page.get_by_role("region", name="Moves").locator("tbody tr")
    expect(moves.first).to_have_text(
        re.compile("1batch/nightly-2general-0882general-08801,000general-0882 is empty")
    )
    nodes = tab.page.get_by_role("region", name="Nodes before and after").locator("tbody tr")
    expect(nodes.filter(has_text="general-0882")).to_contain_text("emptied")
    tab.page.get_by_text("13 pods would gain, and are not moved").click()
    expect(plan).to_contain_text(f"1: the pod is {LONG} {EVIL}")
    _picture(tab.page, f"rebalancing-open-{width}")


def test_a_plan_is_made_when_somebody_asks_for_it(tab: Tab, stage: Stage) -> None:
    _open(tab.page, stage, "rebalancing")
    page = tab.page
    page.locator("#plan-profile").select_option("default-scheduler")
    page.get_by_role("checkbox", name="Spread").check()
    page.get_by_role("checkbox", name="Pack").check()
    expect(page.get_by_role("checkbox", name="Spread")).not_to_be_checked()
    page.get_by_role("checkbox", name="Pack").uncheck()
    page.get_by_role("checkbox", name="Violations").check()
    page.locator("#plan").click()
    made = page.locator("#made")
    expect(made).to_contain_text(re.compile("moves in|nothing to move|no move was found"))
    expect(page.locator("#plan")).to_be_enabled()
    _picture(page, "planned-1280")


def test_escape_closes_the_node(tab: Tab, stage: Stage) -> None:
    _open(tab.page, stage, "cluster?node=gpu-0917")
    details = tab.page.get_by_role("complementary")
    expect(details).to_contain_text("gpu-0917")
    tab.page.keyboard.press("Escape")
    expect(details).to_be_hidden()
    expect(tab.page.locator("#nodes")).to_be_focused()
    assert "node=" not in tab.page.url


@pytest.mark.parametrize(("theme", "width"), [("light", 1280), ("dark", 390)])
def test_every_view_fits_into_a_wide_and_into_a_narrow_window(
    tab: Tab, stage: Stage, theme: str, width: int
) -> None:
    """The test writes screenshots to build/screenshots: one width for each theme."""
    tab.page.set_viewport_size({"width": width, "height": 900})
    tab.page.evaluate("theme => localStorage.setItem('mooring-theme', theme)", theme)
    for name, (address, complete) in VIEWS.items():
        _open(tab.page, stage, address)
        expect(tab.page.locator(complete).first).to_be_visible()
        _picture(tab.page, f"{name}-{theme}-{width}")


def _open(page: Page, stage: Stage, address: str) -> None:
    """Open a view as if the user had typed its address."""
    page.goto(f"{stage.url}#/{address}")
    page.reload()


def _picture(page: Page, name: str) -> None:
    """Take a screenshot; fail if the page is wider than the window."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=True)
    size = page.viewport_size
    assert size is not None
    assert page.evaluate("document.documentElement.scrollWidth") <= size["width"], name
