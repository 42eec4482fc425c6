import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controlplane import ApiError, ControlPlane, ControlPlaneError
from controlplane.namespaces import create_namespace
from controlplane.nodes import create_nodes
from controlplane.tests.waiting import wait_for, wait_until_gone

pytestmark = pytest.mark.server

TESTS = Path(__file__).parents[3]

OWNER = """
    import signal
    from controlplane import ControlPlane

    with ControlPlane() as control_plane:
        print(control_plane.data_dir, *control_plane.pids.values(), flush=True)
        signal.pause()
"""


@pytest.fixture(scope="module")
def own() -> Iterator[ControlPlane]:
    """Yield a server whose programs and users these tests may change."""
    with ControlPlane(users={"dora": ["developers", "testers"]}) as started:
        yield started


def test_after_stop_no_process_and_no_data_is_left() -> None:
    control_plane = ControlPlane().start()
    pids, data = control_plane.pids, control_plane.data_dir
    assert set(pids) == {"etcd", "kube-apiserver"}
    control_plane.stop()
    wait_until_gone(pids.values())
    assert not data.exists()
    assert control_plane.pids == {}


def test_programs_collect_garbage_as_often_as_the_environment_says(own: ControlPlane) -> None:
    chosen = f"GOGC={os.environ['GOGC']}".encode()
    for pid in own.pids.values():
        assert chosen in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")


def test_a_stopped_control_plane_says_so_and_can_be_stopped_again() -> None:
    control_plane = ControlPlane()
    control_plane.stop()
    with pytest.raises(ControlPlaneError, match="not running: start it first"):
        _ = control_plane.access


def test_a_failed_start_says_why_keeps_the_log_and_leaves_no_process(tmp_path: Path) -> None:
    control_plane = ControlPlane(data_dir=tmp_path, flags={"kube-apiserver": ["--no-such-flag"]})
    with pytest.raises(ControlPlaneError, match="kube-apiserver ended with exit code 1") as told:
        control_plane.start()
    assert "unknown flag: --no-such-flag" in str(told.value)
    assert (tmp_path / "logs" / "kube-apiserver.log").exists()
    assert control_plane.pids == {}


def test_without_a_build_the_message_says_how_to_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOORING_CACHE", str(tmp_path))
    with pytest.raises(ControlPlaneError, match="not built: run `make controlplane"):
        ControlPlane().start()


def test_a_component_that_does_not_exist_is_refused() -> None:
    misspelt: Any = {"controller-manager"}
    with pytest.raises(ControlPlaneError, match=r"unknown components.*kube-controller-manager"):
        ControlPlane(misspelt)


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_however_the_owner_ends_its_programs_and_their_data_go(end: signal.Signals) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(OWNER)],
        env={**os.environ, "PYTHONPATH": f"{TESTS}:{TESTS / 'tools'}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with owner:
        assert owner.stdout
        data, *pids = owner.stdout.readline().split()
        owner.send_signal(end)
    wait_until_gone(map(int, pids))
    wait_for(lambda: not Path(data).exists(), "the data folder is gone")


def test_a_server_comes_back_on_the_same_address_with_its_data(own: ControlPlane) -> None:
    namespace = create_namespace(own.access)
    own.stop_component("kube-apiserver")
    with own.access.client() as client, pytest.raises(ConnectionRefusedError):
        client.get("/readyz")
    own.start_component("kube-apiserver")
    with own.access.client() as client:
        assert client.get(f"/api/v1/namespaces/{namespace}")["metadata"]["name"] == namespace


def test_kube_scheduler_starts_under_a_configuration_and_stops(own: ControlPlane) -> None:
    create_nodes(own.access, 1)
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    own.start_scheduler({"profiles": [{"schedulerName": "default-scheduler"}]})
    with own.access.client() as client:
        client.post("/api/v1/namespaces/default/pods", pod)
        path = "/api/v1/namespaces/default/pods/p"
        wait_for(lambda: client.get(path)["spec"].get("nodeName") == "node-1", "the pod is bound")
    own.stop_scheduler()
    assert "kube-scheduler" not in own.pids
    with pytest.raises(ControlPlaneError, match="kube-scheduler is not running"):
        own.stop_scheduler()


def test_a_service_accounts_kubeconfig_has_that_accounts_rights_only(
    control_plane: ControlPlane, namespace: str
) -> None:
    access = control_plane.access
    with access.client() as client:
        account = {"metadata": {"name": "robot"}}
        client.post(f"/api/v1/namespaces/{namespace}/serviceaccounts", account)
    kubeconfig = access.kubeconfig_for_service_account(namespace, "robot")
    who = access.kubectl("--kubeconfig", str(kubeconfig), "auth", "whoami")
    assert f"system:serviceaccount:{namespace}:robot" in who
    with pytest.raises(ControlPlaneError, match=r'(?s)kubectl .*cannot list resource "nodes"'):
        access.kubectl("--kubeconfig", str(kubeconfig), "get", "nodes")


def test_a_user_has_the_groups_it_was_given(own: ControlPlane) -> None:
    access = own.access
    who = access.kubectl("--kubeconfig", str(access.kubeconfig_for("dora")), "auth", "whoami")
    assert "dora" in who
    assert "developers testers" in who
    with access.client("dora") as client, pytest.raises(ApiError, match=r"403: .*dora"):
        client.get("/api/v1/nodes")
    with pytest.raises(ControlPlaneError, match="user 'eve' was not given"):
        access.kubeconfig_for("eve")
