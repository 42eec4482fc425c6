"""The output of `mooring simulate` for 50 realistic manifests, in a terminal of 80 columns."""

import fcntl
import os
import pty
import re
import struct
import sys
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from mooring.cli.simulate import simulate
from mooring.testing.builders import node
from pod_terms import apart, spread_evenly, to_pods

COLUMNS = 80
LONG = "checkout-payment-reconciliator"
NODES = [f"ip-10-0-{i}-{i}.eu-central-1.compute.internal" for i in range(1, 4)]
LABELS = {"app": LONG}


class Printed(NamedTuple):
    """The text that the terminal shows, and the exit code."""

    text: str
    code: int

    @property
    def lines(self) -> list[str]:
        return self.text.replace("\r\n", "\n").splitlines()


@contextmanager
def terminal() -> Iterator[tuple[Any, list[bytes]]]:
    """Yield a stream to a pseudo-terminal of 80 columns, and the list of bytes that it receives."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
    arrived: list[bytes] = []

    def read() -> None:
        while True:
            try:
                piece = os.read(master, 4096)
            except OSError:  # the other end is closed
                return
            if not piece:
                return
            arrived.append(piece)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        with os.fdopen(slave, "w", buffering=1) as stream:
            yield stream, arrived
    finally:
        reader.join()
        os.close(master)


def tried(path: Path, *words: str) -> Printed:
    """Run `mooring simulate` in the terminal."""
    code = 0
    with terminal() as (stream, arrived), redirect_stdout(stream), redirect_stderr(stream):
        try:
            simulate.main([str(path), *words], prog_name="mooring simulate")
        except SystemExit as ended:
            code = int(ended.code or 0)
    return Printed(b"".join(arrived).decode(), code)


def containers(cpu: str = "100m") -> list[dict[str, Any]]:
    resources = {"requests": {"cpu": cpu, "memory": "64Mi"}}
    return [{"name": "main", "image": "registry.example/app:1", "resources": resources}]


def new(kind: str, spec: dict[str, Any] | None, name: str = LONG, **top: Any) -> dict[str, Any]:
    versions = {
        "Job": "batch/v1",
        "CronJob": "batch/v1",
        "Pod": "v1",
        "PodGroup": "scheduling.x-k8s.io/v1alpha1",
    }
    raw = {"apiVersion": versions.get(kind, "apps/v1"), "kind": kind, "metadata": {"name": name}}
    return {**raw, **({"spec": spec} if spec is not None else {}), **top}


def template(cpu: str = "100m", **spec: Any) -> dict[str, Any]:
    return {"metadata": {"labels": LABELS}, "spec": {"containers": containers(cpu), **spec}}


def deployment(replicas: int = 3, **spec: Any) -> dict[str, Any]:
    fields = {"selector": {"matchLabels": LABELS}, "template": template(**spec)}
    return new("Deployment", {"replicas": replicas, **fields})


def stateful_set(**spec: Any) -> dict[str, Any]:
    claim = {
        "metadata": {"name": "data"},
        "spec": {"storageClassName": "fast", "accessModes": ["ReadWriteOnce"]},
    }
    fields = {"selector": {"matchLabels": LABELS}, "volumeClaimTemplates": [claim]}
    return new("StatefulSet", {"replicas": 2, "template": template(**spec), **fields})


def job(**spec: Any) -> dict[str, Any]:
    return new("Job", {"template": template(restartPolicy="Never"), **spec})


def cron_job(**spec: Any) -> dict[str, Any]:
    inner = {"spec": {"template": template(restartPolicy="OnFailure")}}
    return new("CronJob", {"schedule": "0 3 * * *", "jobTemplate": inner, **spec})


def daemon_set(**spec: Any) -> dict[str, Any]:
    fields = {"selector": {"matchLabels": LABELS}, "template": template(**spec)}
    return new("DaemonSet", fields)


def pod(cpu: str = "100m", name: str = LONG, **spec: Any) -> dict[str, Any]:
    return new("Pod", {"containers": containers(cpu), **spec}, name)


def misspelt(field: str) -> dict[str, Any]:
    raw = pod()
    raw["spec"][field] = {}
    return raw


FAST = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "fast"},
    "provisioner": "ebs.csi.aws.com",
    "volumeBindingMode": "WaitForFirstConsumer",
}
SELECTOR = {"disk": "nvme"}
SPREAD = spread_evenly(LABELS)
ANTI_AFFINITY = apart(to_pods(LABELS))
LIST = {"apiVersion": "v1", "kind": "List"}
POD_GROUP = new("PodGroup", {"minMember": 2})

PLACED: dict[str, list[Any]] = {
    "pod": [pod()],
    "pod-with-everything": [
        pod(hostNetwork=True, terminationGracePeriodSeconds=1, dnsPolicy="Default")
    ],
    "two-pods": [pod(), pod(name="other")],
    "list": [{**LIST, "items": [pod(), pod(name="other")]}],
    "list-in-a-list": [{**LIST, "items": [{**LIST, "items": [pod()]}]}],
    "pod-list": [{"apiVersion": "v1", "kind": "PodList", "items": [pod()]}],
    "deployment": [deployment()],
    "deployment-of-one": [deployment(1)],
    "deployment-of-many": [deployment(40)],
    "deployment-with-a-spread": [deployment(3, topologySpreadConstraints=[SPREAD])],
    "deployment-with-anti-affinity": [deployment(3, affinity=ANTI_AFFINITY)],
    "stateful-set-with-claims": [FAST, stateful_set()],
    "job": [job()],
    "job-in-parallel": [job(parallelism=5, completions=20)],
    "job-with-indexes": [job(parallelism=3, completions=3, completionMode="Indexed")],
    "cron-job": [cron_job()],
    "daemon-set": [daemon_set()],
    "replica-set": [
        {**deployment(), "kind": "ReplicaSet"},
    ],
    "several-documents": [deployment(), job(), cron_job(), daemon_set()],
    "pod-group": [POD_GROUP, deployment(2)],
    "config-map-and-service": [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}},
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {}},
        pod(),
    ],
    "null-fields": [{**pod(), "status": None}],
    "empty-documents": [None, pod(), None],
}
UNPLACED: dict[str, tuple[list[Any], str]] = {
    "too-large": ([pod(cpu="64")], "1: Insufficient cpu"),
    "too-large-deployment": ([deployment(5, cpu="64")], "5: Insufficient cpu"),
    "partly": ([deployment(8, cpu="1500m")], "placed; 2: Insufficient cpu"),
    "selector": ([pod(nodeSelector=SELECTOR)], "1: no node has the label disk=nvme"),
    "anti-affinity": ([deployment(4, affinity=ANTI_AFFINITY)], "3 of 4 placed; 1: "),
    "other-scheduler": ([pod(schedulerName="volcano")], "1: no profile takes pods of scheduler"),
    "no-priority-class": ([deployment(priorityClassName="gold")], "3: forbidden: no PriorityClass"),
    "no-runtime-class": ([job(), pod(runtimeClassName="kata")], "1: forbidden: pod rejected: Run"),
    "gate": ([pod(schedulingGates=[{"name": "example.com/wait"}])], "waiting for scheduling gat"),
    "claim-missing": ([stateful_set()], '2: StorageClass "fast" of an unbound claim does not'),
    "too-many-of-all": ([deployment(40, cpu="1"), job(), daemon_set()], "Insufficient cpu"),
}
MISTAKES: dict[str, tuple[list[Any], str]] = {
    "misspelt": ([misspelt("nodeSelecter")], 'unknown field "nodeSelecter", did you mean'),
    "misspelt-in-a-template": ([deployment(1, tolerationz=[])], 'unknown field "tolerationz"'),
    "wrong-case": ([misspelt("nodeselector")], "did you mean nodeSelector?"),
    "no-containers": ([pod(containers=[])], "spec.containers: is required"),
    "no-image": ([pod(containers=[{"name": "c"}])], "spec.containers[0].image: is required"),
    "text-for-a-number": ([deployment("3")], "spec.replicas: must be an integer"),  # type: ignore[arg-type] # the mistake
    "bad-quantity": ([pod(cpu="1 core")], "is not a quantity"),
    "no-restart-policy": ([new("Job", {"template": template()})], "must be Never or OnFailure"),
    "no-selector": ([new("Deployment", {"template": template()})], "spec.selector: is required"),
    "no-name": ([pod(name="")], "metadata.name"),
    "twice": ([pod(), pod()], "is given already"),
    "empty": ([], "there is no pod without a node to schedule"),
    "only-a-config-map": ([new("ConfigMap", None)], "there is no pod without a node"),
    "only-a-pod-group": ([POD_GROUP], "there is no pod without a node"),
    "no-replicas": ([deployment(0)], "it makes no pods"),
    "a-list-of-nothing": ([{**LIST, "items": []}], "there is no pod without a node to schedule"),
}


@pytest.fixture
def cluster() -> list[dict[str, Any]]:
    return [node(name, cpu="4") for name in NODES]


def written(folder: Path, objects: list[Any]) -> Path:
    path = folder / "manifest.yaml"
    path.write_text(yaml.safe_dump_all(objects) if objects else "")
    return path


def looks_right(printed: Printed) -> None:
    """Fail if the output has a traceback, or a name or line that is cut or wrapped."""
    assert "Traceback" not in printed.text
    assert "…" not in printed.text
    for line in printed.lines:
        plain = re.sub(r"\x1b\[\d+m", "", line)
        assert len(plain) <= COLUMNS or plain.startswith(("error:", "note:")), line
        assert not re.search(r"ip-10[^ ]*$", plain) or plain.endswith(tuple(NODES)), line
        assert not re.match(r"default/(?!checkout-payment-reconciliator|other)", plain), line


@pytest.mark.parametrize("name", PLACED)
def test_what_fits_is_shown_with_whole_names_and_exit_code_0(
    tmp_path: Path, cluster: list[dict[str, Any]], name: str
) -> None:
    printed = tried(written(tmp_path, [*cluster, *PLACED[name]]))
    looks_right(printed)
    assert printed.code == 0
    assert f"default/{LONG}" in printed.text
    words = printed.lines[-1].removeprefix("\x1b[32m").split()
    assert words[0] == words[2]
    assert len(printed.lines) < 30


@pytest.mark.parametrize("name", UNPLACED)
def test_what_does_not_fit_is_shown_with_the_reason_in_sum_and_exit_code_1(
    tmp_path: Path, cluster: list[dict[str, Any]], name: str
) -> None:
    objects, words = UNPLACED[name]
    printed = tried(written(tmp_path, [*cluster, *objects]))
    looks_right(printed)
    assert printed.code == 1
    assert words in printed.lines[-1]
    assert "\x1b[31m" in printed.text


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_line_and_exit_code_2(
    tmp_path: Path, cluster: list[dict[str, Any]], name: str
) -> None:
    objects, words = MISTAKES[name]
    nodes = cluster if objects else []
    printed = tried(written(tmp_path, [*nodes, *objects]))
    looks_right(printed)
    assert printed.code == 2
    assert words in printed.text
    assert printed.lines[-1].startswith("error:")
    assert sum(line.startswith("error:") for line in printed.lines) == 1


def test_there_are_fifty_manifests() -> None:
    assert len(PLACED) + len(UNPLACED) + len(MISTAKES) == 50


def test_a_wide_table_has_whole_names_too(tmp_path: Path, cluster: list[dict[str, Any]]) -> None:
    printed = tried(written(tmp_path, [*cluster, deployment(2)]), "-o", "wide")
    looks_right(printed)
    assert printed.text.count(f"default/{LONG}-") == 2


def test_without_a_terminal_there_is_no_colour(
    tmp_path: Path, cluster: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, [*cluster, deployment(40, cpu="1")])
    with pytest.raises(SystemExit):
        simulate.main([str(path)], prog_name="mooring simulate")
    assert "\x1b" not in capsys.readouterr().out
    assert not sys.stdout.isatty()
