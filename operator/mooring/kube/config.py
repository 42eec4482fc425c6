"""Finds the API server and the credentials for it: a kubeconfig or a service account.

kubernetes_asyncio reads kubeconfigs, runs login plugins and refreshes tokens. This module makes a
frozen `Connection` from the result, and turns each mistake into a `ConfigError` of one line.
`Credentials` keeps tokens fresh; each request for a token also reads certificate files again.

The library is imported only when it is used: a replica in a pod does not need it. The library's
client, which has 800 models and takes 0.25 seconds and 36 MB, is never imported.
"""

from __future__ import annotations

import logging
import os
import ssl
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import urlsplit

from mooring.kube.connecting import client_context
from mooring.kube.credentials import REREAD_SECONDS, Credentials, NoToken, TokenSource
from mooring.kube.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from aiohttp import BaseConnector


logger = logging.getLogger(__name__)

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")

_SERVER: Final = ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT")
"""The environment variables that give a pod the address of the API server."""

_USERS_FILES: Final = frozenset(("client-certificate", "client-key", "tokenFile"))
"""The fields of a kubeconfig's user that contain paths."""


@dataclass(frozen=True, slots=True)
class Connection:
    """One API server, and how to connect to it.

    Attributes:
        url: Scheme, host, port and optional base path, without a trailing slash.
        credentials: The Authorization header.
        tls: The TLS context with CA and client certificate; True means Python's defaults.
        client_certificate: Files of the client certificate and its key, if there is one.
        server_name: The name to expect in the server's certificate, if not the URL's host.
        proxy: The HTTP proxy's URL (`proxy-url` of the kubeconfig).
        user_agent: The name of this client in the server's audit log.
        connector: Makes the connections for watches; None means that they use TCP.
    """

    url: str
    credentials: Credentials = field(default_factory=lambda: Credentials(NoToken(), None))
    tls: ssl.SSLContext | bool = True
    client_certificate: tuple[str, str | None] | None = None
    server_name: str | None = None
    proxy: str | None = None
    user_agent: str = "mooring"
    connector: Callable[[], BaseConnector] | None = None


async def load_connection(
    kubeconfig: str | None = None,
    context: str | None = None,
    *,
    user_agent: str = "mooring",
    environ: Mapping[str, str] = os.environ,
    service_account: Path = SERVICE_ACCOUNT,
) -> Connection:
    """Return the connection to the API server that the first existing source names.

    The sources are `kubeconfig`, $KUBECONFIG, the pod's service account and ~/.kube/config.
    `kubeconfig` may list several files, as $KUBECONFIG. `context` defaults to the file's current
    context. Raises `ConfigError`.
    """
    paths = kubeconfig or environ.get("KUBECONFIG")
    if not paths and "KUBERNETES_SERVICE_HOST" in environ:
        account = _ServiceAccount(service_account, environ)
        return _connection(account, await account.replaced(), user_agent)
    file = _Kubeconfig(paths or _home_kubeconfig(environ), context)
    value = await file.replaced()
    reread = None if file.plugin_names_no_expiry() else REREAD_SECONDS
    return _connection(file, value, user_agent, reread)


def default_namespace(
    kubeconfig: str | None = None,
    context: str | None = None,
    *,
    environ: Mapping[str, str] = os.environ,
    service_account: Path = SERVICE_ACCOUNT,
) -> str:
    """Return the namespace that kubectl uses without `-n`: the context's, the pod's or `default`.

    For the arguments and errors see `load_connection`.
    """
    paths = kubeconfig or environ.get("KUBECONFIG")
    if not paths and "KUBERNETES_SERVICE_HOST" in environ:
        try:
            return (service_account / "namespace").read_text().strip() or "default"
        except OSError:
            return "default"
    return _Kubeconfig(paths or _home_kubeconfig(environ), context).namespace()


def _home_kubeconfig(environ: Mapping[str, str]) -> str:
    home = Path(environ.get("HOME", "~")).expanduser() / ".kube" / "config"
    if not home.exists():
        raise ConfigError(
            f"no cluster to connect to: KUBECONFIG is not set, {home} does not exist and this is "
            "not a pod; set KUBECONFIG or pass --kubeconfig"
        )
    return str(home)


def _malformed() -> tuple[type[Exception], ...]:
    """Return the errors that kubernetes_asyncio raises for missing or invalid kubeconfigs."""
    from aiohttp import ClientError  # noqa: PLC0415 - slow, and files alone do not need it
    from yaml import YAMLError  # noqa: PLC0415 - slow, and files alone need it

    return (
        ClientError,  # an OIDC provider may break the connection off
        _library().ConfigException,
        YAMLError,
        OSError,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        AssertionError,
    )


@cache
def _library() -> Any:
    """Import only the module of kubernetes_asyncio that reads kubeconfigs."""
    package, client = "kubernetes_asyncio", "kubernetes_asyncio.client"
    # A login plugin may have imported the whole library already.
    if package in sys.modules:
        return import_module(f"{package}.config.kube_config")
    try:
        for name in (package, client):
            if (spec := find_spec(name)) is None:
                raise ModuleNotFoundError(name=name)
            sys.modules[name] = module_from_spec(spec)  # with a path, and without its content
        # The module imports two classes of the client, but uses only Configuration.
        configuration = import_module(f"{client}.configuration").Configuration
        vars(sys.modules[client]).update(Configuration=configuration, ApiClient=None)
        return import_module(f"{package}.config.kube_config")
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == package]:
            del sys.modules[name]


def _merged(paths: str) -> Any:
    """Return the merged kubeconfigs, with absolute paths in the users' entries."""
    given = [path for path in paths.split(os.pathsep) if path]
    # An empty file beside others is ignored.
    filled = [path for path in given if not _is_empty(Path(path).expanduser())]
    merger: Any = _library().KubeConfigMerger(os.pathsep.join(filled or given))
    users: list[Any] = merger.config.value["users"]
    for number, user in enumerate(users):
        if not isinstance(known := user.value.get("user"), dict):
            continue
        # Relative to the file of the user's entry, as in kubectl (clientcmd/loader.go).
        fields, folder = dict(known), Path(user.path).absolute().parent
        for name in _USERS_FILES & fields.keys():
            fields[name] = str(folder / fields[name])
        plugin = fields.get("exec")
        if plugin and os.sep in plugin.get("command", ""):
            fields["exec"] = {**plugin, "command": str(folder / plugin["command"])}
        # What is known stays as it is, because the library writes it back with a new token.
        users[number] = type(user)(user.name, {**user.value, "user": fields}, user.path)
    return merger


def _is_empty(file: Path) -> bool:
    return file.is_file() and file.stat().st_size == 0


class _Source(TokenSource, Protocol):
    """A kubeconfig or a service account; `str(source)` names it in error messages."""

    @property
    def configuration(self) -> Any:
        """The server, the files and the token, as they were last read."""


class _Kubeconfig:
    """A context of a kubeconfig, with its user and cluster; a `_Source`."""

    def __init__(self, paths: str, context: str | None) -> None:
        if not any(Path(path).expanduser().exists() for path in paths.split(os.pathsep) if path):
            raise ConfigError(
                f"kubeconfig {paths} does not exist; correct KUBECONFIG or --kubeconfig"
            )
        self._paths = paths
        self._context = context
        self.configuration: Any = None
        self._merger: Any = None
        self._loader: Any = None

    def __str__(self) -> str:
        return f"kubeconfig {self._paths}"

    async def replaced(self) -> str | None:
        """Read the files, log in again, and return the value of the Authorization header."""
        try:
            self._merger = _merged(self._paths)
            self._loader = _library().KubeConfigLoader(
                self._merger.config,
                active_context=self._context or _current_context(self._merger),
                config_base_path=None,
                config_persister=self._merger.save_changes,
            )
        except _malformed() as error:
            raise self._unusable(error) from error
        self.configuration = _library().Configuration()
        return await self.current()

    async def current(self) -> str | None:
        """Return the value of the Authorization header; renew the login if it has expired."""
        try:
            await self._loader.load_and_set(self.configuration)
        except _malformed() as error:
            raise self._unusable(error) from error
        if not hasattr(self._loader, "host"):
            raise self._unusable(ValueError("the context's cluster has no server"))
        return _token(self.configuration)

    def namespace(self) -> str:
        """Return the context's namespace, `default` if it has none."""
        try:
            merger = _merged(self._paths)
            context = self._context or _current_context(merger)
            found = merger.config["contexts"].get_with_name(context).value["context"]
            return found.get("namespace") or "default"
        except _malformed() as error:
            raise self._unusable(error) from error

    def plugin_names_no_expiry(self) -> bool:
        """Return whether a login plugin gave the token without a time of expiry.

        Such a plugin is run again only when the server refuses the token.
        """
        return self._plugin() is not None and not hasattr(self._loader, "exec_plugin_expiry")

    def _plugin(self) -> Any:
        user_name = self._loader.current_context["context"].get("user")
        user = self._merger.config["users"].get_with_name(user_name, safe=True)
        return user["user"].safe_get("exec") if user is not None else None

    def _unusable(self, error: BaseException) -> ConfigError:
        if isinstance(error, (TypeError, AttributeError, AssertionError)):
            problem = "it needs lists of clusters, contexts and users, and a user in its context"
        elif isinstance(error, FileNotFoundError) and (plugin := self._plugin()) is not None:
            problem = f"the login plugin {plugin['command']!r} is not installed"  # uvloop hides it
        elif isinstance(error, KeyError):
            problem = f"an entry lacks the key {error}"
        else:
            problem = " ".join(_without_entries(str(error)).split())
        return ConfigError(f"{self} is not usable: {problem}; check it with: kubectl config view")


def _without_entries(problem: str) -> str:
    # Quoted entries may contain tokens.
    before, _, entries = problem.partition("/{")
    return before + entries.rpartition("}")[2]


def _current_context(merger: Any) -> str | None:
    # As kubectl does; the library would use the last such file.
    settings = (config.get("current-context") for config in merger.config_files.values())
    return next((name for name in settings if name), None)


@dataclass(slots=True)
class _PodConfiguration:
    """The fields of the library's `Configuration`, for a connection inside a pod."""

    host: str
    ssl_ca_cert: str
    api_key: dict[str, str]
    verify_ssl: bool = True
    cert_file: str | None = None
    key_file: str | None = None
    tls_server_name: str | None = None
    proxy: str | None = None


class _ServiceAccount:
    """A pod's service account volume; a `_Source`."""

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        self._folder = folder
        self._environ = dict(environ)
        self.configuration: Any = None

    def __str__(self) -> str:
        return f"service account in {self._folder}"

    def read(self) -> _PodConfiguration:
        """Read server, CA and token from the environment and the files."""
        try:
            server = [self._environ[name] for name in _SERVER]
            token, _ = self._text_of("token"), self._text_of("ca.crt")
        except KeyError as error:
            raise self._unusable(f"{error.args[0]} is not set") from None
        except (OSError, ValueError) as error:
            raise self._unusable(str(error)) from error
        host, port = server
        netloc = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        return _PodConfiguration(
            f"https://{netloc}", str(self._folder / "ca.crt"), {"BearerToken": f"Bearer {token}"}
        )

    async def current(self) -> str | None:
        """Return the token as the kubelet last wrote it."""
        self.configuration = self.read()
        return _token(self.configuration)

    replaced = current

    def _text_of(self, name: str) -> str:
        path = self._folder / name
        if not (text := path.read_text().strip()):
            raise ValueError(f"{path} is empty")
        return text

    def _unusable(self, problem: str) -> ConfigError:
        return ConfigError(
            f"{self} is not usable: {problem}; "
            "check automountServiceAccountToken of the pod, or set KUBECONFIG"
        )


def _token(configuration: Any) -> str | None:
    value: str | None = configuration.api_key.get("BearerToken")
    return value.strip() if value else None


class _Followed:
    """A TokenSource that also loads changed certificate files into its TLS context."""

    def __init__(self, source: _Source) -> None:
        self._source = source
        self._files: tuple[bytes, ...] = ()
        with self._mistakes():
            # A TLS context cannot forget a CA: a removed CA stays trusted until the process ends.
            self.context = client_context(
                source.configuration.ssl_ca_cert, verified=source.configuration.verify_ssl
            )
        self._follow()

    async def current(self) -> str | None:
        return self._and_follow(await self._source.current())

    async def replaced(self) -> str | None:
        return self._and_follow(await self._source.replaced())

    def _and_follow(self, value: str | None) -> str | None:
        try:
            self._follow()
        except ConfigError as error:
            logger.warning("the certificates that were read before are used: %s", error)
        return value

    def _follow(self) -> None:
        """Load the certificate files into the TLS context if they have changed."""
        now = self._source.configuration
        paths = (now.ssl_ca_cert, now.cert_file, now.key_file)
        with self._mistakes():
            files = tuple(Path(path).read_bytes() for path in paths if path)
            if files == self._files:
                return
            if now.ssl_ca_cert:
                self.context.load_verify_locations(now.ssl_ca_cert)
            if now.cert_file:
                # While both files are replaced, they may not belong together for a moment.
                ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(now.cert_file, now.key_file)
                self.context.load_cert_chain(now.cert_file, now.key_file)
        self._files = files

    @contextmanager
    def _mistakes(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"{self._source}: the CA or client certificate cannot be used: {error}"
            ) from error


def _connection(
    source: _Source, value: str | None, user_agent: str, reread: float | None = REREAD_SECONDS
) -> Connection:
    """Return the connection for a source; `value` is its Authorization header."""
    configuration = source.configuration
    url = configuration.host.rstrip("/")
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"{source}: server {url!r} must start with https:// or http://")
    try:
        parts = urlsplit(url)
        is_usable = parts.port != 0 and (parts.hostname or "").encode("idna") != b""
    except ValueError:  # a port that is none, a bracket without another, or a label that is empty
        is_usable = False
    if not is_usable:
        raise ConfigError(f"{source}: server {url!r} is no URL such as https://10.0.0.1:6443")
    followed = _Followed(source)
    return Connection(
        url=url,
        credentials=Credentials(followed, value, reread=reread),
        tls=followed.context,
        client_certificate=(configuration.cert_file, configuration.key_file)
        if configuration.cert_file
        else None,
        server_name=configuration.tls_server_name,
        proxy=configuration.proxy,
        user_agent=user_agent,
    )
