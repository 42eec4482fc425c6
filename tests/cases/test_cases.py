"""Inputs rebuilt from public bug reports and manifests, each with the right answer.

The first line of a file says the answer and where the input comes from. What the file says is
decided again here by the commands that a user would run.
"""

import json
from pathlib import Path

import click
import yaml
from click.testing import CliRunner, Result

from mooring.cli.convert import convert
from mooring.cli.simulate import simulate

HERE = Path(__file__).parent


def run(command: click.Command, number: int, *words: str) -> Result:
    (path,) = HERE.glob(f"{number:02}-*.yaml")
    return CliRunner().invoke(command, [str(path), *words])


def nodes(number: int, *words: str) -> dict[str, str | None]:
    """Return the node of each pod, which is called without its namespace."""
    decisions = json.loads(run(simulate, number, "-o", "json", *words).stdout)["decisions"]
    return {each["pod"].partition("/")[2]: each["node"] for each in decisions}


def message(number: int, pod: str) -> str:
    decisions = json.loads(run(simulate, number, "-o", "json").stdout)["decisions"]
    (found,) = (str(each["message"]) for each in decisions if each["pod"] == f"default/{pod}")
    return found


def test_05_a_gang_is_placed_whose_first_member_leaves_the_first_alternative() -> None:
    assert nodes(5) == {"m0": "n1", "m1": "n1"}


def test_31_claims_and_slices_of_v1beta1_are_read_as_the_api_server_reads_them() -> None:
    assert nodes(31) == {"p": "n1"}


def test_32_a_taint_in_basic_of_a_device_keeps_pods_off_it() -> None:
    assert sorted(map(str, nodes(32).values())) == ["None", "n1"]


def test_33_misspelt_fields_of_every_kind_are_told_at_once() -> None:
    result = run(simulate, 33)
    assert result.exit_code == 2
    lines = result.stderr.splitlines()
    fields = (
        "spec.storageClass",
        "spec.minAvailble",
        "spec.minMembers",
        "spec.devices.constraints[0].matchAttributes",
    )
    assert len(lines) == len(fields)
    for line, field in zip(lines, fields, strict=True):
        assert f" {field}: unknown field" in line


def test_34_kinds_of_other_groups_are_ignored_with_a_note() -> None:
    result = run(simulate, 34, "-o", "json")
    assert nodes(34) == {"web": "n1"}
    (note,) = result.stderr.splitlines()
    assert note.endswith(
        "DaemonSet.apps.kruise.io (1), Job.batch.volcano.sh (1), Node.longhorn.io (2), "
        "Service.serving.knative.dev (1), StatefulSet.apps.kruise.io (1)"
    )


def test_46_budgets_without_a_status_allow_no_eviction_and_a_note_says_so() -> None:
    result = run(simulate, 46)
    assert "default/a, default/b without status.disruptionsAllowed" in result.stderr
    assert "Would preempt default/a-1 to run on n1" in result.stdout


def test_49_objects_with_generate_name_are_named() -> None:
    found = nodes(49)
    assert len(found) == 3
    assert {*found.values()} == {"n1"}
    assert sorted(name[:4] for name in found) == ["gen-", "samp", "samp"]


def test_65_a_note_says_that_no_volume_controller_binds_the_claim() -> None:
    result = run(simulate, 65)
    assert "no volume controller binds claims: default/task-pv-claim" in result.stderr
    assert message(65, "task-pv-pod").endswith(
        "pod has unbound immediate PersistentVolumeClaims. not found"
    )


def test_66_a_node_with_a_capacity_only_has_it_for_pods() -> None:
    found = nodes(66)
    assert found["slots"] == "n1"
    assert sorted(map(str, (found["small"], found["big"]))) == ["None", "n1"]
    waiting = "big" if found["big"] is None else "small"
    assert "Insufficient cpu" in message(66, waiting)


def test_67_defaults_of_pods_are_those_of_the_api_server() -> None:
    found = nodes(67)
    assert [found.pop(name) for name in ("t1", "t3")] == ["t", "t"]
    assert [found.pop(name) for name in ("emptysel", "spreadnull")] == ["n1", "n1"]
    waiting = ("t2", "fit", "ns", "prio", "noclass")
    assert [found.pop(name) for name in waiting] == [None] * 5
    assert [*found.values()] == ["n1", "n1"]
    assert all(name.startswith("rc-") for name in found)
    assert "Insufficient cpu" in message(67, "fit")
    assert "didn't match pod affinity rules" in message(67, "ns")
    assert "forbidden: the integer value of priority (100) must not" in message(67, "prio")
    assert "forbidden: no PriorityClass with name nosuch" in message(67, "noclass")


def test_75_a_configuration_in_a_config_map_is_converted() -> None:
    result = run(convert, 75)
    assert result.exit_code == 0
    profile = yaml.safe_load(result.stdout)
    assert profile["metadata"]["name"] == "my-scheduler"
    (entry,) = profile["spec"]["pluginConfig"]
    assert entry["args"]["scoringStrategy"]["type"] == "MostAllocated"


def test_201_a_volcano_group_of_four_with_room_for_three_places_none_and_says_why() -> None:
    assert nodes(201) == dict.fromkeys(("r0", "r1", "r2", "r3"))
    assert "3 of 4" in message(201, "r0")


def test_202_a_gang_that_has_lost_a_member_gets_it_before_a_pod_that_waits_longer() -> None:
    assert nodes(202) == {"g2": "n2", "single": None}


def test_203_the_pods_that_an_empty_selector_counts_from_1_38_on_are_all_in_one_domain() -> None:
    # The node selector leaves one node, so that the constraint holds whatever is counted.
    assert nodes(203, "--kubernetes", "1.37") == nodes(203, "--kubernetes", "1.38") == {"p": "a"}


def test_204_from_1_38_on_pod_level_requests_are_scored() -> None:
    assert nodes(204, "--kubernetes", "1.38") == {"p": "b"}


def test_205_a_group_of_kai_is_not_placed_without_a_member_of_each_subgroup() -> None:
    assert nodes(205) == dict.fromkeys(("w0", "w1", "w2", "l0", "alone"))
    assert "3 of 4 members fit" in message(205, "l0")
    assert "KAI's pod grouper" in message(205, "alone")


def test_206_an_application_of_yunikorn_is_placed_with_its_minimum_of_each_task_group() -> None:
    placed = {name for name, node in nodes(206).items() if node is not None}
    assert placed == {"spark-1"}
    assert "3 of 4 members fit" in message(206, "l0")
    assert "minResources of the group needs 41 of cpu" in message(206, "spark-2")
    assert "metadata.annotations.yunikorn.apache.org/task-groups: is no JSON" in message(
        206, "broken"
    )


def test_207_a_pod_gang_is_placed_with_the_least_replicas_of_each_clique() -> None:
    placed = {name for name, node in nodes(207).items() if node is not None}
    assert placed == {"p0", "p1", "d0"}
    assert message(207, "s0") == "0 of 1 members of role scaled-0-decode exist"
    assert message(207, "orphan") == "PodGang default/gone-0 does not exist"


def test_208_a_group_of_volcano_is_placed_in_one_hyper_node_of_an_allowed_tier() -> None:
    assert nodes(208) == {"mpi-0": "b", "mpi-1": "b", "wide-0": None, "wide-1": None}
    assert "members fit in hypernode leaf-1" in message(208, "wide-0")


def test_209_a_queue_takes_back_what_another_one_has_borrowed() -> None:
    assert nodes(209) == {"a2": None, "b0": None, "lost": None, "without-gpu": "a"}
    used = "queue team-a: 2 of 1 example.com/gpu used, 1 asked, nothing left to borrow"
    assert used in message(209, "a2")
    decisions = json.loads(run(simulate, 209, "-o", "json").stdout)["decisions"]
    victims = {each["pod"]: each["victims"] for each in decisions if each["victims"]}
    assert victims == {"default/b0": ["default/a1"]}
    assert "queue team-c does not exist" in message(209, "lost")
