"""The command `mooring gpus` prints cards and devices, and plans for pending pods."""

from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import CliRunner, Result

from cli.running import ask, kubeconfig_of
from device_builders import (
    allocated,
    device,
    device_claim,
    device_class,
    device_result,
    resource_slice,
)
from devices.objects import gpu_node, share_pod, whole_pod
from kube.api_server import ApiServer, Objects
from mooring.__main__ import main
from mooring.cli.gpus import gpus
from mooring.testing.builders import api_object, node, pod

HELD = share_pod("held", 12, node="a", card=0)
OTHER = share_pod("other", 4, node="b", card=0)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "cluster.json"


def shown(file: Path, *words: str, objects: tuple[dict[str, Any], ...]) -> Result:
    file.write_bytes(orjson.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))
    return CliRunner().invoke(main, ["gpus", str(file), *words])


def test_each_node_has_a_heading_with_what_would_fit_and_a_line_for_each_card(file: Path) -> None:
    result = shown(file, objects=(gpu_node("a", 2, 16), HELD, share_pod("b", 2, node="a")))
    lines = result.stdout.splitlines()
    assert result.exit_code == 0
    assert lines[0] == "a"
    assert lines[1].endswith("still fits: a share of 16 GiB, or 1 whole card")
    assert lines[3].split() == ["0", "2/16", "GiB", "100%", "default/b?,", "default/held"]
    assert lines[4].split() == ["1", "16/16", "GiB", "100%", "-"]


def test_the_types_of_a_nodes_cards_are_counted(file: Path) -> None:
    cards = [{"product": "A100", "memory": 40960}, {"product": "H100", "memory": 81920}]
    result = shown(file, objects=(gpu_node("a", 2, 16, described=cards),))
    assert "  1 x A100, 1 x H100; still fits: a share of 80 GiB" in result.stdout


def test_texts_of_nodes_and_drivers_cannot_control_the_terminal(file: Path) -> None:
    """The type of a card comes from an annotation of the node and may be any text."""
    cards = [{"product": "A100\x1b[2J", "memory": 40960}]
    objects = (
        gpu_node("a", 1, 16, described=cards),
        resource_slice("own", ["d0"], node="a", driver="d\x1b[2J", pool="p\x1b[2J"),
        device_class("c\x1b[2J"),
    )
    result = shown(file, objects=objects)
    assert result.exit_code == 0
    assert "\x1b" not in result.stdout
    for text in ("1 x A100\\x1b[2J", "d\\x1b[2J", "pool p\\x1b[2J", "class c\\x1b[2J"):
        assert f"  {text}" in result.stdout


def test_cards_that_nothing_is_free_on_or_that_cannot_be_used_are_said_to_be(file: Path) -> None:
    objects = (
        gpu_node("a", 2, 16, unhealthy="1"),
        share_pod("x", 12, node="a", card=0),
        share_pod("y", 12, node="a", card=0),
    )
    lines = shown(file, objects=objects).stdout.splitlines()
    assert lines[1].endswith("still fits: nothing")
    assert lines[3].endswith("default/x, default/y (overcommitted)")
    assert lines[4].endswith("- (not usable)")


def test_cards_of_unknown_memory_are_free_or_not(file: Path) -> None:
    raw = node("a", resources={"nvidia.com/gpu": 2})
    result = shown(file, objects=(raw, whole_pod("w", 1, node="a", on="0")))
    lines = [line.split() for line in result.stdout.splitlines()]
    assert lines[3] == ["0", "no", "0%", "default/w"]
    assert lines[4] == ["1", "yes", "100%", "-"]


def test_json_and_a_picture_say_the_same(file: Path) -> None:
    objects = (gpu_node("a", 1, 16), HELD)
    document = orjson.loads(shown(file, "-o", "json", objects=objects).stdout)
    assert document["memoryUnit"] == "GiB"
    assert document["nodes"][0]["cards"][0]["owners"] == ["default/held"]
    assert shown(file, "-o", "svg", objects=objects).stdout.startswith("<svg")


def test_a_plan_names_the_pods_to_move(file: Path) -> None:
    objects = (gpu_node("a", 1, 16), gpu_node("b", 1, 16), HELD, OTHER, whole_pod("new", 1))
    result = shown(file, "--plan", objects=objects)
    assert result.exit_code == 0
    assert "move default/" in result.stdout
    plans = orjson.loads(shown(file, "--plan", "-o", "json", objects=objects).stdout)["plans"]
    assert len(plans[0]["moves"]) == 1


def test_a_plan_is_found_for_hamis_pods_whose_nodes_publish_no_memory(file: Path) -> None:
    labels = {"nvidia.com/gpu.count": "1", "nvidia.com/gpu.memory": "16000"}
    nodes = (node(name, resources={"nvidia.com/gpu": 10}, labels=labels) for name in ("a", "b"))
    held = (
        pod(f"held-{name}", requests={"nvidia.com/gpu": 1, "nvidia.com/gpumem": 6000}, node=name)
        for name in ("a", "b")
    )
    new = pod("new", requests={"nvidia.com/gpu": 1, "nvidia.com/gpumem": 12000})
    result = shown(file, "--plan", "--preset", "hami", objects=(*nodes, *held, new))
    assert "move default/held-" in result.stdout


def test_without_a_plan_the_answer_is_no(file: Path) -> None:
    result = shown(file, "--plan", objects=(gpu_node("a", 1, 16), HELD, whole_pod("new", 1)))
    assert result.exit_code == 1
    assert "no few pods would do" in result.stdout


def test_a_cluster_without_gpus_is_told_so(file: Path) -> None:
    assert "no node has GPUs" in shown(file, objects=(pod("p"),)).stderr
    assert "no pending pod requests GPUs" in shown(file, "--plan", objects=(pod("p"),)).stderr


def test_profiles_are_not_read_because_their_plugins_may_be_missing_here(file: Path) -> None:
    enabled = {"multiPoint": {"enabled": [{"name": "AcmeRacks"}]}}
    stored = api_object("SchedulingProfile", "theirs", spec={"plugins": enabled})
    for words in ((), ("--plan",)):
        result = shown(file, *words, objects=(gpu_node("a", 2, 16), HELD, stored))
        assert result.exit_code == 0, result.output


def test_a_plan_is_no_picture(file: Path) -> None:
    assert shown(file, "--plan", "-o", "svg", objects=()).exit_code == 2


async def test_without_a_file_the_cluster_of_the_kubeconfig_is_read(tmp_path: Path) -> None:
    cluster = {"/api/v1/nodes": [gpu_node("a", 2, 16)], "/api/v1/pods": [HELD]}
    async with ApiServer(Objects(cluster, others=True)) as server:
        kubeconfig = kubeconfig_of(tmp_path, server.url)
        result = await ask(gpus, f"--kubeconfig={kubeconfig}")
    assert result.exit_code == 0, result.output
    assert "default/held" in result.stdout


def test_a_kubeconfig_beside_files_is_a_mistake(file: Path) -> None:
    result = shown(file, "--kubeconfig=x", objects=())
    assert result.exit_code == 2
    assert "go without FILEs" in result.stderr


DEVICES = (
    device_class("gpu.example.com", "device.driver == 'gpu.example.com'"),
    resource_slice(
        "s",
        ["gpu-0", "gpu-1", device("gpu-2", taints=[{"key": "sick", "effect": "NoSchedule"}])],
        node="a",
    ),
    device_claim("mine", allocation=allocated("gpu-1", node="a"), reserved_for=["web"]),
)


def test_devices_are_told_by_driver_and_pool_with_who_holds_them(file: Path) -> None:
    result = shown(file, objects=(node("a"), *DEVICES))
    assert result.stdout.splitlines() == [
        "a",
        "  gpu.example.com",
        "  3 devices: 1 free, 1 in use, 1 tainted",
        "  class gpu.example.com",
        "  DEVICE   STATE     HELD BY",
        "  gpu-0    free      -",
        "  gpu-1    in use    claim default/mine (pod web)",
        "  gpu-2    tainted   taint sick:NoSchedule",
    ]


def test_devices_are_told_beside_cards_and_in_all_forms(file: Path) -> None:
    several = resource_slice("fabric", ["f0"], pool="fabric", driver="net.example.com")
    objects = (gpu_node("a", 1, 16), HELD, *DEVICES, several)
    text = shown(file, objects=objects).stdout
    assert text.index("still fits") < text.index("  gpu.example.com\n")
    assert text.index("gpu-2") < text.index("devices that several nodes can use\n  net.example.com")
    document = orjson.loads(shown(file, "-o", "json", objects=objects).stdout)
    assert len(document["nodes"][0]["cards"]) == 1
    assert [each["state"] for each in document["nodes"][0]["devices"]] == [
        "free",
        "in use",
        "tainted",
    ]
    assert document["devicesOfSeveralNodes"][0]["pool"] == "fabric"
    drawn = shown(file, "-o", "svg", objects=objects).stdout
    assert "gpu.example.com/a/gpu-1: default/mine" in drawn
    assert "gpu.example.com/a/gpu-2: tainted" in drawn


def test_only_devices_of_several_nodes_are_told_too(file: Path) -> None:
    result = shown(file, objects=(node("a"), resource_slice("fabric", ["f0"], pool="fabric")))
    assert result.stdout.startswith(
        "devices that several nodes can use\n  gpu.example.com\n  pool fabric\n"
    )
    assert result.stderr == ""


def test_the_longest_names_stand_whole_in_80_columns(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mooring.cli.console.terminal_width", lambda: 80)
    where = ".".join(["n" * 63, "o" * 63, "p" * 63, "q" * 61])
    driver, pool, name, kind = "d" * 63, "s" * 63, "g" * 63, "c" * 63
    held = device_result(name, driver=driver, pool=pool)
    objects = (
        node(where),
        device_class(kind, f"device.driver == '{driver}'"),
        resource_slice("gpus", [name, "free"], node=where, driver=driver, pool=pool),
        device_claim("x" * 63, allocation=allocated(held, node=where), reserved_for=["y" * 63]),
    )
    lines = [line.strip() for line in shown(file, objects=objects).stdout.splitlines()]
    for line in where, driver, f"pool {pool}", f"class {kind}", name:
        assert line in lines
    words = {word for line in lines for word in line.split()}
    assert {f"default/{'x' * 63}", f"{'y' * 63})"} <= words
