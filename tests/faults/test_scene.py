"""What a scene says of faults that never happened, and what its kubelets do."""

import json
import threading
import urllib.error
import urllib.request
from http.client import HTTPConnection
from pathlib import Path

import pytest
from aiohttp import web

from controlplane import ControlPlane
from controlplane.client import Client
from controlplane.processes import ProcessGroup
from faults.books import Amount, PodSeen, Seen
from faults.control import FaultProxy
from faults.rules import Kind, Rule
from faults.scene import Injected, Kubelets, Scene
from http_servers import answering, served_by_thread


def test_of_two_rules_of_a_kind_the_one_that_struck_nothing_is_a_fault(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    access = control_plane.access
    with Scene.of(control_plane, tmp_path) as scene, ProcessGroup() as group:
        proxy = FaultProxy.start(access, tmp_path, group, "proxy")
        for path in ("/pods", "/nodes"):
            scene.injected.append(Injected(Rule(Kind.INTERNAL, "POST", path), [proxy], 0.0))
            scene.injected[-1].inject()
        config = json.loads(proxy.kubeconfig(access.admin_kubeconfig).read_text())
        url = config["clusters"][0]["cluster"]["server"]
        with pytest.raises(urllib.error.HTTPError) as failed:
            urllib.request.urlopen(f"{url}/api/v1/pods", data=b"{}")  # noqa: S310 - on loopback
        failed.value.close()
        [idle] = scene.settle().faults
        assert idle.startswith("struck nothing: ")
        assert "/nodes" in idle


def test_kubelets_end_a_pod_though_the_api_server_refuses_while_it_is_restarted() -> None:
    left, ended = [429, 503, 403, 200], threading.Event()

    async def delete(request: web.Request) -> web.Response:
        assert request.method == "DELETE"
        status = left.pop(0)
        if status == 200:
            ended.set()
        return web.json_response({}, status=status)

    with (
        served_by_thread(answering(delete)) as port,
        Kubelets(lambda: Client(HTTPConnection("127.0.0.1", port))) as kubelets,
    ):
        leaving = PodSeen("default/low", "uid-low", Amount(1), node="n", leaving=True)
        kubelets.saw(Seen(1, 0.0, leaving))
        assert ended.wait(60)
    assert left == []
