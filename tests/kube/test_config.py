"""Connections from kubeconfigs and service accounts; each mistake gives one line."""

import asyncio
import base64
import json
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from certificates import Authority
from kube.api_server import ApiServer, Request
from mooring.kube.client import ApiClient
from mooring.kube.config import Connection, default_namespace, load_connection
from mooring.kube.errors import ConfigError

URL = "https://10.0.0.1:6443"
IN_A_POD = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
CA = """\
-----BEGIN CERTIFICATE-----
MIIBezCCASGgAwIBAgIUPSGestnfVMY+MaX2Fh+nj/gjrcswCgYIKoZIzj0EAwIw
EjEQMA4GA1UEAwwHdGVzdC1jYTAgFw0yNjExMjEwNDAxMTdaGA8yMTI2MTAyODA0
MDExN1owEjEQMA4GA1UEAwwHdGVzdC1jYTBZMBMGByqGSM49AgEGCCqGSM49AwEH
A0IABJkLYtdSqnXTReMG/opZcLmA8WbHj+DMPH+8oMq8eZkXrxMRC/0XHR+rzNpn
VF8lf0ABPbv3Gz5lDsfM4HriVV+jUzBRMB0GA1UdDgQWBBSXWspTxbfPEtLRPge3
yAu6FKVdDjAfBgNVHSMEGDAWgBSXWspTxbfPEtLRPge3yAu6FKVdDjAPBgNVHRMB
Af8EBTADAQH/MAoGCCqGSM49BAMCA0gAMEUCICZiUGIPzvTeGdqBVsNDwxTaGch6
aOXh8ZDgXYCExhxzAiEAhVf7rhqN3/FLP9OHhx3MzJpnJ4mkDbZrkzu0MpkMtd0=
-----END CERTIFICATE-----
"""


def kubeconfig(
    folder: Path,
    user: dict[str, Any] | None = None,
    *,
    name: str = "config",
    server: str = URL,
    cluster: dict[str, Any] | None = None,
) -> str:
    """Write a kubeconfig with one context and return its path; `cluster` has more fields."""
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": server, **(cluster or {})}}],
        "users": [{"name": "u", "user": user or {}}],
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "here",
    }
    path = folder / name
    path.write_text(yaml.safe_dump(content))
    return str(path)


def edit(path: str, old: str, new: str) -> None:
    file = Path(path)
    file.write_text(file.read_text().replace(old, new))


def plugin(folder: Path, **status: str) -> dict[str, Any]:
    """Return a user with a login plugin, which counts its runs in the token and the file `runs`."""
    runs = folder / "runs"
    script = (
        "import json, pathlib, sys\n"
        f"runs = pathlib.Path({str(runs)!r})\n"
        "count = int(runs.read_text()) + 1 if runs.exists() else 1\n"
        "runs.write_text(str(count))\n"
        "status = json.loads(sys.argv[1]) | {'token': f'run-{count}'}\n"
        "kind = {'apiVersion': 'client.authentication.k8s.io/v1', 'kind': 'ExecCredential'}\n"
        "print(json.dumps(kind | {'status': status}))\n"
    )
    return {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": sys.executable,
            "args": ["-c", script, json.dumps(status)],
        }
    }


def service_account(folder: Path) -> Path:
    (folder / "token").write_text("at-first")
    (folder / "ca.crt").write_text(CA)
    return folder


async def refused(*args: Any, **kwargs: Any) -> str:
    with pytest.raises(ConfigError) as raised:
        await load_connection(*args, **{"environ": {}, **kwargs})
    line = str(raised.value)
    assert "\n" not in line
    return line


async def test_a_named_kubeconfig_comes_first(tmp_path: Path) -> None:
    named = kubeconfig(tmp_path, {"token": "t"}, name="named", server="https://named:1")
    other = kubeconfig(tmp_path, {"token": "t"}, name="other", server="https://other:1")
    environ = {"KUBECONFIG": other, "KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    assert (await load_connection(named, environ=environ)).url == "https://named:1"
    assert (await load_connection(environ=environ)).url == "https://other:1"


async def test_files_are_merged_and_a_context_chosen(tmp_path: Path) -> None:
    first = kubeconfig(tmp_path, {"token": "first"}, name="first")
    second = kubeconfig(tmp_path, name="second", server="https://10.0.0.2:6443")
    # Names in merged files are unique: of two clusters called c the first file's would win.
    edit(second, "name: c", "name: d")
    edit(second, "cluster: c", "cluster: d")
    edit(second, "here", "there")
    paths = f"{first}:{second}"
    assert (await load_connection(paths, environ={})).url == URL
    there = await load_connection(paths, "there", environ={})
    assert there.url == "https://10.0.0.2:6443"


async def test_an_empty_file_among_others_says_nothing(tmp_path: Path) -> None:
    """As in kubectl, an empty file is a kubeconfig without clusters."""
    path, empty = kubeconfig(tmp_path, {"token": "t"}), tmp_path / "empty"
    empty.touch()
    for paths in (f"{empty}:{path}", f"{path}:{empty}"):
        assert (await load_connection(paths, environ={})).url == URL


async def test_the_files_of_a_user_are_relative_to_the_file_that_the_user_is_in(
    tmp_path: Path,
) -> None:
    """As in kubectl (ResolveLocalPaths in client-go's clientcmd/loader.go)."""
    clusters, users = tmp_path / "clusters", tmp_path / "users"
    clusters.mkdir()
    users.mkdir()
    pair = Authority().client("dora")
    (users / "tls.crt").write_bytes(pair.certificate)
    (users / "tls.key").write_bytes(pair.key)
    (users / "login").symlink_to(sys.executable)
    certificate = {"client-certificate": "tls.crt", "client-key": "tls.key"}
    login = plugin(tmp_path)
    login["exec"]["command"] = "./login"
    cluster = kubeconfig(clusters)
    edit(cluster, "name: u\n", "name: other\n")
    connection = await load_connection(
        f"{cluster}:{kubeconfig(users, {**certificate, **login})}", environ={}
    )
    assert connection.url == URL
    assert connection.client_certificate == (str(users / "tls.crt"), str(users / "tls.key"))
    assert await connection.credentials.headers() == {"Authorization": "Bearer run-1"}


async def test_the_home_kubeconfig_comes_last(tmp_path: Path) -> None:
    (tmp_path / ".kube").mkdir()
    kubeconfig(tmp_path / ".kube", {"token": "t"})
    assert (await load_connection(environ={"HOME": str(tmp_path)})).url == URL


async def test_the_token_becomes_the_header(tmp_path: Path) -> None:
    connection = await load_connection(kubeconfig(tmp_path, {"token": "t"}), environ={})
    assert await connection.credentials.headers() == {"Authorization": "Bearer t"}


async def test_a_password_becomes_the_header(tmp_path: Path) -> None:
    user = {"username": "dora", "password": "x"}
    connection = await load_connection(kubeconfig(tmp_path, user), environ={})
    expected = base64.b64encode(b"dora:x").decode()
    assert await connection.credentials.headers() == {"Authorization": f"Basic {expected}"}


async def test_tls_follows_the_cluster(tmp_path: Path) -> None:
    strict = await load_connection(kubeconfig(tmp_path), environ={})
    assert isinstance(strict.tls, ssl.SSLContext)
    assert strict.tls.verify_mode is ssl.CERT_REQUIRED
    fields: dict[str, Any] = {
        "insecure-skip-tls-verify": True,
        "proxy-url": "http://p:1",
        "tls-server-name": "s",
    }
    open_to_all = await load_connection(kubeconfig(tmp_path, cluster=fields), environ={})
    assert isinstance(open_to_all.tls, ssl.SSLContext)
    assert open_to_all.tls.verify_mode is ssl.CERT_NONE
    assert (open_to_all.proxy, open_to_all.server_name) == ("http://p:1", "s")


async def test_a_refused_token_file_is_read_again(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old")
    connection = await load_connection(kubeconfig(tmp_path, {"tokenFile": str(token)}), environ={})
    token.write_text("new")
    headers = await connection.credentials.headers()
    assert headers == {"Authorization": "Bearer old"}
    assert await connection.credentials.renew(headers)
    assert await connection.credentials.headers() == {"Authorization": "Bearer new"}


async def test_a_login_plugin_runs_again_when_its_token_is_refused(tmp_path: Path) -> None:
    def respond(request: Request) -> None:
        if request.headers["Authorization"] == "Bearer run-2":
            request.reply({})
        else:
            request.refuse(401, "Unauthorized", "Unauthorized")

    async with ApiServer(respond) as server:
        path = kubeconfig(tmp_path, plugin(tmp_path), server=server.url)
        async with ApiClient(await load_connection(path, environ={})) as client:
            await client.request("GET", "/version")
    assert (tmp_path / "runs").read_text() == "2"


@pytest.mark.parametrize(
    ("status", "reread"),
    [({}, float("inf")), ({"expirationTimestamp": "2999-01-01T00:00:00Z"}, 60.0)],
)
async def test_a_plugin_is_asked_by_time_only_if_it_names_an_expiry(
    tmp_path: Path, status: dict[str, str], reread: float
) -> None:
    path = kubeconfig(tmp_path, plugin(tmp_path, **status))
    connection = await load_connection(path, environ={})
    assert connection.credentials._reread == reread


async def test_a_pod_uses_its_service_account(tmp_path: Path) -> None:
    account = service_account(tmp_path)
    connection = await load_connection(environ=IN_A_POD, service_account=account)
    assert connection.url == "https://[fd00::1]:443"
    headers = await connection.credentials.headers()
    assert headers == {"Authorization": "Bearer at-first"}
    (account / "token").write_text("rotated\n")
    assert await connection.credentials.renew(headers)
    assert await connection.credentials.headers() == {"Authorization": "Bearer rotated"}


def trusted_by(connection: Connection) -> str:
    """Return the CAs that the connection trusts, as text."""
    assert isinstance(connection.tls, ssl.SSLContext)
    return str(connection.tls.get_ca_certs())


@pytest.mark.parametrize("in_a_pod", [True, False])
async def test_the_file_of_the_clusters_ca_is_read_again(tmp_path: Path, *, in_a_pod: bool) -> None:
    """As in client-go (transport/ca_rotation.go)."""
    account = service_account(tmp_path)
    ca_file = account / "ca.crt"
    if in_a_pod:
        connection = await load_connection(environ=IN_A_POD, service_account=account)
    else:
        cluster = {"certificate-authority": str(ca_file)}
        user = {"tokenFile": str(account / "token")}
        connection = await load_connection(kubeconfig(tmp_path, user, cluster=cluster), environ={})
    ca_file.write_text("half a cert")
    headers = await connection.credentials.headers()
    await connection.credentials.renew(headers)
    assert "test-ca" in trusted_by(connection)
    ca_file.write_bytes(Authority("next-ca").certificate)
    await connection.credentials.renew(headers)
    assert "next-ca" in trusted_by(connection)


async def test_a_new_token_is_used_while_the_ca_cannot_be_read(tmp_path: Path) -> None:
    account = service_account(tmp_path)
    connection = await load_connection(environ=IN_A_POD, service_account=account)
    headers = await connection.credentials.headers()
    (account / "ca.crt").write_text("half a cert")
    (account / "token").write_text("rotated")
    assert await connection.credentials.renew(headers)
    assert await connection.credentials.headers() == {"Authorization": "Bearer rotated"}
    assert "test-ca" in trusted_by(connection)


@asynccontextmanager
async def telling_users(ca: Authority, folder: Path) -> AsyncIterator[int]:
    """Serve TLS; send each client the name in its certificate; yield the port."""

    async def tell(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        subject = writer.get_extra_info("peercert")["subject"]
        writer.write(dict(rdn[0] for rdn in subject)["commonName"].encode())
        writer.close()

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=ca.certificate.decode())
    context.verify_mode = ssl.CERT_REQUIRED
    own, pair = folder / "server.pem", ca.server()
    own.write_bytes(pair.certificate + pair.key)
    context.load_cert_chain(own)
    async with await asyncio.start_server(tell, "127.0.0.1", 0, ssl=context) as server:
        yield server.sockets[0].getsockname()[1]


async def user_of(connection: Connection, port: int) -> str:
    """Open a new connection; return the client's name as the server sees it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=connection.tls)
    user = await reader.read()
    writer.close()
    return user.decode()


async def test_the_files_of_a_client_certificate_are_read_again(tmp_path: Path) -> None:
    """As in client-go (transport/cert_rotation.go)."""
    ca = Authority()
    certificate, key, ca_file = (tmp_path / name for name in ("tls.crt", "tls.key", "ca.crt"))
    first, second = ca.client("first"), ca.client("second")
    certificate.write_bytes(first.certificate)
    key.write_bytes(first.key)
    ca_file.write_bytes(ca.certificate)
    user = {"client-certificate": str(certificate), "client-key": str(key)}
    path = kubeconfig(tmp_path, user, cluster={"certificate-authority": str(ca_file)})
    connection = await load_connection(path, environ={})
    headers = await connection.credentials.headers()
    async with telling_users(ca, tmp_path) as port:
        assert await user_of(connection, port) == "first"
        certificate.write_bytes(second.certificate)
        await connection.credentials.renew(headers)
        assert await user_of(connection, port) == "first", "the key is still that of the first"
        key.write_bytes(second.key)
        await connection.credentials.renew(headers)
        assert await user_of(connection, port) == "second"


async def test_nowhere_to_connect_to_says_what_to_set(tmp_path: Path) -> None:
    line = await refused(environ={"HOME": str(tmp_path)})
    assert line == (
        f"no cluster to connect to: KUBECONFIG is not set, {tmp_path}/.kube/config does not exist "
        "and this is not a pod; set KUBECONFIG or pass --kubeconfig"
    )


async def test_a_missing_file_is_named(tmp_path: Path) -> None:
    line = await refused(f"{tmp_path}/none")
    assert line == (
        f"kubeconfig {tmp_path}/none does not exist; correct KUBECONFIG or --kubeconfig"
    )


@pytest.mark.parametrize(
    "content", ["", "just words", "[1, 2]", "a: [", "clusters: 5", "contexts: [1]", "a: b", "\0"]
)
async def test_a_file_that_is_no_kubeconfig_is_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "broken"
    path.write_text(content)
    line = await refused(str(path))
    assert line.startswith(f"kubeconfig {path} is not usable: ")
    assert line.endswith("; check it with: kubectl config view")


async def test_an_unknown_context_is_named(tmp_path: Path) -> None:
    line = await refused(kubeconfig(tmp_path), "elsewhere")
    assert "Expected object with name elsewhere in" in line


async def test_a_cluster_without_a_usable_server_is_refused(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, {"token": "secret"})
    edit(path, "server:", "sever:")
    assert "the context's cluster has no server" in await refused(path)
    line = await refused(kubeconfig(tmp_path, server="10.0.0.1:6443"))
    assert line.endswith("server '10.0.0.1:6443' must start with https:// or http://")


@pytest.mark.parametrize(
    "server", ["https://h:99999", "https://h:port", "https://[::1", "https://a..b", "https://:6443"]
)
async def test_a_server_that_is_no_url_is_refused(tmp_path: Path, server: str) -> None:
    line = await refused(kubeconfig(tmp_path, server=server))
    assert line.endswith(f"server '{server}' is no URL such as https://10.0.0.1:6443")


async def test_an_error_never_quotes_a_token(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, {"token": "secret"})
    edit(path, "user:\n", "usher:\n")
    line = await refused(path)
    assert "Expected key user in" in line
    assert "secret" not in line


async def test_certificates_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    rubbish = base64.b64encode(b"rubbish").decode()
    line = await refused(kubeconfig(tmp_path, cluster={"certificate-authority-data": rubbish}))
    assert "the CA or client certificate cannot be used" in line
    line = await refused(kubeconfig(tmp_path, cluster={"certificate-authority": "/nowhere/ca.crt"}))
    assert "/nowhere/ca.crt" in line


async def test_a_login_plugin_that_fails_is_quoted(tmp_path: Path) -> None:
    login = plugin(tmp_path)
    login["exec"]["args"] = ["-c", "import sys; sys.exit('log in to the portal first')"]
    assert "log in to the portal first" in await refused(kubeconfig(tmp_path, login))
    login["exec"]["command"] = "no-such-login"
    line = await refused(kubeconfig(tmp_path, login))
    assert "the login plugin 'no-such-login' is not installed" in line


@pytest.mark.filterwarnings("ignore::DeprecationWarning:kubernetes_asyncio")
async def test_an_oidc_provider_that_hangs_up_is_a_mistake_in_one_line(tmp_path: Path) -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.close()

    names = ("client-id", "client-secret", "refresh-token")
    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as provider:
        issuer = f"http://127.0.0.1:{provider.sockets[0].getsockname()[1]}"
        config = {**dict.fromkeys(names, "x"), "idp-issuer-url": issuer}
        user = {"auth-provider": {"name": "oidc", "config": config}}
        assert "is not usable: Server disconnected;" in await refused(kubeconfig(tmp_path, user))


async def test_a_missing_token_file_is_named(tmp_path: Path) -> None:
    assert "/nowhere/token" in await refused(kubeconfig(tmp_path, {"tokenFile": "/nowhere/token"}))


async def test_a_pod_without_a_service_account_token_says_so(tmp_path: Path) -> None:
    line = await refused(environ=IN_A_POD, service_account=tmp_path)
    assert line.startswith(f"service account in {tmp_path} is not usable: ")
    assert "automountServiceAccountToken" in line


@pytest.mark.parametrize("name", ["token", "ca.crt"])
async def test_an_empty_file_of_a_service_account_is_named(tmp_path: Path, name: str) -> None:
    (service_account(tmp_path) / name).write_text("\n")
    line = await refused(environ=IN_A_POD, service_account=tmp_path)
    assert f"{tmp_path / name} is empty; check automountServiceAccountToken" in line


async def test_a_pod_that_is_not_told_of_the_api_servers_port_says_so(tmp_path: Path) -> None:
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    line = await refused(environ=environ, service_account=service_account(tmp_path))
    assert "KUBERNETES_SERVICE_PORT is not set" in line


def test_the_namespace_is_that_of_the_context(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, user=plugin(tmp_path))
    assert default_namespace(path) == "default"
    edit(path, "    user: u\n", "    user: u\n    namespace: shop\n")
    assert default_namespace(path) == "shop"
    assert default_namespace(path, "here") == "shop"
    assert not (tmp_path / "runs").exists(), "nobody logs in"
    with pytest.raises(ConfigError, match="elsewhere"):
        default_namespace(path, "elsewhere")


def test_the_namespace_of_a_pod_is_that_of_its_account(tmp_path: Path) -> None:
    account = service_account(tmp_path)
    assert default_namespace(environ=IN_A_POD, service_account=account) == "default"
    (account / "namespace").write_text("mooring-system\n")
    assert default_namespace(environ=IN_A_POD, service_account=account) == "mooring-system"
