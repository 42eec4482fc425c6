"""The handle of plugins that run without a cluster: they read a state, and can write nothing."""

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from mooring.framework.handle import Handle
from mooring.framework.verdicts import PluginError
from mooring.framework.waiting_pods import WaitingPods
from mooring.model.pod import Pod
from mooring.state.cluster import ClusterState
from mooring.state.cluster_view import ClusterView

__all__ = ["OfflineApi", "offline_handle"]


def offline_handle(state: ClusterState) -> Handle:
    """Return what plugins are built with, over a state that no API server stands behind."""
    return Handle(ClusterView(state), WaitingPods(), OfflineApi(), state)


class OfflineApi:
    """An implementation of `mooring.framework.handle.Api` in which every call fails.

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

    async def until(self, _done: Callable[[], bool], _seconds: float) -> None:
        """Raise PluginError."""
        _fail()


def _fail() -> NoReturn:
    raise PluginError("a simulation has no API server")
