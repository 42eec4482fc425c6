"""The handle for plugins without a cluster: plugins can read a state, but not write."""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, NoReturn, cast

from mooring.framework.handle import Api, Handle
from mooring.framework.verdicts import PluginError
from mooring.framework.waiting_pods import WaitingPods
from mooring.model.pod import Pod
from mooring.state.cluster import ClusterState
from mooring.state.cluster_view import ClusterView


def offline_handle(state: ClusterState) -> Handle:
    """Return a handle with which plugins read `state`, without an API server."""
    return Handle(ClusterView(state), WaitingPods(), cast("Api", OfflineApi()), state)


class OfflineApi:
    """The `mooring.framework.handle.Api` for plugins in a simulation, which writes nothing.

    Every call raises PluginError, except `later` and `annotate` without annotations; plugins may
    call these two during a decision.
    """

    def __getattr__(self, _name: str) -> Callable[..., NoReturn]:
        return _fail

    def annotate(self, _pod: Pod, annotations: Mapping[str, str]) -> None:
        """Do nothing if `annotations` is empty; otherwise raise PluginError."""
        if annotations:
            _fail()

    def later(self, _write: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Drop the write, because a simulation writes nothing."""


def _fail(*_args: object, **_named: object) -> NoReturn:
    raise PluginError("a simulation has no API server")
