"""Plays the demo step by step; a step ends when its promise has come true."""

import time
from collections.abc import Callable, Collection
from typing import Any

import yaml

import replica
from demo.errors import DemoError
from demo.placement import bound_nodes, node_uses
from demo.stage import NODES, ZONES, Operator, Stage, mooring, pod_of
from demo.views import Narrator, placement_table

STEP_SECONDS = 60.0
"""The most seconds of a step; then the demo has failed."""
LOOK_AGAIN = 0.1
"""The seconds between two looks at a condition."""

FIRST_PODS = 30
ALL_PODS = 60
MOST_PACKED_NODES = 3
"""The most nodes for 30 more pods: a node takes 16 pods, and has one or two already."""

SMALL_GANG, LARGE_GANG = 4, 20
"""The sizes of the gangs. The small one fits, with a node for each member; the large one needs all
nodes, and some are full."""

GROUPS = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces"
PROFILES = "/apis/scheduling.mooring.dev/v1alpha1/schedulingprofiles"
BIN_PACKING = replica.ROOT / "manifests" / "examples" / "bin-packing.yaml"


def tell(stage: Stage, narrator: Narrator) -> Operator:
    """Play all steps and check each result; return the running operator.

    Raises:
        DemoError: a promise did not come true.
        ControlPlaneError: a program could not run.
    """
    return _Story(stage, narrator).tell()


class _Story:
    def __init__(self, stage: Stage, narrator: Narrator) -> None:
        self._stage = stage
        self._say = narrator.say
        self._note = narrator.note
        self._heading = narrator.heading
        self._show = narrator.show
        self._output = narrator.output

    def tell(self) -> Operator:
        """Play all steps in order."""
        self._set_up()
        operator = self._run_operator()
        first = self._spread(operator)
        self._change_policy(operator)
        packed = self._pack(operator, first)
        self._explain(operator)
        if self._stage.has_pod_groups:
            self._gangs(operator)
        self._sum_up(operator, len(set(first.values())), packed)
        return operator

    def _set_up(self) -> None:
        self._say(self._stage.title)
        self._wait(lambda: self._ready_nodes() == NODES, "all nodes are Ready")
        self._say(f"{NODES} nodes in {ZONES} zones are Ready")
        self._note(f"({self._stage.kubelets} stands in for their kubelets)")
        said, *notes = self._stage.prepare()
        self._say(said)
        for line in notes:
            self._note(line)

    def _run_operator(self) -> Operator:
        operator = self._stage.start_operator()
        self._say(f"Mooring runs, process {operator.program.pid}")
        self._note(operator.rights)
        self._wait_for_profile(operator)
        return operator

    def _spread(self, operator: Operator) -> dict[str, str]:
        """Bind the first pods, spread over all nodes; return the node of each pod."""
        self._heading(f"1. {FIRST_PODS} pods, under kube-scheduler's default policy")
        maker = self._stage.run_pods(FIRST_PODS)
        self._wait_for_pods(operator, FIRST_PODS)
        self._say(f"{FIRST_PODS} pods are Running, with spec.schedulerName: {self._stage.profile}")
        self._note(f"(made by {maker})")
        found = self._show_placement(f"{FIRST_PODS} pods, spread", None)
        if len(set(found.values())) != NODES:
            raise DemoError(f"the pods use {len(set(found.values()))} of {NODES} empty nodes")
        return found

    def _change_policy(self, operator: Operator) -> None:
        self._heading("2. Another policy, applied while Mooring runs")
        profile = yaml.safe_load(BIN_PACKING.read_text())
        profile["metadata"]["name"] = self._stage.profile
        self._stage.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(profile))
        name = self._stage.profile
        self._say(f"SchedulingProfile {name} is replaced by manifests/examples/bin-packing.yaml")
        self._note("(NodeResourcesFit: MostAllocated fills the fullest node that still fits)")
        self._wait_for_profile(operator)

    def _pack(self, operator: Operator, first: Collection[str]) -> int:
        """Bind further pods; return the number of nodes that they are on."""
        self._heading(f"3. {ALL_PODS - FIRST_PODS} more pods")
        self._stage.run_pods(ALL_PODS)
        self._wait_for_pods(operator, ALL_PODS)
        self._say(f"{ALL_PODS} pods are Running")
        found = self._show_placement(f"{ALL_PODS} pods, the new ones packed", first)
        packed = len({node for pod, node in found.items() if pod not in first})
        if packed > MOST_PACKED_NODES:
            raise DemoError(f"the new pods are on {packed} nodes, not on {MOST_PACKED_NODES}")
        return packed

    def _explain(self, operator: Operator) -> None:
        self._heading("4. A pod that waits, and why")
        self._create(pod_of(self._stage, "trainer", {}, "6", "8Gi"))
        self._say("pod trainer requests 6 CPUs, and every node has 4")
        self._show_explanation(operator, "trainer", "The cause: ")

    def _gangs(self, operator: Operator) -> None:
        self._heading("5. Gangs: all members are placed, or none")
        for name, members in (("small", SMALL_GANG), ("large", LARGE_GANG)):
            self._create_gang(name, members)
        small = self._wait_for_gang(operator)
        self._say(f"gang small: its {SMALL_GANG} members run on {len(small)} nodes")
        waiting = [name for name, node in self._members("large").items() if node]
        if waiting:
            raise DemoError(f"members of the gang large were placed: {waiting}")
        self._say(f"gang large: {LARGE_GANG} members, each for a node that is nearly empty")
        self._note("(some would fit; as long as not all of them do, none takes a node)")
        self._show_explanation(operator, "podgroup/large", "cpu")

    def _create_gang(self, name: str, members: int) -> None:
        namespace = self._stage.namespace
        group = {
            "apiVersion": "scheduling.x-k8s.io/v1alpha1",
            "kind": "PodGroup",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"minMember": members},
        }
        with self._stage.client() as client:
            client.post(f"{GROUPS}/{namespace}/podgroups", group)
        label = {"scheduling.x-k8s.io/pod-group": name}
        width = len(str(members - 1))
        for number in range(members):
            self._create(pod_of(self._stage, f"{name}-{number:0{width}}", label, "3500m", "8Gi"))

    def _wait_for_gang(self, operator: Operator) -> set[str]:
        """Wait until all members of the small gang have nodes; return these nodes."""
        self._wait(lambda: all(self._members("small").values()), "gang small is placed", operator)
        return set(self._members("small").values())

    def _members(self, gang: str) -> dict[str, str]:
        """Return the node of each member; "" for a member without a node."""
        return {
            pod["metadata"]["name"]: pod["spec"].get("nodeName", "")
            for pod in self._pods()
            if pod["metadata"]["name"].startswith(f"{gang}-")
        }

    def _create(self, pod: dict[str, Any]) -> None:
        with self._stage.client() as client:
            client.post(f"/api/v1/namespaces/{self._stage.namespace}/pods", pod)

    def _show_explanation(self, operator: Operator, about: str, expected: str) -> None:
        """Wait until `mooring explain` says what is expected, and show its output."""
        namespace = self._stage.namespace
        words = ["explain", about, *(["-n", namespace] if namespace != "default" else [])]
        said = ""

        def is_explained() -> bool:
            nonlocal said
            said = mooring(self._stage, *words)
            return expected in said

        self._wait(is_explained, f"{about} is explained", operator)
        self._output(f"mooring {' '.join((*words, *self._stage.options))}", said)

    def _sum_up(self, operator: Operator, spread: int, packed: int) -> None:
        operator.program.require_alive()
        self._heading("Summary")
        self._say(f"{FIRST_PODS} pods were spread over {spread} nodes")
        self._note(f"{ALL_PODS - FIRST_PODS} more were packed onto {packed} under the new policy")
        self._note(f"one operator all the time: process {operator.program.pid}, never restarted")

    def _wait_for_profile(self, operator: Operator) -> None:
        """Wait until the profile's status says that its newest version is in force."""
        name = self._stage.profile
        with self._stage.client() as client:
            generation = client.get(f"{PROFILES}/{name}")["metadata"]["generation"]

        def in_force() -> bool:
            with self._stage.client() as client:
                status = client.get(f"{PROFILES}/{name}").get("status", {})
            for condition in status.get("conditions", []):
                if condition["status"] == "False" and status["observedGeneration"] == generation:
                    raise DemoError(f"the profile is invalid: {condition['message']}")
            return bool(status.get("inForceGeneration") == generation)

        what = f"generation {generation} of SchedulingProfile {name} is in force"
        self._wait(in_force, what, operator)
        self._say(f"{what}, says its status")
        for line in self._stage.kubectl("get", "sprof", name).splitlines():
            self._note(line)

    def _wait_for_pods(self, operator: Operator, count: int) -> None:
        def running() -> bool:
            phases = [pod["status"]["phase"] for pod in self._pods()]
            return phases.count("Running") == count

        self._wait(running, f"{count} pods are Running", operator)

    def _show_placement(self, title: str, earlier: Collection[str] | None) -> dict[str, str]:
        nodes, pods = self._stage.nodes(), self._pods()
        self._show(placement_table(title, node_uses(nodes, pods, earlier=earlier)))
        return bound_nodes(pods)

    def _pods(self) -> list[dict[str, Any]]:
        with self._stage.client() as client:
            path = f"/api/v1/namespaces/{self._stage.namespace}/pods"
            found: list[dict[str, Any]] = client.get(path)["items"]
        return found

    def _ready_nodes(self) -> int:
        return sum(
            condition["type"] == "Ready" and condition["status"] == "True"
            for node in self._stage.nodes()
            for condition in node["status"].get("conditions", [])
        )

    def _wait(self, holds: Callable[[], bool], what: str, operator: Operator | None = None) -> None:
        """Wait until `holds` returns True; fail at once if the operator ends."""
        deadline = time.monotonic() + STEP_SECONDS
        while not holds():
            if time.monotonic() > deadline:
                raise DemoError(f"not within {STEP_SECONDS:.0f} s: {what}")
            if operator:
                operator.program.wait(LOOK_AGAIN)
                operator.program.require_alive()
            else:
                time.sleep(LOOK_AGAIN)
