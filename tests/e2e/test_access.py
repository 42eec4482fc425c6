"""Who may reach the endpoints of a replica, by a real API server's reviews; `mooring explain`.

kwok replaces the kubelet that serves the port-forward.
"""

import json
import signal
import socket
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

import replica
from certificates import Authority, Pair
from controlplane import Access, ControlPlane
from controlplane.client import Client
from controlplane.nodes import create_nodes
from controlplane.processes import free_ports
from e2e.replicas import CRDS, Replica, Replicas, bound, crd, create_pods, eventually, pod
from http_servers import answering, served_by_thread
from mooring.kube.api_resources import ELASTIC_QUOTA, QUEUE
from policies import profile
from queue_files import elastic_quota, queue_object

ROOT = Path(__file__).parents[2]
RBAC = "/apis/rbac.authorization.k8s.io/v1"
HOST = socket.gethostname().lower()
SHOP, OTHER = "shop", "other"
"""Namespaces; a pod `web` in each was decided."""


@dataclass(frozen=True)
class Cluster:
    access: Access
    scheduler: Replica
    clients: Authority
    """Signs client certificates that the API server accepts."""
    folder: Path
    traces: list[bytes]
    """The requests that the OTLP endpoint got."""

    def get(self, path: str, user: str | None) -> tuple[int, str]:
        """Return the answer to a user of the API server; without `user`, to an invalid token."""
        return self.scheduler.get(path, self.access.tokens[user] if user else "no-such-token")

    def status(self, path: str, user: str | None = None, pair: Pair | None = None) -> int:
        """Return the answer's status for a client with a certificate, or without credentials."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        if pair is not None:
            file = self.folder / "client.pem"
            file.write_bytes(pair.certificate + pair.key)
            context.load_cert_chain(file)
        headers = {"Authorization": f"Bearer {self.access.tokens[user]}"} if user else {}
        request = urllib.request.Request(  # noqa: S310 - https
            f"{self.scheduler.url}{path}", headers=headers
        )
        try:
            with urllib.request.urlopen(request, timeout=15, context=context) as answer:  # noqa: S310 - https
                return int(answer.status)
        except urllib.error.HTTPError as refusal:
            with refusal:
                return refusal.code

    def explain(self, *words: str, user: str = "", kubeconfig: Path | None = None) -> Any:
        """Run `mooring explain` as the user; return the finished process."""
        return self.run("explain", *words, user=user, kubeconfig=kubeconfig)

    def run(self, *words: str, user: str = "", kubeconfig: Path | None = None) -> Any:
        """Run a command of Mooring as the user; return the finished process."""
        config = kubeconfig or self.access.kubeconfig_for(user)
        return subprocess.run(
            [sys.executable, "-m", "mooring", *words, f"--kubeconfig={config}"],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            env=replica.environment(),
        )

    @contextmanager
    def page(self, user: str) -> Iterator["subprocess.Popen[str]"]:
        """Run `mooring ui` as the user without a browser; yield the process."""
        config = self.access.kubeconfig_for(user)
        with subprocess.Popen(
            [sys.executable, "-m", "mooring", "ui", "--no-browser", f"--kubeconfig={config}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=replica.environment() | {"PYTHONUNBUFFERED": "1"},
        ) as process:
            try:
                yield process
            finally:
                process.kill()


@contextmanager
def _collector() -> Iterator[tuple[str, list[bytes]]]:
    """Yield the URL of an OTLP endpoint, and the list of the requests that it gets."""
    requests: list[bytes] = []

    async def post(request: web.Request) -> web.Response:
        requests.append(await request.read())
        return web.Response()

    with served_by_thread(answering(post)) as port:
        yield f"http://127.0.0.1:{port}", requests


def _forward_to(port: int) -> str:
    """Return a configuration with which kwok forwards pods' ports to this port."""
    target = {"ports": [10259], "target": {"port": port, "address": "127.0.0.1"}}
    return yaml.safe_dump(
        {
            "apiVersion": "kwok.x-k8s.io/v1alpha1",
            "kind": "ClusterPortForward",
            "metadata": {"name": "mooring"},
            "spec": {"forwards": [target]},
        }
    )


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("access")
    clients = Authority("clients")
    (folder / "clients.crt").write_bytes(clients.certificate)
    (port,) = free_ports(1)
    forwards = folder / "kwok.yaml"
    forwards.write_text(_forward_to(port))
    flags = {
        "kube-apiserver": [f"--client-ca-file={folder / 'clients.crt'}"],
        "kwok": [f"--config={forwards}"],
    }
    users: Mapping[str, list[str]] = {"ann": [], "bob": [], "prometheus": [], "kueue": []}
    with (
        _collector() as (url, traces),
        ControlPlane({"kwok"}, users=users, flags=flags) as plane,
    ):
        replica.apply_manifests(plane.access)
        with plane.access.client() as client:
            client.post(CRDS, crd(ELASTIC_QUOTA))
            _grant(client)
            _create_the_leaders_pod(plane, client)
            with Replicas.of(plane.access, folder) as replicas:
                log = f"--decision-log={folder / 'decisions.jsonl'}"
                otlp = f"--otlp-endpoint={url}"
                scheduler = replicas.start(f"--secure-port={port}", log, otlp, in_pod=True)
                scheduler.wait_until_leads()
                for namespace in (SHOP, OTHER):
                    client.post("/api/v1/namespaces", {"metadata": {"name": namespace}})
                    create_pods(client, namespace, pod("web", cpu="1m"))
                    eventually(
                        lambda ns=namespace: bound(client, ns),  # type: ignore[misc] # mypy: lambda defaults
                        lambda names: "web" in names,
                        "a decision",
                    )
                yield Cluster(plane.access, scheduler, clients, folder, traces)


def _grant(client: Client) -> None:
    """Grant rights: Ann may explain pods of one namespace, Bob no pods; Prometheus may scrape."""
    pods = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]
    client.post(f"{RBAC}/clusterroles", {"metadata": {"name": "pod-reader"}, "rules": pods})
    for user in ("ann", "bob", "carol"):
        _bind(client, "ClusterRole", "mooring-explain", user)
        _bind(client, "Role", "mooring-explain", user, "mooring-system")
    _bind(client, "ClusterRole", "mooring-metrics", "prometheus")


def _bind(client: Client, kind: str, role: str, user: str, namespace: str | None = None) -> None:
    place = (
        f"{RBAC}/namespaces/{namespace}/rolebindings"
        if namespace
        else f"{RBAC}/clusterrolebindings"
    )
    client.post(
        place,
        {
            "metadata": {"name": f"{role}-{user}"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
        },
    )


def _create_the_leaders_pod(plane: ControlPlane, client: Client) -> None:
    """Create a pod with this machine's name, on a node whose kubelet kwok replaces."""
    (node,) = create_nodes(plane.access, 1)
    kubelet = {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": plane._running_layout.ports["kwok"]}},
    }
    client.patch(f"/api/v1/nodes/{node}/status", {"status": kubelet})
    documents = yaml.safe_load_all((ROOT / "manifests" / "deployment.yaml").read_text())
    (deployment,) = (item for item in documents if item["kind"] == "Deployment")
    spec = {**deployment["spec"]["template"]["spec"], "nodeName": node, "hostname": HOST}
    client.post(
        "/api/v1/namespaces/mooring-system/pods", {"metadata": {"name": HOST}, "spec": spec}
    )


def test_health_is_for_everybody_and_nothing_else_is(cluster: Cluster) -> None:
    assert cluster.status("/livez") == cluster.status("/readyz") == 200
    for path in ("/metrics", "/configz", "/debug/decisions", "/debug/cache"):
        assert cluster.status(path) == 403
        assert cluster.get(path, None)[0] == 401


def test_a_token_gets_what_its_users_roles_say(cluster: Cluster) -> None:
    status, page = cluster.get("/metrics", "prometheus")
    assert status == 200
    assert "scheduler_schedule_attempts_total" in page
    assert cluster.get("/configz", "prometheus") == (
        403,
        'forbidden: User "prometheus" cannot get path "/configz"\n',
    )
    assert cluster.get("/configz", "admin")[0] == 200


def test_a_client_certificate_of_the_clusters_ca_gets_what_its_users_roles_say(
    cluster: Cluster,
) -> None:
    pair = cluster.clients.client("prometheus")
    assert cluster.status("/metrics", pair=pair) == 200
    assert cluster.status("/configz", pair=pair) == 403
    assert cluster.status("/configz", pair=cluster.clients.client("x", "system:masters")) == 200


def test_decisions_are_shown_by_namespace(cluster: Cluster) -> None:
    with cluster.access.client() as client:
        _bind(client, "ClusterRole", "pod-reader", "ann", SHOP)
    path = f"/debug/decisions?pod={SHOP}/web"
    eventually(lambda: cluster.get(path, "ann")[0], lambda status: status == 200, "ann's right")
    assert cluster.get(f"/debug/decisions?pod={OTHER}/web", "ann")[0] == 403
    assert cluster.get("/debug/decisions", "ann")[0] == 403
    assert cluster.get(path, "bob")[0] == 403
    status, answer = cluster.get("/debug/decisions", "admin")
    assert status == 200
    assert {record["pod"] for record in json.loads(answer)["decisions"]} >= {
        "shop/web",
        "other/web",
    }


def test_explain_finds_the_leader_and_asks_as_the_caller(cluster: Cluster) -> None:
    with cluster.access.client() as client:
        _bind(client, "ClusterRole", "pod-reader", "bob", OTHER)
    eventually(
        lambda: cluster.explain("web", f"--namespace={OTHER}", user="bob"),
        lambda done: done.returncode == 0,
        "an explanation for bob",
    )
    refused = cluster.explain("web", f"--namespace={SHOP}", user="bob")
    assert refused.returncode == 2
    assert refused.stderr == (
        'error: the leading replica answers 403: forbidden: User "bob" cannot get resource "pods" '
        '"web" in API group "" in the namespace "shop"\n'
    )


def test_explain_says_what_would_make_an_unschedulable_pod_fit(cluster: Cluster) -> None:
    with cluster.access.client() as client:
        create_pods(client, OTHER, pod("greedy", cpu="1000"))
    found = eventually(
        lambda: cluster.explain(f"{OTHER}/greedy", user="admin"),
        lambda done: "The cause: Insufficient cpu. It would fit" in done.stdout,
        "a suggestion",
    )
    assert "of cpu instead of 1000" in found.stdout, found.stdout


def test_whoever_admits_pods_asks_the_leader_whether_they_would_run(
    cluster: Cluster, tmp_path: Path
) -> None:
    file = tmp_path / "gang.yaml"
    file.write_text(yaml.safe_dump_all(_gang("train", cpu="1000")))
    words = ("simulate", "--server", f"--filename={file}")
    with cluster.access.client() as client:
        _bind(client, "Role", "mooring-explain", "kueue", "mooring-system")
        _bind(client, "ClusterRole", "pod-reader", "kueue", SHOP)
        refused = cluster.run(*words, user="kueue")
        assert 'User "kueue" cannot post path "/api/v1/what-if"' in refused.stderr, refused.stderr
        _bind(client, "ClusterRole", "mooring-what-if", "kueue")
        asked = eventually(
            lambda: cluster.run(*words, "--output=json", user="kueue"),
            lambda done: done.returncode == 1,
            "its right, which a denial holds up for ten seconds",
        )
        found = client.get(f"/api/v1/namespaces/{SHOP}/pods")["items"]
    (decision,) = json.loads(asked.stdout)["decisions"]
    assert (decision["podGroup"], decision["fits"]) == (f"{SHOP}/train", False)
    assert {each["node"] for each in decision["pods"]} == {None}
    assert "of cpu instead of 1000" in str(decision["suggestions"])
    assert [each["metadata"]["name"] for each in found] == ["web"]
    file.write_text(yaml.safe_dump_all(_gang("train", cpu="1m")))
    fits = cluster.run(*words, user="kueue")
    assert fits.returncode == 0, fits.stdout + fits.stderr
    assert "2 of 2 placed" in fits.stdout


def _gang(name: str, cpu: str) -> Iterator[dict[str, Any]]:
    spec = {"schedulingPolicy": {"gang": {"minCount": 2}}}
    identity = {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup"}
    yield {**identity, "metadata": {"name": name, "namespace": SHOP}, "spec": spec}
    for number in range(2):
        member = pod(f"{name}-{number}", cpu=cpu, schedulingGroup={"podGroupName": name})
        member["metadata"]["namespace"] = SHOP
        yield {"apiVersion": "v1", "kind": "Pod", **member}


def test_the_page_is_opened_with_the_rights_of_the_kubeconfig(cluster: Cluster) -> None:
    with cluster.page("ann") as refused:
        assert refused.wait(60) == 2
        assert refused.stderr is not None
        assert "the ClusterRole mooring-page grants it" in refused.stderr.read()
    with cluster.access.client() as client:
        _bind(client, "ClusterRole", "mooring-page", "ann")

    # A denial holds for ten seconds; the command asks for what is asked here, and takes longer.
    eventually(
        lambda: cluster.status("/ui/api/session", "ann"),
        lambda status: status == 200,
        "ann's right",
    )
    with cluster.page("ann") as page:
        assert page.stdout is not None
        address = page.stdout.readline().strip().removeprefix("the page is at ")
        url, key = address.split("#key=")
        token = _fetched(f"{url}session", data=key.encode())
        answer = _fetched(f"{url}api/session", token=token)
        answer += _fetched(f"{url}api/queue", token=token)
        page.send_signal(signal.SIGINT)
        assert page.wait(30) == 0
    assert '"user":"ann"' in answer
    assert '"leading":true' in answer


def _fetched(url: str, *, token: str = "", data: bytes | None = None) -> str:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(url, data, headers)  # noqa: S310 - loopback
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - loopback
        return str(answer.read().decode())


def test_queues_and_elastic_quotas_are_shown_to_users_with_the_role(cluster: Cluster) -> None:
    quota = {"resources": [{"name": "cpu", "nominalQuota": 1}]}
    with cluster.access.client() as client:
        client.post("/api/v1/namespaces", {"metadata": {"name": "team"}})
        client.post(QUEUE.path(), queue_object(f"{QUEUE.api_version} Queue", "all", quota))
        client.post(ELASTIC_QUOTA.path("team"), elastic_quota("team", min={"cpu": "4"}))
    done = eventually(
        lambda: cluster.run("queues", user="ann"), lambda done: not done.returncode, "both in force"
    )
    rows = [line.split() for line in done.stdout.splitlines()]
    assert ["all", "1", "0", "0", "0", "0", "0"] in rows
    assert ["team", "(ElasticQuota)", "4", "0", "0", "0", "-", "0"] in rows
    assert done.stderr == ""
    refused = cluster.run("queues", user="prometheus")
    assert refused.returncode == 2
    assert 'User "prometheus" cannot list resource "queues"' in refused.stderr
    assert refused.stderr.endswith("; the ClusterRole mooring-explain grants it\n")


def test_explain_asks_as_the_user_of_a_client_certificate(cluster: Cluster) -> None:
    """Over pods/proxy this is impossible, because the API server terminates the caller's TLS."""
    pair = cluster.clients.client("carol")
    (cluster.folder / "carol.crt").write_bytes(pair.certificate)
    (cluster.folder / "carol.key").write_bytes(pair.key)
    config = json.loads(cluster.access.admin_kubeconfig.read_text())
    config["users"][0]["user"] = {
        "client-certificate": str(cluster.folder / "carol.crt"),
        "client-key": str(cluster.folder / "carol.key"),
    }
    kubeconfig = cluster.folder / "carol.kubeconfig"
    kubeconfig.write_text(json.dumps(config))
    refused = cluster.explain(f"{SHOP}/web", kubeconfig=kubeconfig)
    assert 'User "carol" cannot get resource "pods" "web"' in refused.stderr
    with cluster.access.client() as client:
        _bind(client, "ClusterRole", "pod-reader", "carol", SHOP)
    path = f"/debug/decisions?pod={SHOP}/web"
    eventually(
        lambda: cluster.status(path, pair=pair), lambda status: status == 200, "carol's right"
    )
    done = cluster.explain(f"{SHOP}/web", kubeconfig=kubeconfig)
    assert done.returncode == 0, done.stderr
    assert "  on node-1\n" in done.stdout


def test_the_last_decisions_of_the_leader_are_replayed_with_two_policies(
    cluster: Cluster, tmp_path: Path
) -> None:
    for name in ("old", "new"):
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(profile(name)))
    policies = (str(tmp_path / f"{name}.yaml") for name in ("old", "new"))
    result = cluster.run("simulate", "--compare", *policies, "--replay", user="admin")
    assert result.returncode == 0, result.stderr
    assert "pods: 0 would move, 0 would lose their place" in result.stdout


def test_every_step_of_a_pod_is_appended_to_the_decision_log(cluster: Cluster) -> None:
    def steps() -> list[str]:
        path = cluster.folder / "decisions.jsonl"
        text = path.read_text() if path.exists() else ""
        lines = [json.loads(line) for line in text.splitlines()]
        return [line["step"] for line in lines if line["pod"] == f"{SHOP}/web"]

    found = eventually(steps, lambda found: "bound" in found, "the last step of the pod")
    assert found[0] == "seen"
    assert found[-2:] == ["assumed", "bound"]


def test_a_trace_of_a_pod_is_sent_to_the_otlp_endpoint(cluster: Cluster) -> None:
    with cluster.access.client() as client:
        uid = client.get(f"/api/v1/namespaces/{SHOP}/pods/web")["metadata"]["uid"]

    def names() -> list[str]:
        return [
            span.name
            for request in cluster.traces
            for resource in ExportTraceServiceRequest.FromString(request).resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
            if span.trace_id.hex() == uid.replace("-", "")
        ]

    found = eventually(names, lambda found: "pod" in found, "the last span of the pod")
    assert found == ["scheduling attempt", "pod"]


def test_explain_without_the_role_says_which_one_is_missing(cluster: Cluster) -> None:
    refused = cluster.explain("web", user="prometheus")
    assert refused.returncode == 2
    (line,) = refused.stderr.splitlines()
    assert "the Role mooring-explain in mooring-system grants it" in line


def test_changed_certificates_are_served_by_the_process_that_runs(
    cluster: Cluster, tmp_path: Path
) -> None:
    first, second = Authority("first"), Authority("second")

    def replace(authority: Authority) -> None:
        pair = authority.server()
        (tmp_path / "tls.crt").write_bytes(pair.certificate)
        (tmp_path / "tls.key").write_bytes(pair.key)

    def trusted(url: str, authority: Authority) -> bool:
        context = ssl.create_default_context(cadata=authority.certificate.decode())
        try:
            with urllib.request.urlopen(f"{url}/livez", timeout=5, context=context):  # noqa: S310 - https
                return True
        except OSError:
            return False

    replace(first)
    with Replicas.of(cluster.access, tmp_path) as replicas:
        standby = replicas.start(
            f"--tls-cert-file={tmp_path / 'tls.crt'}",
            f"--tls-private-key-file={tmp_path / 'tls.key'}",
        )
        assert trusted(standby.url, first)
        replace(second)
        eventually(lambda: trusted(standby.url, second), bool, "the second certificate")
        assert not trusted(standby.url, first)
        assert standby.terminate() == 0
