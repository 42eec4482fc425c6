"""The handle of plugins that run without a cluster: they read a state, and can write nothing."""

from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, NoReturn

from mooring.framework.handle import Handle
from mooring.framework.verdicts import PluginError
from mooring.framework.waiting_pods import WaitingPods
from mooring.model.pod import Pod
from mooring.state.cluster import ClusterState
from mooring.state.cluster_view import ClusterView

__all__ = ["OfflineApi", "offline_handle"]


def offline_handle(state: ClusterState) -> Handle:
    """Return the handle for plugins over a state without an API server."""
    return Handle(ClusterView(state), WaitingPods(), OfflineApi(), state)


class OfflineApi:
    """An implementation of `mooring.framework.handle.Api` in which every call fails but `later`.

    A simulation ends before any plugin may write to the API.
    """

    async def bind(self, _pod: Pod, _node: str) -> None:
        """Raise PluginError."""
        _fail()

    def annotate(self, _pod: Pod, annotations: Mapping[str, str]) -> None:
        """Raise PluginError if there are annotations; taking them back does nothing."""
        if annotations:
            _fail()

    def unix_nanoseconds(self) -> int:
        """Raise PluginError."""
        _fail()

    async def patch(
        self, _resource: str, _namespace: str | None, _name: str, _patch: dict[str, Any]
    ) -> dict[str, Any]:
        """Raise PluginError."""
        _fail()

    def record(self, _pod: Pod, _reason: str, _note: str) -> None:
        """Raise PluginError."""
        _fail()

    async def read(self, _resource: str, _namespace: str, _name: str) -> dict[str, Any] | None:
        """Raise PluginError."""
        _fail()

    async def create(self, _resource: str, _body: Mapping[str, Any]) -> dict[str, Any]:
        """Raise PluginError."""
        _fail()

    async def delete(self, _resource: str, _namespace: str, _name: str, _uid: str) -> None:
        """Raise PluginError."""
        _fail()

    async def set_pod_status(self, _pod: Pod, _status: Mapping[str, Any]) -> None:
        """Raise PluginError."""
        _fail()

    async def update(
        self,
        _resource: str,
        _namespace: str,
        _name: str,
        _patch: dict[str, Any],
        *,
        subresource: str | None = None,  # noqa: ARG002 - named as in the protocol
    ) -> dict[str, Any]:
        """Raise PluginError."""
        _fail()

    def alone(self, _key: str) -> AbstractAsyncContextManager[object]:
        """Raise PluginError."""
        _fail()

    def later(self, _write: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Leave the write out, which another pod's attempt would wait for."""

    async def until(self, _done: Callable[[], bool], _seconds: float) -> None:
        """Raise PluginError."""
        _fail()


def _fail() -> NoReturn:
    raise PluginError("a simulation has no API server")
